"""Writes files as torch.save does, without torch: pickle, struct and stand-ins for the names it mentions.

Layouts: torch/serialization.py (_save, _legacy_save) and torch/_tensor.py (Tensor.__reduce_ex__) of PyTorch 2.x.
"""
from __future__ import annotations

import collections
import io
import pathlib
import pickle
import struct
import sys
import types
from typing import Any

import numpy as np

KINDS = {"float64": ("DoubleStorage", 8), "float32": ("FloatStorage", 4), "float16": ("HalfStorage", 2),
         "bfloat16": ("BFloat16Storage", 2), "int64": ("LongStorage", 8), "int32": ("IntStorage", 4),
         "int16": ("ShortStorage", 2), "int8": ("CharStorage", 1), "uint8": ("ByteStorage", 1),
         "bool": ("BoolStorage", 1)}


class Storage:
    def __init__(self, data: bytes, kind: str):
        self.data, self.kind = data, kind


class Tensor:
    """A view of a storage: offset, shape and strides in elements."""

    def __init__(self, storage: Storage, shape: tuple[int, ...], strides: tuple[int, ...] | None = None,
                 offset: int = 0, rebuild: str = "_rebuild_tensor_v2", dtype: str | None = None):
        if strides is None:
            strides = tuple(int(np.prod(shape[i + 1:], dtype=np.int64)) for i in range(len(shape)))
        self.storage, self.shape, self.strides, self.offset = storage, shape, strides, offset
        self.rebuild, self.dtype = rebuild, dtype

    def __reduce_ex__(self, protocol: int) -> Any:
        arguments = (self.storage, self.offset, self.shape, self.strides)
        if self.rebuild != "_rebuild_tensor":
            arguments += (False, collections.OrderedDict())
        if self.rebuild == "_rebuild_tensor_v3":
            arguments += (name("torch", self.dtype),)
        return name("torch._utils", self.rebuild), arguments


class Parameter:
    def __init__(self, tensor: Tensor):
        self.tensor = tensor

    def __reduce_ex__(self, protocol: int) -> Any:
        return name("torch._utils", "_rebuild_parameter"), (self.tensor, True, collections.OrderedDict())


def tensor_of(array: np.ndarray, kind: str | None = None) -> Tensor:
    """A contiguous tensor; bfloat16 is given as uint16 with kind="bfloat16"."""
    return Tensor(Storage(np.ascontiguousarray(array).tobytes(), kind or array.dtype.name), array.shape)


def tensor_of_bytes(data: bytes, kind: str, shape: tuple[int, ...]) -> Tensor:
    return Tensor(Storage(data, kind), shape)


def name(module: str, attribute: str) -> Any:
    """A stand-in that pickle writes as ``module.attribute``."""
    parts = module.split(".")
    for i in range(len(parts)):
        sys.modules.setdefault(".".join(parts[:i + 1]), types.ModuleType(".".join(parts[:i + 1])))
    where = sys.modules[module]
    if not hasattr(where, attribute):
        def stand_in(*_: Any) -> None:
            raise AssertionError("is only written")
        stand_in.__module__, stand_in.__name__, stand_in.__qualname__ = module, attribute, attribute
        setattr(where, attribute, stand_in)
    return getattr(where, attribute)


