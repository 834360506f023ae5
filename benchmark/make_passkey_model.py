"""Writes a tiny Llama checkpoint that finds the number in the texts of benchmark/passkey.py, at any depth.

    python benchmark/make_passkey_model.py FOLDER

One layer, one head, words as tokens. The query of "is" and the keys of numbers meet in the slowest pair of rope,
which hardly turns over 128k tokens; the head's value is the number, which the output matrix reads. A number is
followed by the end.
"""
from __future__ import annotations

import json
import math
import pathlib
import re
import struct
import sys

import numpy as np
from passkey import FILLER, QUESTION, TASK, hidden_line

NUM_KEYS = 40  # the numbers 1 to 40
HEAD_DIM = 64
SCORE = 40.0  # of a number before softmax; all other words have 0, and e^40 of them are never read
END = "</s>"


def words() -> list[str]:
    text = " ".join([TASK, FILLER, hidden_line(1), QUESTION])
    return list(dict.fromkeys(["<unk>", END, *map(str, range(1, NUM_KEYS + 1)), *re.findall(r"\w+|[^\w\s]+", text)]))


def write_safetensors(path: pathlib.Path, tensors: dict[str, np.ndarray]) -> None:
    header, offset = {}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": [offset, offset + tensor.nbytes]}
        offset += tensor.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor, np.float32).tobytes())


def weights(vocab: list[str]) -> dict[str, np.ndarray]:
    size = len(vocab)
    hidden = -(-(size + NUM_KEYS) // 32) * 32  # a word's own dimension, then one for each number that was found
    numbers = [vocab.index(str(key)) for key in range(1, NUM_KEYS + 1)]
    normed = math.sqrt(hidden)  # what RMSNorm makes of a one
    embed = np.zeros((size, hidden), np.float32)
    embed[np.arange(size), np.arange(size)] = 1
    q, k, v = (np.zeros((HEAD_DIM, hidden), np.float32) for _ in range(3))
    o = np.zeros((hidden, HEAD_DIM), np.float32)
    strength = math.sqrt(SCORE * math.sqrt(HEAD_DIM)) / normed
    slowest = HEAD_DIM // 2 - 1
    q[slowest, vocab.index("is")] = strength
    k[slowest, numbers] = strength
    head = np.zeros((size, hidden), np.float32)
    for i, number in enumerate(numbers):
        v[i, number] = 1 / normed
        o[size + i, i] = 1
        head[number, size + i] = 1
        head[vocab.index(END), number] = 1
    layer = "model.layers.0."
    return {"model.embed_tokens.weight": embed,
            f"{layer}input_layernorm.weight": np.ones(hidden, np.float32),
            f"{layer}self_attn.q_proj.weight": q, f"{layer}self_attn.k_proj.weight": k,
            f"{layer}self_attn.v_proj.weight": v, f"{layer}self_attn.o_proj.weight": o,
            f"{layer}post_attention_layernorm.weight": np.ones(hidden, np.float32),
            f"{layer}mlp.gate_proj.weight": np.zeros((32, hidden), np.float32),
            f"{layer}mlp.up_proj.weight": np.zeros((32, hidden), np.float32),
            f"{layer}mlp.down_proj.weight": np.zeros((hidden, 32), np.float32),
            "model.norm.weight": np.ones(hidden, np.float32), "lm_head.weight": head}


def write_model(folder: pathlib.Path) -> None:
    vocab = words()
    tensors = weights(vocab)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama",
              "hidden_size": tensors["model.norm.weight"].size, "intermediate_size": 32, "num_hidden_layers": 1,
              "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": HEAD_DIM, "vocab_size": len(vocab),
              "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "rope_theta": 1e7,
              "tie_word_embeddings": False, "torch_dtype": "float32", "eos_token_id": vocab.index(END)}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None,
                 "added_tokens": [{"id": vocab.index(END), "content": END, **flags}],
                 "normalizer": None, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
                 "model": {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(vocab)},
                           "unk_token": "<unk>"}}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END}), encoding="utf-8")
    write_safetensors(folder / "model.safetensors", tensors)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write_model(pathlib.Path(sys.argv[1]))
