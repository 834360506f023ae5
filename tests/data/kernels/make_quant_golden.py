#!/usr/bin/env python3
"""Writes quant_golden.safetensors: random blocks of each quantised kind and what the `gguf` package makes of them.

    pip install --target /tmp/gguf gguf==0.19.0 numpy && PYTHONPATH=/tmp/gguf python3 make_quant_golden.py

Tensors: `<kind>.blocks` U8 [blocks, block bytes] and `<kind>.values` F32 [blocks, block size].
"""
import json
import pathlib
import struct

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

# kind -> byte offsets of its f16 fields, which must be finite numbers
KINDS = {
    "F16": [0], "BF16": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}


def random_blocks(rng: np.random.Generator, kind: str) -> np.ndarray:
    size, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    blocks = rng.integers(0, 256, ((24 if size == 256 else 128) * (8 if size == 1 else 1), block_bytes), np.uint8)
    for offset in KINDS[kind]:
        # Any sign, mantissa and exponent (subnormals too) but the one of infinity and NaN.
        high = blocks[:, offset + 1]
        high[(high & 0x7C) == 0x7C] &= 0xBF
    return blocks


def main() -> None:
    rng = np.random.default_rng(20240607)
    tensors: dict[str, np.ndarray] = {}
    for kind in KINDS:
        blocks = random_blocks(rng, kind)
        values = dequantize(blocks, GGMLQuantizationType[kind]) if kind != "F16" else (
            blocks.view(np.float16).astype(np.float32))
        tensors[f"{kind.lower()}.blocks"] = blocks
        tensors[f"{kind.lower()}.values"] = np.ascontiguousarray(values, np.float32)
    header, at = {}, 0
    for name, tensor in tensors.items():
        dtype = "U8" if tensor.dtype == np.uint8 else "F32"
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path = pathlib.Path(__file__).with_name("quant_golden.safetensors")
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.tobytes())


if __name__ == "__main__":
    main()