class Pickler(pickle.Pickler):
    """Numbers the storages and writes them as persistent ids."""

    def __init__(self, file: io.BytesIO, protocol: int, legacy: bool):
        super().__init__(file, protocol)
        self.storages: dict[str, Storage] = {}
        self.legacy = legacy

    def persistent_id(self, value: Any) -> Any:
        if not isinstance(value, Storage):
            return None
        keys = [key for key, storage in self.storages.items() if storage is value]
        key = keys[0] if keys else str(len(self.storages))
        self.storages[key] = value
        if value.kind == "bytes":
            kind, size = name("torch.storage", "UntypedStorage"), 1
        else:
            kind, size = name("torch", KINDS[value.kind][0]), KINDS[value.kind][1]
        tail = (None,) if self.legacy else ()
        return ("storage", kind, key, "cpu", len(value.data) // size, *tail)


def state_dict(tensors: dict[str, Any]) -> collections.OrderedDict:
    """As Module.state_dict() gives it, with its attribute."""
    state = collections.OrderedDict(tensors)
    state._metadata = collections.OrderedDict({"": {"version": 1}})
    return state


def pickled(value: Any, protocol: int = 2, legacy: bool = False) -> tuple[bytes, dict[str, Storage]]:
    stream = io.BytesIO()
    pickler = Pickler(stream, protocol, legacy)
    pickler.dump(value)
    return stream.getvalue(), pickler.storages


def zip_bytes(entries: dict[str, bytes], zip64: bool = False, method: int = 0, align: int = 64) -> bytes:
    """A zip archive of stored entries whose contents are aligned by an extra field, as torch's writer does."""
    out, directory = bytearray(), bytearray()
    for path, data in entries.items():
        spelled, offset = path.encode(), len(out)
        pad = -(offset + 30 + len(spelled) + 4) % align
        size = 0xffffffff if zip64 else len(data)
        local = struct.pack("<HH", 0x4246, pad) + b"Z" * pad
        out += struct.pack("<IHHHHHIIIHH", 0x04034b50, 45, 0, method, 0, 0, 0, size, size, len(spelled), len(local))
        out += spelled + local + data
        extra = struct.pack("<HHQQQ", 1, 24, len(data), len(data), offset) if zip64 else b""
        directory += struct.pack("<IHHHHHHIIIHHHHHII", 0x02014b50, 45, 45, 0, method, 0, 0, 0, size, size, len(spelled),
                                 len(extra), 0, 0, 0, 0, 0xffffffff if zip64 else offset) + spelled + extra
    start = len(out)
    out += directory
    count = len(entries)
    if zip64:
        end = len(out)
        out += struct.pack("<IQHHIIQQQQ", 0x06064b50, 44, 45, 45, 0, 0, count, count, len(directory), start)
        out += struct.pack("<IIQI", 0x07064b50, 0, end, 1)
        out += struct.pack("<IHHHHIIH", 0x06054b50, 0, 0, 0xffff, 0xffff, 0xffffffff, 0xffffffff, 0)
    else:
        out += struct.pack("<IHHHHIIH", 0x06054b50, 0, 0, count, count, len(directory), start, 0)
    return bytes(out)


def zip_form(value: Any, protocol: int = 2, **options: Any) -> bytes:
    data, storages = pickled(value, protocol)
    entries = {"archive/data.pkl": data, "archive/byteorder": b"little"}
    entries.update({f"archive/data/{key}": storage.data for key, storage in storages.items()})
    entries["archive/version"] = b"3\n"
    return zip_bytes(entries, **options)


def legacy_form(value: Any) -> bytes:
    out = pickle.dumps(0x1950a86a20f9469cfc6c, 2) + pickle.dumps(1001, 2)
    out += pickle.dumps({"protocol_version": 1001, "little_endian": True,
                         "type_sizes": {"short": 2, "int": 4, "long": 4}}, 2)
    data, storages = pickled(value, legacy=True)
    out += data + pickle.dumps(sorted(storages), 2)
    for key in sorted(storages):
        storage = storages[key]
        size = 1 if storage.kind == "bytes" else KINDS[storage.kind][1]
        out += struct.pack("<q", len(storage.data) // size) + storage.data
    return out


def save(path: pathlib.Path, arrays: dict[str, np.ndarray], legacy: bool = False) -> None:
    """The file that torch.save(state_dict) writes; uint16 arrays hold bfloat16."""
    tensors = {key: tensor_of(array, "bfloat16" if array.dtype == np.uint16 else None)
               for key, array in arrays.items()}
    pathlib.Path(path).write_bytes((legacy_form if legacy else zip_form)(state_dict(tensors)))
