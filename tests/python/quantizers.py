"""Round-to-nearest quantisers and the packed forms of quantised checkpoints, in numpy, from the formats' descriptions.

Each ``pack_*`` takes the name of a linear and its weight [out, in] and returns (stored tensors, weight that they stand
for, f32).
"""
from __future__ import annotations

import json
import pathlib
import struct

import numpy as np

KINDS = {"float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "int8": "I8", "uint8": "U8"}
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


class Float8:
    """e4m3 codes."""

    def __init__(self, codes: np.ndarray):
        self.codes = codes


def write_safetensors(path: pathlib.Path, tensors: dict) -> None:
    header, parts, offset = {}, [], 0
    for name, tensor in tensors.items():
        array = np.ascontiguousarray(tensor.codes if isinstance(tensor, Float8) else tensor)
        kind = "F8_E4M3" if isinstance(tensor, Float8) else KINDS[array.dtype.name]
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": [offset, offset + array.nbytes]}
        parts.append(array.tobytes())
        offset += array.nbytes
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def read_bf16_safetensors(path: pathlib.Path) -> dict[str, np.ndarray]:
    """As f32, which is exact."""
    data = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        bits = np.frombuffer(data[8 + size + begin:8 + size + end], np.uint16).astype(np.uint32) << 16
        tensors[name] = bits.view(np.float32).reshape(entry["shape"])
    return tensors


def grouped(weight: np.ndarray, group: int, bits: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Asymmetric: q [out, in], zero and scale (f16) [out, groups], and what they stand for."""
    out, inputs = weight.shape
    group = inputs if group == -1 else group
    blocks = weight.reshape(out, inputs // group, group)
    top = 2**bits - 1
    low, high = blocks.min(2), blocks.max(2)
    scale = (np.maximum(high - low, 1e-4) / top).astype(np.float16)
    wide = scale.astype(np.float32)
    zero = np.clip(np.rint(-low / wide), 1, top).astype(np.int64)
    q = np.clip(np.rint(blocks / wide[..., None]) + zero[..., None], 0, top).astype(np.int64)
    dense = (q - zero[..., None]).astype(np.float32) * wide[..., None]
    return q.reshape(out, inputs), zero, scale, dense.reshape(out, inputs)


def words(bits_of_rows: np.ndarray, bits: int) -> np.ndarray:
    """The integers of each row as one stream of bits, lowest first, in 32-bit words (the last one filled up)."""
    rows, count = bits_of_rows.shape
    stream = (bits_of_rows[..., None] >> np.arange(bits) & 1).reshape(rows, count * bits)
    stream = np.pad(stream, ((0, 0), (0, -stream.shape[1] % 32))).reshape(rows, -1, 32)
    return (stream << np.arange(32)).sum(2).astype(np.uint32).view(np.int32)


def pack_awq(name: str, weight: np.ndarray, group: int = 16):
    q, zero, scale, dense = grouped(weight, group, 4)

    def packed(columns: np.ndarray) -> np.ndarray:
        ordered = columns.reshape(columns.shape[0], -1, 8)[:, :, AWQ_ORDER].reshape(columns.shape)
        return words(ordered, 4)

    return {f"{name}.qweight": packed(q.T), f"{name}.qzeros": packed(zero.T), f"{name}.scales": scale.T.copy()}, dense


def pack_gptq(name: str, weight: np.ndarray, group: int = 16, bits: int = 4, act_order: bool = False, offset: int = 1,
              bias: bool = False):
    order = np.random.default_rng(7).permutation(weight.shape[1]) if act_order else np.arange(weight.shape[1])
    q, zero, scale, dense = grouped(weight[:, order], group, bits)
    back = np.argsort(order)
    size = weight.shape[1] if group == -1 else group
    tensors = {f"{name}.qweight": words(q[:, back], bits).T.copy(), f"{name}.qzeros": words(zero.T - offset, bits),
               f"{name}.scales": scale.T.copy(), f"{name}.g_idx": (back // size).astype(np.int32)}
    if bias:
        tensors[f"{name}.bias"] = np.zeros(weight.shape[0], np.float16)
    return tensors, dense[:, back]


def pack_compressed(name: str, weight: np.ndarray, group: int = 16, bits: int = 4, symmetric: bool = True):
    q, zero, scale, dense = grouped(weight, group, bits)
    if symmetric:
        out, inputs = weight.shape
        blocks = weight.reshape(out, -1, inputs if group == -1 else group)
        scale = (np.maximum(np.abs(blocks).max(2), 1e-4) / (2**(bits - 1) - 0.5)).astype(np.float16)
        signed = np.clip(np.rint(blocks / scale.astype(np.float32)[..., None]), -2**(bits - 1), 2**(bits - 1) - 1)
        dense = (signed.astype(np.float32) * scale.astype(np.float32)[..., None]).reshape(out, inputs)
        q = (signed.reshape(out, inputs) + 2**(bits - 1)).astype(np.int64)
    tensors = {f"{name}.weight_packed": words(q, bits), f"{name}.weight_scale": scale,
               f"{name}.weight_shape": np.array(weight.shape, np.int64)}
    if not symmetric:
        tensors[f"{name}.weight_zero_point"] = words(zero.T, bits).T.copy()
    return tensors, dense


def e4m3_values() -> np.ndarray:
    codes = np.arange(256)
    exponent, mantissa = codes >> 3 & 15, codes & 7
    value = np.where(exponent == 0, mantissa * 2.0**-9, (1 + mantissa / 8) * 2.0**(exponent - 7.0))
    value = np.where(codes & 0x7f == 0x7f, np.nan, value)
    return np.where(codes & 128, -value, value).astype(np.float32)


def to_e4m3(values: np.ndarray) -> np.ndarray:
    """Codes of the nearest values."""
    table = e4m3_values()
    finite = np.flatnonzero(~np.isnan(table))
    ordered = finite[np.argsort(table[finite], kind="stable")]
    centres = table[ordered]
    at = np.clip(np.searchsorted(centres, values), 1, len(centres) - 1)
    at -= values - centres[at - 1] < centres[at] - values
    return ordered[at].astype(np.uint8)


def pack_fp8(name: str, weight: np.ndarray, block: tuple[int, int] | None = None, per_row: bool = False,
             suffix: str = "weight_scale"):
    """In blocks, with a scale per row, or with one scale."""
    out, inputs = weight.shape
    rows, columns = block or ((1, inputs) if per_row else (out, inputs))
    scale = np.empty((-(-out // rows), -(-inputs // columns)), np.float32)
    spread = np.empty_like(weight)
    for r in range(scale.shape[0]):
        for c in range(scale.shape[1]):
            part = np.s_[r * rows:(r + 1) * rows, c * columns:(c + 1) * columns]
            scale[r, c] = np.abs(weight[part]).max() / np.float32(448)
            spread[part] = scale[r, c]
    codes = to_e4m3(weight / spread)
    stored = scale if block or per_row else scale.reshape(())
    return ({f"{name}.weight": Float8(codes), f"{name}.{suffix}": stored}, e4m3_values()[codes] * spread)


def pack_int8(name: str, weight: np.ndarray, suffix: str = "scale"):
    scale = (np.abs(weight).max(1, keepdims=True) / 127).astype(np.float32)
    q = np.clip(np.rint(weight / scale), -128, 127).astype(np.int8)
    return {f"{name}.weight": q, f"{name}.{suffix}": scale}, q.astype(np.float32) * scale
