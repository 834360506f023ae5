"""Small tokenizers in the other file formats: SentencePiece .model, .tiktoken ranks, .gguf."""
import base64
import pathlib
import struct

import gguf

import tiny

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, _, BYTE = range(1, 7)


def _varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _bytes_field(number, content):
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _int_field(number, value):
    return _varint(number << 3) + _varint(value)


def _piece(text, score, kind):
    return _bytes_field(
        1, _bytes_field(1, text.encode()) +_varint(2 <<3 |5) +struct.pack("<f", score) +_int_field(3, kind))


def write_sentencepiece(path: pathlib.Path, remove_extra_spaces=False):
    """BPE with byte fallback. ids: 0 <unk>, 1 <s>, 2 </s>, 3-258 bytes, then ▁ a b ▁a ab <user>."""
    pieces = [("<unk>", 0, UNKNOWN), ("<s>", 0, CONTROL), ("</s>", 0, CONTROL)]
    pieces += [(f"<0x{byte:02X}>", 0, BYTE) for byte in range(256)]
    pieces +=[("\u2581", -2, NORMAL),
              ("a", -3, NORMAL),
              ("b", -4, NORMAL),
              ("\u2581a", -1, NORMAL),
              ("ab", -5, NORMAL),
              ("<user>", 0, USER_DEFINED)]
    trainer = _bytes_field(2, _int_field(3, 2) + _int_field(35, 1))  # model_type BPE, byte_fallback
    normalizer = _bytes_field(3, _int_field(4, int(remove_extra_spaces)))
    path.write_bytes(b"".join(_piece(*piece) for piece in pieces) + trainer + normalizer)
    return path


def write_ranks(path: pathlib.Path, more=()):
    """Ranks 0 to 255 are the bytes."""
    tokens = [bytes([byte]) for byte in range(256)] + [token.encode() for token in more]
    path.write_text("".join(f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens)))
    return path


def write_gguf(path: pathlib.Path):
    """Byte-level BPE: ids of bytes are the bytes, 256 'ab', 257 <|im_end|> (control)."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list([*tiny.byte_spelling(), "ab", "<|im_end|>"])
    writer.add_token_types([NORMAL] * 257 + [CONTROL])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(257)
    writer.add_add_bos_token(False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
