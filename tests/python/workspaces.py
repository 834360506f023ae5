"""Writes converted workspaces from their description alone: G2 (config.ini) and G3 (config.yaml)."""
import pathlib

import numpy as np


def bits(values: np.ndarray, dtype: str) -> np.ndarray:
    """16-bit patterns: float16, or the upper half of float32 (the values must be bfloat16 already)."""
    values = np.ascontiguousarray(values, np.float32)
    if dtype == "bf16":
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(np.float16).view(np.uint16)


def to_bf16(values: np.ndarray) -> np.ndarray:
    """Cut to bfloat16, as float32."""
    return (np.ascontiguousarray(values, np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


def interleaved(rows: np.ndarray, head_dim: int) -> np.ndarray:
    """Rows of whole heads: new row 2j + h is old row h * d/2 + j."""
    heads = rows.reshape(-1, 2, head_dim // 2, *rows.shape[1:])
    return heads.swapaxes(1, 2).reshape(rows.shape)


class Writer:
    """Files of one folder of weights."""

    def __init__(self, folder: pathlib.Path, dtype: str, tp: int):
        self.folder, self.dtype, self.tp = folder, dtype, tp
        folder.mkdir(parents=True)

    def file(self, name: str, values: np.ndarray) -> None:
        (self.folder / name).write_bytes(bits(values, self.dtype).tobytes())

    def split(self, name: str, kind: str, values: np.ndarray, axis: int) -> None:
        for rank, part in enumerate(np.split(values, self.tp, axis)):
            self.file(f"{name}.{rank}.{kind}", part)

    def qkv(self, name: str, kind: str, parts: list[np.ndarray]) -> None:
        """Along the last axis: each rank its q heads, then its k heads, then its v heads."""
        shares = [np.split(part, self.tp, -1) for part in parts]
        for rank in range(self.tp):
            self.file(f"{name}.{rank}.{kind}", np.concatenate([share[rank] for share in shares], -1))


def padded(rows: np.ndarray, tp: int) -> np.ndarray:
    return np.concatenate([rows, np.zeros((-len(rows) % tp, rows.shape[1]), rows.dtype)])


def _write_attention(writer: Writer, weights: dict, prefix: str, name: str, head_dim: int) -> None:
    def rows(kind: str, projection: str) -> np.ndarray:
        values = weights[f"{prefix}self_attn.{projection}_proj.{kind}"]
        return interleaved(values, head_dim) if projection in "qk" else values

    writer.qkv(f"{name}.attention.w_qkv", "weight", [rows("weight", p).T for p in "qkv"])
    writer.split(f"{name}.attention.wo", "weight", weights[f"{prefix}self_attn.o_proj.weight"].T, 0)
    if f"{prefix}self_attn.q_proj.bias" in weights:
        writer.qkv(f"{name}.attention.w_qkv", "bias", [rows("bias", p) for p in "qkv"])
        hidden = len(weights[f"{prefix}self_attn.o_proj.weight"])
        bias = weights.get(f"{prefix}self_attn.o_proj.bias", np.zeros(hidden, np.float32))
        for rank in range(writer.tp):
            writer.file(f"{name}.attention.wo.{rank}.bias", bias)


def write_mlp(writer: Writer, weights: dict, prefix: str, name: str) -> None:
    for ours, theirs, axis in (("w1", "gate", 1), ("w3", "up", 1), ("w2", "down", 0)):
        writer.split(f"{name}.{ours}", "weight", weights[f"{prefix}{theirs}_proj.weight"].T, axis)


def _write_layers(writer: Writer, weights: dict, config: dict) -> None:
    head_dim = config["hidden_size"] // config["num_attention_heads"]
    for layer in range(config["num_hidden_layers"]):
        prefix, name = f"model.layers.{layer}.", f"layers.{layer}"
        writer.file(f"{name}.attention_norm.weight", weights[f"{prefix}input_layernorm.weight"])
        writer.file(f"{name}.ffn_norm.weight", weights[f"{prefix}post_attention_layernorm.weight"])
        _write_attention(writer, weights, prefix, name, head_dim)
        write_mlp(writer, weights, f"{prefix}mlp.", f"{name}.feed_forward")
    writer.file("norm.weight", weights["model.norm.weight"])


def g2_keys(config: dict, **changes) -> dict:
    heads = config["num_attention_heads"]
    keys = {"model_name": "llama2", "tensor_para_size": 1, "head_num": heads,
            "kv_head_num": config["num_key_value_heads"], "vocab_size": config["vocab_size"],
            "num_layer": config["num_hidden_layers"], "inter_size": config["intermediate_size"],
            "norm_eps": config["rms_norm_eps"], "attn_bias": 0, "start_id": 1, "end_id": 2, "session_len": 520,
            "weight_type": "fp16", "rotary_embedding": config["hidden_size"] // heads,
            "rope_theta": config["rope_theta"], "size_per_head": config["hidden_size"] // heads, "group_size": 0,
            "max_batch_size": 64, "max_context_token_num": 1, "step_length": 1, "cache_max_entry_count": 0.5,
            "cache_block_seq_len": 128, "cache_chunk_size": 1, "use_context_fmha": 1, "quant_policy": 0,
            "max_position_embeddings": 512, "rope_scaling_factor": 0.0, "use_logn_attn": 0}
    return {**keys, **changes}


def write_ini(root: pathlib.Path, keys: dict) -> None:
    lines = [f"{key} = {value}" for key, value in keys.items() if value is not None]
    (root / "triton_models" / "weights" / "config.ini").write_text("\n".join(["[llama]", *lines, "", ""]))


def write_g2(root: pathlib.Path, weights: dict, config: dict, tp: int = 1, dtype: str = "fp16",
             **changes) -> pathlib.Path:
    """``changes`` replace keys of config.ini; None leaves one out."""
    writer = Writer(root / "triton_models" / "weights", dtype, tp)
    writer.file("tok_embeddings.weight", padded(weights["model.embed_tokens.weight"], tp))
    writer.file("output.weight", padded(weights["lm_head.weight"], tp))
    _write_layers(writer, weights, config)
    (root / "triton_models" / "tokenizer").mkdir()
    biased = any(name.endswith("q_proj.bias") for name in weights)
    write_ini(root, g2_keys(config, tensor_para_size=tp, weight_type=dtype, attn_bias=int(biased)) | changes)
    return root


# What yaml.safe_dump writes of such a dict.
def _yaml(value, indent: int = 0) -> str:
    blanks = "  " * indent
    lines = []
    for key, item in value.items():
        if isinstance(item, dict):
            lines += [f"{blanks}{key}:", _yaml(item, indent + 1)]
        elif isinstance(item, list):
            lines += [f"{blanks}{key}:", *[f"{blanks}- {entry}" for entry in item]]
        else:
            text = "null" if item is None else "''" if item == "" else str(item).lower() if isinstance(item, bool) else item
            lines.append(f"{blanks}{key}: {text}")
    return "\n".join(lines)


def g3_config(config: dict, tp: int, **model) -> dict:
    heads, layers = config["num_attention_heads"], config["num_hidden_layers"]
    keys = {"model_name": "", "chat_template": "", "model_arch": "LlamaForCausalLM", "head_num": heads,
            "kv_head_num": config["num_key_value_heads"], "hidden_units": config["hidden_size"],
            "vocab_size": config["vocab_size"], "embedding_size": config["vocab_size"], "num_layer": layers,
            "inter_size": [config["intermediate_size"]] * layers, "norm_eps": config["rms_norm_eps"], "attn_bias": 0,
            "start_id": 1, "end_id": 2, "size_per_head": config["hidden_size"] // heads, "group_size": 64,
            "data_type": "float16", "weight_type": "float16", "session_len": 512, "attn_tp_size": tp,
            "mlp_tp_size": tp, "model_format": "hf", "expert_num": [], "expert_inter_size": 0, "experts_per_token": 0,
            "moe_shared_gate": False, "norm_topk_prob": False, "routed_scale": 1.0, "topk_group": 1,
            "topk_method": "greedy", "moe_group_num": 1, "q_lora_rank": 0, "kv_lora_rank": 0, "qk_rope_dim": 0,
            "v_head_dim": 0, "tune_layer_num": 1}
    attention = {"rotary_embedding": config["hidden_size"] // heads, "rope_theta": config["rope_theta"],
                 "softmax_scale": 0.0, "attention_factor": -1.0, "beta_fast": 32.0, "beta_slow": 1.0,
                 "low_freq_factor": 1.0, "high_freq_factor": 1.0, "max_position_embeddings": 512,
                 "original_max_position_embeddings": 0, "rope_scaling_type": "", "rope_scaling_factor": 0.0,
                 "use_dynamic_ntk": 0, "use_logn_attn": 0, "cache_block_seq_len": 64}
    lora = {"lora_policy": "", "lora_r": 0, "lora_scale": 0.0, "lora_max_wo_r": 0, "lora_rank_pattern": "",
            "lora_scale_pattern": ""}
    return {"model_config": keys | model, "attention_config": attention, "lora_config": lora}


def write_yaml(root: pathlib.Path, config: dict) -> None:
    (root / "triton_models" / "weights" / "config.yaml").write_text(_yaml(config) + "\n")


def write_g3_ends(writer: Writer, weights: dict) -> None:
    writer.split("tok_embeddings", "weight", padded(weights["model.embed_tokens.weight"], writer.tp), 1)
    writer.split("output", "weight", padded(weights["lm_head.weight"], writer.tp), 0)


def write_g3(root: pathlib.Path, weights: dict, config: dict, tp: int = 1, dtype: str = "fp16",
             **model) -> pathlib.Path:
    writer = Writer(root / "triton_models" / "weights", dtype, tp)
    write_g3_ends(writer, weights)
    _write_layers(writer, weights, config)
    (root / "triton_models" / "tokenizer").mkdir()
    name = "bfloat16" if dtype == "bf16" else "float16"
    write_yaml(root, g3_config(config, tp, data_type=name, weight_type=name, **model))
    return root


def write_experts(writer: Writer, experts: list[dict], gate: np.ndarray, name: str) -> None:
    """``experts``: weights gate_proj, up_proj, down_proj of each; ``gate``: [experts, hidden]."""
    writer.file(f"{name}.gate.weight", gate.T)
    for number, weights in enumerate(experts):
        write_mlp(writer, weights, "", f"{name}.experts.{number}")


def quantize(writer: Writer, name: str, matrix: np.ndarray, axis: int, group: int) -> np.ndarray:
    """Writes [in, out] with 4 bits, split along ``axis``; returns what the files hold."""
    rows, cols = matrix.shape
    grouped = matrix.reshape(rows // group, group, cols)
    low, high = grouped.min(1), grouped.max(1)
    scales = np.maximum((high - low) / 15, 1e-3).astype(np.float16)
    zeros = np.clip(np.round(-low / scales.astype(np.float32)), 0, 15).astype(np.float16)
    wide = [array.astype(np.float32)[:, None] for array in (scales, zeros)]
    nibbles = np.clip(np.round(grouped / wide[0]) + wide[1], 0, 15)
    held = ((nibbles - wide[1]) * wide[0]).reshape(rows, cols)
    nibbles = nibbles.reshape(rows, cols).astype(np.uint32)
    for rank in range(writer.tp):
        part = np.split(nibbles, writer.tp, axis)[rank]
        words = sum(part[:, place::8] << np.uint32(4 * place) for place in range(8)).astype(np.uint32)
        (writer.folder / f"{name}.{rank}.qweight").write_bytes(np.ascontiguousarray(words).tobytes())
        for kind, values in (("scales", scales), ("zeros", zeros)):
            part = np.ascontiguousarray(np.split(values, writer.tp, axis)[rank])
            (writer.folder / f"{name}.{rank}.{kind}").write_bytes(part.tobytes())
    return held
