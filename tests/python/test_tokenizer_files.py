"""lmdeploy.Tokenizer on every kind of file: its ids, special tokens in text, and streams."""
import gzip
import json
import pathlib
import random
import shutil

import pytest

import tokenizer_files
from lmdeploy import Tokenizer
from tokenizer_texts import Texts

A, B, SPACE_A, AB, USER = 260, 261, 262, 263, 264  # of write_sentencepiece
SPACE = 259
DATA = pathlib.Path(__file__).parents[2] / ".." / "shared" / "data" / "tokenizers"


@pytest.fixture
def model_file(tmp_path):
    return tokenizer_files.write_sentencepiece(tmp_path / "tokenizer.model")


def test_a_model_file_takes_special_text_as_text(model_file):
    tokenizer = Tokenizer(model_file)
    assert tokenizer.encode("ab", add_bos=False) == [SPACE_A, B]
    assert tokenizer.encode("ab") == [1, SPACE_A, B]
    assert tokenizer.encode("a<s>", add_special_tokens=False) == [SPACE_A, *(3 + byte for byte in b"<s>")]
    assert tokenizer.encode("a<s>", add_special_tokens=False, parse_special=True) == [SPACE_A, 1]
    assert tokenizer.encode("é<user>", add_special_tokens=False) == [SPACE, 3 + 0xC3, 3 + 0xA9, USER]
    assert tokenizer.decode([1, SPACE_A, B, 3 + 0xC3, 3 + 0xA9, 2]) == "abé"
    assert tokenizer.decode([1, SPACE_A, 2], skip_special_tokens=False) == "<s> a</s>"
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (1, 2)


def test_a_folder_with_only_a_model_file_recognises_special_text(model_file):
    tokenizer = Tokenizer(model_file.parent)
    assert tokenizer.encode("a<s>b") == [1, SPACE_A, 1, SPACE, B]
    plain = [SPACE_A, *(3 + byte for byte in b"<s>")]
    assert tokenizer.encode("a<s>", add_bos=False, parse_special=False) == plain


def test_a_slow_tokenizers_folder(model_file):
    """Ids as transformers' slow tokenizers give them: those of added_tokens.json."""
    def write(name, content):
        (model_file.parent / name).write_text(json.dumps(content))

    write("added_tokens.json", {"<|end|>": 265, "<tool>": 270, "<pad>": 266})
    write("special_tokens_map.json", {"bos_token": "<s>", "eos_token": {"content": "<|end|>", "normalized": True},
                                      "pad_token": "<pad>", "additional_special_tokens": ["<more>"]})
    write("tokenizer_config.json", {"tokenizer_class": "LlamaTokenizer", "legacy": False})
    tokenizer = Tokenizer(model_file.parent)
    assert tokenizer.encode("a<tool>ab<|end|><pad> a") == [1, SPACE_A, 270, AB, 265, 266, SPACE_A]
    assert tokenizer.eos_token_id == 265
    assert tokenizer.decode([1, SPACE_A, 270, AB, 265, 266]) == "a<tool>ab"
    assert tokenizer.decode([270, 265], skip_special_tokens=False) == "<tool><|end|>"
    assert tokenizer.encode("<more>", add_bos=False) == [268]  # 265 pieces and three added tokens come before it
    write("added_tokens.json", {"<tool>": "270"})
    with pytest.raises(ValueError, match='added_tokens.json: "<tool>" is "270", expected a token id'):
        Tokenizer(model_file.parent)


def test_a_tiktoken_file_and_its_rules(tmp_path):
    path = tokenizer_files.write_ranks(tmp_path / "own.tiktoken", ["ab"])
    with pytest.raises(FileNotFoundError, match="tiktoken.json"):
        Tokenizer(path)
    rules = {"pat_str": "\\w+|\\W+", "special_tokens": {"<|x|>": 300}}
    (tmp_path / "tiktoken.json").write_text(json.dumps(rules))
    tokenizer = Tokenizer(path)
    assert tokenizer.encode("abé") == [256, 0xC3, 0xA9]
    assert tokenizer.encode("<|x|>") == [*b"<|x|>"]
    assert tokenizer.encode("<|x|>", parse_special=True) == [300]
    assert tokenizer.decode([256, 300]) == "ab"
    folder = Tokenizer(tmp_path)
    assert folder.encode("ab<|x|>") == [256, 300]
    assert folder.encode("<|x|>", parse_special=False) == [*b"<|x|>"]


def test_qwens_ranks(tmp_path):
    path = tokenizer_files.write_ranks(tmp_path / "qwen.tiktoken", ["ab"])
    assert Tokenizer(tmp_path).encode("ab<|im_start|>e\u0301") == [256, 151644, 0xC3, 0xA9]
    assert Tokenizer(path).encode("<|im_start|>") == [*b"<|im_start|>"]
    assert Tokenizer(path).encode("<|im_start|>", parse_special=True) == [151644]


