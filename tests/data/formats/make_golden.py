#!/usr/bin/env python3
"""Writes the files here, and the fuzz seeds made from them, with the reference packages of both formats.

    pip install gguf==0.19.0 safetensors==0.8.0 numpy
    python3 tests/data/formats/make_golden.py

Tensor contents are raw bytes from pattern(); golden_tensor() in formats/test_support.h makes the same.
"""
import pathlib
import shutil

import gguf
import numpy as np
import safetensors

HERE = pathlib.Path(__file__).resolve().parent
SEEDS = HERE.parents[2] / "fuzz" / "seeds"

# name, dtype, bytes of an element, shape
SAFETENSORS = [
    ("a.f32", "float32", 4, [2, 3]),
    ("b.bf16", "bfloat16", 2, [3, 5]),
    ("c.f16", "float16", 2, [7]),
    ("d.i64", "int64", 8, [3]),
    ("e.u8", "uint8", 1, [2, 3, 2, 1]),
    ("f.bool", "bool", 1, [5]),
    ("g.f64", "float64", 8, [2]),
    ("h.i32", "int32", 4, [3]),
    ("i.i16", "int16", 2, [3]),
    ("j.i8", "int8", 1, [3]),
    ("k.scalar", "float32", 4, []),
    ("l.empty", "float32", 4, [0, 4]),
]

# name, kind, shape (outermost first); blocks hold 32 elements, the _K kinds 256
GGUF = [
    ("token_embd.weight", "F32", [4, 32]),
    ("blk.0.attn_q.weight", "Q4_0", [2, 64]),
    ("blk.0.attn_k.weight", "Q4_1", [3, 32]),
    ("blk.0.attn_v.weight", "Q5_0", [1, 32]),
    ("blk.0.attn_output.weight", "Q5_1", [2, 32]),
    ("blk.0.ffn_gate.weight", "Q8_0", [3, 64]),
    ("blk.0.ffn_up.weight", "Q4_K", [2, 256]),
    ("blk.0.ffn_down.weight", "Q5_K", [1, 512]),
    ("blk.0.ffn_norm.weight", "Q6_K", [1, 256]),
    ("output.weight", "BF16", [5, 3]),
    ("output_norm.weight", "F16", [32]),
    ("own.f64", "F64", [2]),
    ("own.i64", "I64", [2, 1, 2, 1]),
    ("own.i32", "I32", [3]),
    ("own.i16", "I16", [3]),
    ("own.i8", "I8", [3]),
]


def pattern(num_bytes: int, tensor: int) -> bytes:
    return bytes((31 * i + 17 * tensor + 7) % 251 for i in range(num_bytes))


def write_safetensors(path: pathlib.Path) -> None:
    specs, buffers = {}, []  # a spec holds only the address of its buffer
    for number, (name, dtype, element_bytes, shape) in enumerate(SAFETENSORS):
        data = pattern(element_bytes * int(np.prod(shape, dtype=np.int64)), number)
        buffers.append(np.frombuffer(data, dtype=np.uint8))
        specs[name] = safetensors.TensorSpec(
            dtype=dtype, shape=shape, data_ptr=buffers[-1].ctypes.data, data_len=len(data)
        )
    path.write_bytes(safetensors.serialize(specs, {"format": "pt"}))


def add_metadata(writer: gguf.GGUFWriter) -> None:
    writer.add_uint8("test.u8", 200)
    writer.add_int8("test.i8", -100)
    writer.add_uint16("test.u16", 60000)
    writer.add_int16("test.i16", -30000)
    writer.add_uint32("test.u32", 4000000000)
    writer.add_int32("test.i32", -2000000000)
    writer.add_float32("test.f32", 0.5)
    writer.add_bool("test.bool", True)
    writer.add_string("test.string", "wörld")
    writer.add_uint64("test.u64", 2**63 + 1)
    writer.add_int64("test.i64", -(2**62))
    writer.add_float64("test.f64", 0.1)
    writer.add_array("test.strings", ["a", "", "bc"])
    writer.add_array("test.ints", [1, -2, 3])
    writer.add_array("test.floats", [0.5, -0.25])
    writer.add_array("test.bools", [True, False, True])


def write_gguf(path: pathlib.Path, order: gguf.GGUFEndian, kinds: list) -> None:
    writer = gguf.GGUFWriter(path, "llama", endianess=order)
    add_metadata(writer)
    for number, (name, kind, shape) in enumerate(kinds):
        dtype = gguf.GGMLQuantizationType[kind]
        block, block_bytes = gguf.GGML_QUANT_SIZES[dtype]
        row_bytes = shape[-1] // block * block_bytes
        rows = int(np.prod(shape[:-1], dtype=np.int64))
        data = np.frombuffer(pattern(rows * row_bytes, number), dtype=np.uint8).reshape(shape[:-1] + [row_bytes])
        writer.add_tensor(name, data, raw_dtype=dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_llama_seed(path: pathlib.Path) -> None:
    """A complete model description, so that mutated inputs reach its translation into a config."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(3)
    writer.add_block_count(1)
    writer.add_feed_forward_length([4])
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(2)
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(4.0)
    writer.add_eos_token_id(2)
    writer.add_token_list(["a", "b"])
    for name in ("token_embd.weight", "blk.0.attn_q.weight"):
        writer.add_tensor(name, np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    write_safetensors(HERE / "golden.safetensors")
    write_gguf(HERE / "golden.gguf", gguf.GGUFEndian.LITTLE, GGUF)
    write_gguf(HERE / "big_endian.gguf", gguf.GGUFEndian.BIG, [])
    for name in ("safetensors", "gguf"):
        (SEEDS / name).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(HERE / f"golden.{name}", SEEDS / name / f"golden.{name}")
    write_llama_seed(SEEDS / "gguf" / "llama.gguf")


if __name__ == "__main__":
    main()
