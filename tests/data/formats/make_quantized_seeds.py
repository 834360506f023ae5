#!/usr/bin/env python3
"""Writes fuzz/seeds/quantized: one tiny linear in each packed form. Needs numpy.

    .venv/bin/python tests/data/formats/make_quantized_seeds.py
"""
import json
import pathlib
import struct
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "python"))

import quantizers as qz  # noqa: E402

SEEDS = ROOT / "fuzz" / "seeds" / "quantized"


def write(name: str, tensors: dict, quantization: dict | None = None) -> None:
    path = SEEDS / f"{name}.safetensors"
    qz.write_safetensors(path, tensors)
    if quantization is None:
        return
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    config = json.dumps({"quantization_config": quantization})
    header = {"__metadata__": {"config": config}, **json.loads(data[8:8 + size])}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size:])


def main() -> None:
    SEEDS.mkdir(parents=True, exist_ok=True)
    weight = np.random.default_rng(1).normal(size=(8, 32)).astype(np.float32)
    write("awq", qz.pack_awq("m", weight)[0], {"quant_method": "awq", "bits": 4, "group_size": 16})
    write("awq_unnamed", qz.pack_awq("m", weight)[0])
    write("gptq", qz.pack_gptq("m", weight, act_order=True)[0],
          {"quant_method": "gptq", "bits": 4, "group_size": 16, "checkpoint_format": "gptq"})
    write("gptq3", qz.pack_gptq("m", np.tile(weight, (4, 1)), bits=3)[0],
          {"quant_method": "gptq", "bits": 3, "group_size": 16})
    groups = {"group_0": {"weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 16}}}
    write("compressed", qz.pack_compressed("m", weight, symmetric=False)[0],
          {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": groups})
    write("fp8", qz.pack_fp8("m", weight, (4, 16), suffix="weight_scale_inv")[0],
          {"quant_method": "fp8", "weight_block_size": [4, 16]})
    write("int8", qz.pack_int8("m", weight)[0])
    rng = np.random.default_rng(2)
    write("mxfp4", {"m_blocks": rng.integers(0, 256, (2, 2, 1, 16), np.uint8),
                    "m_scales": rng.integers(100, 140, (2, 2, 1), np.uint8)})


if __name__ == "__main__":
    main()
