"""Models small enough to be written, loaded and predicted by a test.

The *alphabet* model is a scripted token source in the form of a Llama checkpoint: its layers add nothing, so the next
token depends on the last one alone, and its output matrix makes that the next letter. Its tokens are single bytes, so
text and tokens correspond one to one:

    "x" -> "yz" and the end of the answer;  a chat prompt (which ends in a newline) -> "abc...z" and the end.
"""
import json
import pathlib
import struct

import numpy as np

BOS, IM_START, IM_END = 256, 257, 258
VOCAB_SIZE = 260
HIDDEN = 64
EMOJI = "\N{GRINNING FACE}".encode()  # "!" is followed by its four bytes, then by "!"

CHAT_TEMPLATE = ("{% if tools %}<|im_start|>tools\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
                 "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
                 "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def write_safetensors(path: pathlib.Path, tensors: dict[str, np.ndarray]) -> None:
    kinds = {np.dtype(np.float32): "F32", np.dtype(np.int64): "I64"}
    header, offset = {}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": kinds[tensor.dtype], "shape": tensor.shape,
                        "data_offsets": [offset, offset + tensor.nbytes]}
        offset += tensor.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor).tobytes())


def read_safetensors(path: pathlib.Path) -> dict[str, np.ndarray]:
    data = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    kinds = {"F32": np.float32, "I64": np.int64}
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            tensors[name] = np.frombuffer(data[8 + size + begin:8 + size + end],
                                          kinds[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def llama_config(**changes) -> dict:
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN,
              "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
              "vocab_size": VOCAB_SIZE, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "tie_word_embeddings": False, "torch_dtype": "float32", "bos_token_id": BOS, "eos_token_id": IM_END}
    return {**config, **changes}


def byte_spelling() -> list[str]:
    """GPT-2's printable stand-in for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]


def write_tokenizer(folder: pathlib.Path, pieces: tuple[str, ...] = (), chat_template: str = CHAT_TEMPLATE) -> None:
    """Byte-level BPE without merges: token i is byte i; then <s>, <|im_start|>, <|im_end|>; from VOCAB_SIZE on
    `pieces`, which no text is encoded to."""
    spelling = byte_spelling()
    vocab = {text: byte for byte, text in enumerate(spelling)}
    for i, piece in enumerate(pieces):
        vocab["".join(spelling[byte] for byte in piece.encode())] = VOCAB_SIZE + i
    assert len(vocab) == 256 + len(pieces), "pieces are longer than a byte, and no two are equal"
    special = {"<s>": BOS, "<|im_start|>": IM_START, "<|im_end|>": IM_END}
    vocab |= special  # without that their ids are those after the vocabulary
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": token, "content": text, **flags} for text, token in special.items()],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": vocab, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "bos_token": "<s>", "eos_token": "<|im_end|>", "add_bos_token": False, "chat_template": chat_template,
        "tokenizer_class": "PreTrainedTokenizerFast"}), encoding="utf-8")


def add_bos(folder: pathlib.Path) -> None:
    """Makes the tokenizer put <s> before every text."""
    path = folder / "tokenizer_config.json"
    path.write_text(path.read_text().replace('"add_bos_token": false', '"add_bos_token": true'))


def random_layers(rng: np.random.Generator, config: dict) -> dict[str, np.ndarray]:
    """Weights of the layers by their names in a checkpoint."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head_dim = hidden // config["num_attention_heads"]
    kv = config["num_key_value_heads"] * head_dim
    shapes = {"self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (kv, hidden), "self_attn.v_proj": (kv, hidden),
              "self_attn.o_proj": (hidden, hidden), "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden),
              "mlp.down_proj": (hidden, inner)}
    weights = {}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for name, shape in shapes.items():
            weights[f"{prefix}{name}.weight"] = rng.normal(0, 0.2, shape).astype(np.float32)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{prefix}{name}.weight"] = rng.normal(1, 0.1, hidden).astype(np.float32)
    return weights


def _followers(endless: bool) -> dict[int, int]:
    """Which token follows which; the others follow themselves."""
    follows = {ord(c): ord(c) + 1 for c in "abcdefghijklmnopqrstuvwxy"}
    follows[ord("\n")] = ord("a")
    follows[ord("z")] = ord("a") if endless else IM_END
    follows[IM_END] = IM_END
    chain = [ord("!"), *EMOJI]
    follows.update(zip(chain, [*chain[1:], chain[0]], strict=True))
    return follows


def write_alphabet_model(folder: pathlib.Path, endless: bool = False, scale: float = 1,
                         **config_changes) -> pathlib.Path:
    """With a `scale` of 4 draws take what the greedy ones do."""
    write_tokenizer(folder)
    return _write_chain(folder, _followers(endless), llama_config(**config_changes), scale)


def write_script_model(folder: pathlib.Path, pieces: list[str], chat_template: str = CHAT_TEMPLATE) -> pathlib.Path:
    """A model that answers every chat with `pieces`, each of them one token. They differ from one another."""
    write_tokenizer(folder, tuple(pieces), chat_template)
    script = [ord("\n"), *range(VOCAB_SIZE, VOCAB_SIZE + len(pieces)), IM_END]
    follows = dict(zip(script, script[1:], strict=False))
    return _write_chain(folder, follows, llama_config(vocab_size=VOCAB_SIZE + len(pieces)))


def _write_chain(folder: pathlib.Path, follows: dict[int, int], config: dict, scale: float = 1) -> pathlib.Path:
    """A model of which each token has its follower; its logits are in proportion to `scale`."""
    rng = np.random.default_rng(7)
    embed = rng.normal(size=(config["vocab_size"], HIDDEN)).astype(np.float32)
    embed /= np.linalg.norm(embed, axis=1, keepdims=True)
    lm_head = scale * embed
    for token in {*follows, *follows.values()}:
        lm_head[token] = 0
    for token, follower in follows.items():
        lm_head[follower] += scale * embed[token]
    weights = random_layers(rng, config)
    for name, tensor in weights.items():
        if "o_proj" in name or "down_proj" in name:
            tensor[:] = 0
    weights |= {"model.embed_tokens.weight": embed, "model.norm.weight": np.ones(HIDDEN, np.float32),
                "lm_head.weight": lm_head}
    write_safetensors(folder / "model.safetensors", weights)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def write_random_llama(folder: pathlib.Path):
    """Returns (path, weights, config)."""
    rng = np.random.default_rng(11)
    config = llama_config(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    weights = random_layers(rng, config)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = rng.normal(0, 0.5, (VOCAB_SIZE, HIDDEN)).astype(np.float32)
    weights["model.norm.weight"] = rng.normal(1, 0.1, HIDDEN).astype(np.float32)
    write_safetensors(folder / "model.safetensors", weights)
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder), weights, config


def write_reward_model(folder: pathlib.Path):
    """A random Qwen2 with a head for scores. Returns (path, weights, config)."""
    path, weights, config = write_random_llama(folder)
    rng = np.random.default_rng(12)
    del weights["lm_head.weight"]
    for name, shape in {"0.weight": (HIDDEN, HIDDEN), "0.bias": HIDDEN, "2.weight": (1, HIDDEN), "2.bias": 1}.items():
        weights[f"score.{name}"] = rng.normal(0, 0.3, shape).astype(np.float32)
    config |= {"architectures": ["Qwen2ForRewardModel"], "model_type": "qwen2", "qkv_bias": False}
    write_safetensors(folder / "model.safetensors", weights)
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder)
    return path, weights, config