def test_a_gguf_file_and_its_folder(tmp_path):
    path = tokenizer_files.write_gguf(tmp_path / "a.gguf")
    for tokenizer in (Tokenizer(path), Tokenizer(tmp_path)):
        assert tokenizer.encode("ab<|im_end|>") == [256, 257]
        assert tokenizer.encode("<|im_end|>", parse_special=False) == [*b"<|im_end|>"]
        assert tokenizer.decode([256, 257]) == "ab"
        assert tokenizer.eos_token_id == 257


def test_a_stream_of_pieces(model_file):
    tokenizer = Tokenizer(model_file)
    stream = tokenizer.detokenizer()
    assert [stream.push(token) for token in (1, SPACE_A, 3 + 0xC3, 3 + 0xA9)] == ["", "a", "", "é"]
    assert stream.push([B, 3 + 0xE4]) == "b"
    assert stream.finish() == "\ufffd"
    assert tokenizer.detokenizer(skip_special_tokens=False).push([1, 2]) == "<s></s>"


def check_streams(tokenizer, seed, rounds=300):
    """Random ids: the joined pieces are the text of all ids, whichever way they are dealt out."""
    native = tokenizer._native
    vocab = range(tokenizer.vocab_size)
    special = [token for token in vocab if native.is_special(token)]
    bytes_ = {native.token_bytes(token)[0]: token for token in vocab if len(native.token_bytes(token)) == 1}
    texts, rng = Texts(seed), random.Random(seed)
    for _ in range(rounds):
        ids = texts.ids(tokenizer.vocab_size, special, bytes_)
        skip = rng.random() < 0.5
        stream, pieces, at = tokenizer.detokenizer(skip), [], 0
        while at < len(ids):
            count = rng.choice((1, 1, 2, 5))
            pieces.append(stream.push(ids[at:at + count]))
            at += count
        pieces.append(stream.finish())
        text = tokenizer.decode(ids, skip_special_tokens=skip)
        assert "".join(pieces) == "".join(tokenizer.decode_pieces(ids, skip)) == text, (ids, skip)


@pytest.mark.parametrize("write", [lambda p: tokenizer_files.write_sentencepiece(p / "tokenizer.model"),
                                   lambda p: tokenizer_files.write_sentencepiece(p / "tokenizer.model", True).parent,
                                   lambda p: tokenizer_files.write_ranks(p / "qwen.tiktoken", ["ab", "\U0001F600"]),
                                   lambda p: tokenizer_files.write_gguf(p / "a.gguf")],
                         ids=["model", "model folder", "tiktoken", "gguf"])
def test_streams_equal_decoding(write, tmp_path):
    check_streams(Tokenizer(write(tmp_path)), "small", 500)


def data_files():
    patterns = ("*/tokenizer.model.gz", "*/*.tiktoken.gz", "*/vocab.gguf.gz")
    return [path for pattern in patterns for path in sorted(DATA.glob(pattern))]


@pytest.mark.skipif(not data_files(), reason="the tokenizers of the reference data are not there")
@pytest.mark.parametrize("path", data_files(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_reference_files(path, tmp_path):
    unpacked = tmp_path / path.stem
    unpacked.write_bytes(gzip.decompress(path.read_bytes()))
    rules = path.parent / "tiktoken.json"
    if rules.exists():
        shutil.copy(rules, tmp_path)
    tokenizer = Tokenizer(unpacked)
    for text, options, want in reference_lines(path):
        assert tokenizer.encode(text, add_special_tokens=False, **options) == want, ascii(text)
    check_streams(tokenizer, path.parent.name)


def reference_lines(path):
    """(text, options, ids), some hundred of each file."""
    def lines(name):
        with gzip.open(path.parent / name, "rt", encoding="utf-8") as file:
            yield from map(json.loads, list(file)[::7])

    if path.name.endswith(".model.gz"):
        yield from ((line["text"], {}, line["ids"]) for line in lines("golden_spm.jsonl.gz"))
    elif path.name.endswith(".tiktoken.gz"):
        yield from ((line["text"], {}, line["ids_ordinary"]) for line in lines("golden_tiktoken.jsonl.gz"))
        if "tekken" not in path.name:  # whose library never looks for special tokens
            yield from ((line["text"], {"parse_special": True}, line.get("ids", line["ids_ordinary"]))
                        for line in lines("golden_tiktoken.jsonl.gz"))
    elif (path.parent / "llamacpp_vectors.jsonl").exists():
        with open(path.parent / "llamacpp_vectors.jsonl", encoding="utf-8") as file:
            yield from ((line["text"], {}, line["ids"]) for line in map(json.loads, file))
