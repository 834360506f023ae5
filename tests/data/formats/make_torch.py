#!/usr/bin/env python3
"""Writes torch_*.bin here and the fuzz seeds in fuzz/seeds/torch_file. Needs numpy, not torch.

    .venv/bin/python tests/data/formats/make_torch.py

Tensor contents are raw bytes from pattern(); golden_tensor() in formats/test_support.h makes the same.
"""
import pathlib
import pickle
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "tests" / "python"))

import torch_files as tf  # noqa: E402

# name, dtype, bytes of an element, shape
PLAIN = [("a.f32", "float32", 4, (2, 3)), ("b.bf16", "bfloat16", 2, (3, 5)), ("c.f16", "float16", 2, (7,)),
         ("d.i64", "int64", 8, (3,)), ("e.u8", "uint8", 1, (2, 3, 2, 1)), ("f.bool", "bool", 1, (5,)),
         ("g.f64", "float64", 8, (2,)), ("h.i32", "int32", 4, (3,)), ("i.i16", "int16", 2, (3,)),
         ("j.i8", "int8", 1, (3,)), ("k.scalar", "float32", 4, ()), ("l.empty", "float32", 4, (0, 4))]


def pattern(num_bytes: int, tensor: int) -> bytes:
    return bytes((31 * i + 17 * tensor + 7) % 251 for i in range(num_bytes))


def plain() -> dict:
    tensors = {}
    for number, (name, kind, size, shape) in enumerate(PLAIN):
        count = 1
        for dim in shape:
            count *= dim
        tensors[name] = tf.Tensor(tf.Storage(pattern(count * size, number), kind), shape)
    return tensors


def views() -> dict:
    """Of one storage of 24 floats: tied, an offset, a transposed matrix, every second column, a parameter."""
    storage = tf.Storage(pattern(96, 3), "float32")
    return {"whole": tf.Tensor(storage, (4, 6)), "tied": tf.Tensor(storage, (4, 6)),
            "rows": tf.Tensor(storage, (2, 6), offset=6), "transposed": tf.Tensor(storage, (6, 4), (1, 6)),
            "columns": tf.Tensor(storage, (4, 3), (6, 2), 1),
            "parameter": tf.Parameter(tf.Tensor(storage, (24,))),
            "v1": tf.Tensor(storage, (24,), rebuild="_rebuild_tensor"),
            "fp8": tf.Tensor(tf.Storage(pattern(6, 4), "bytes"), (2, 3), rebuild="_rebuild_tensor_v3",
                             dtype="float8_e4m3fn"),
            "step": 1000, "rate": 0.5, "names": ["a", ("b", None, True)]}


class Call:
    """Asks the reader to call something."""

    def __init__(self, module: str, name: str, *arguments):
        self.callee, self.arguments = tf.name(module, name), arguments

    def __reduce__(self):
        return self.callee, self.arguments


def main() -> None:
    files = {"torch_zip.bin": tf.zip_form(tf.state_dict(plain())),
             "torch_zip64.bin": tf.zip_form(plain(), protocol=4, zip64=True),
             "torch_legacy.bin": tf.legacy_form(tf.state_dict(plain())),
             "torch_views.bin": tf.zip_form(views()),
             "torch_views_legacy.bin": tf.legacy_form({k: v for k, v in views().items() if k != "fp8"})}
    for name, data in files.items():
        (HERE / name).write_bytes(data)
    seeds = ROOT / "fuzz" / "seeds" / "torch_file"
    seeds.mkdir(parents=True, exist_ok=True)
    small = {"w": tf.tensor_of_bytes(pattern(24, 0), "float32", (2, 3))}
    files = {"zip.bin": tf.zip_form(tf.state_dict(small), align=1), "legacy.bin": tf.legacy_form(small),
             "zip64.bin": tf.zip_form(small, 4, zip64=True, align=1), "views.bin": tf.zip_form(views(), align=1),
             "system.bin": tf.zip_form({"w": Call("os", "nothing_at_all", "id")}, align=1),
             "pickle.bin": pickle.dumps({"w": [1, (2, b"x")]})}
    for name, data in files.items():
        (seeds / name).write_bytes(data)


if __name__ == "__main__":
    main()