def _rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def _rotate(x, theta):
    """Rotary position embedding, halves form; x is [tokens, heads, head_dim]."""
    half = x.shape[-1] // 2
    angles = np.arange(len(x))[:, None] * theta ** (-np.arange(half) / half)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def _attention(x, weights, prefix, config):
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    tokens, dim = len(x), config["hidden_size"] // heads
    q, k, v = (x @ weights[f"{prefix}self_attn.{name}_proj.weight"].T for name in "qkv")
    q = _rotate(q.reshape(tokens, heads, dim), config["rope_theta"])
    k = _rotate(k.reshape(tokens, kv_heads, dim), config["rope_theta"]).repeat(heads // kv_heads, 1)
    v = v.reshape(tokens, kv_heads, dim).repeat(heads // kv_heads, 1)
    scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(dim)
    scores += np.triu(np.full((tokens, tokens), -np.inf), 1)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = np.einsum("hqk,khd->qhd", scores / scores.sum(-1, keepdims=True), v)
    return mixed.reshape(tokens, -1) @ weights[f"{prefix}self_attn.o_proj.weight"].T


def reference_hidden_states(ids, weights, config) -> np.ndarray:
    """[tokens, hidden_size]: the final norm's output of a Llama, in float64."""
    weights = {name: tensor.astype(np.float64) for name, tensor in weights.items()}
    eps = config["rms_norm_eps"]
    x = weights["model.embed_tokens.weight"][np.asarray(ids)]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        x = x + _attention(_rms_norm(x, weights[f"{prefix}input_layernorm.weight"], eps), weights, prefix, config)
        normed = _rms_norm(x, weights[f"{prefix}post_attention_layernorm.weight"], eps)
        gate = normed @ weights[f"{prefix}mlp.gate_proj.weight"].T
        up = normed @ weights[f"{prefix}mlp.up_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ weights[f"{prefix}mlp.down_proj.weight"].T
    return _rms_norm(x, weights["model.norm.weight"], eps)


def reference_logits(ids, weights, config) -> np.ndarray:
    """[tokens, vocab_size] of a Llama, in float64."""
    return reference_hidden_states(ids, weights, config) @ weights["lm_head.weight"].astype(np.float64).T


def reference_reward(ids, weights, config) -> float:
    """What the model of write_reward_model() says after the last id."""
    x = reference_hidden_states(ids, weights, config)[-1]
    x = np.maximum(x @ weights["score.0.weight"].T + weights["score.0.bias"], 0)
    return float((x @ weights["score.2.weight"].T + weights["score.2.bias"])[0])


def mean_nll(logits, ids) -> float:
    """Mean negative log-likelihood of ids[1:] in nats."""
    shifted = logits[:-1] - logits[:-1].max(-1, keepdims=True)
    log_probs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return float(-log_probs[np.arange(len(ids) - 1), np.asarray(ids)[1:]].mean())
