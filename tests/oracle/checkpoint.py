"""Checkpoints: written by hand (any layout that the format allows) or by the reference library (the
one layout that it writes), read by the reference library only."""

import json
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import safetensors

# Bits per element of every type of the format.
BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip

# What the reference library's writer calls them; it cannot write the F6 types.
REFERENCE_NAMES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32",
    "I32": "int32", "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16",
    "F32": "float32", "F64": "float64", "C64": "complex64", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz", "F4": "float4_e2m1fn_x2",
}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    dtype: str
    shape: tuple
    data: bytes


def byte_count(dtype, shape):
    bits = prod(shape) * BITS[dtype]
    assert bits % 8 == 0, f"{dtype} {shape} does not fill whole bytes"
    return bits // 8


def random_tensor(rng, dtype, shape):
    """Random bits, so all floating-point classes occur; BOOL has two values only."""
    data = rng.integers(0, 256, byte_count(dtype, shape), dtype=np.uint8)
    if dtype == "BOOL":
        data &= 1
    return Tensor(dtype, tuple(shape), data.tobytes())


def header_of(tensors, metadata):
    entries = {"__metadata__": metadata} if metadata is not None else {}
    offset = 0
    for name, tensor in tensors.items():
        end = offset + len(tensor.data)
        entries[name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    return json.dumps(entries, separators=(",", ":")).encode()


def write_by_hand(path, tensors, modulus=1, remainder=0):
    """Data in the order of `tensors`, header length ≡ remainder (mod modulus), by way of a metadata
    string and without a single space of padding."""
    bare = len(header_of(tensors, {"fill": ""}))
    header = header_of(tensors, {"fill": "x" * ((remainder - bare) % modulus)})
    assert len(header) % modulus == remainder
    data = b"".join(tensor.data for tensor in tensors.values())
    Path(path).write_bytes(struct.pack("<Q", len(header)) + header + data)


def write_by_reference(path, tensors, metadata=None):
    buffers = {name: np.frombuffer(t.data or b"\0", np.uint8) for name, t in tensors.items()}
    specs = {
        name: safetensors.TensorSpec(
            dtype=REFERENCE_NAMES[t.dtype],
            shape=storage_shape(t),
            data_ptr=buffers[name].ctypes.data,
            data_len=len(t.data),
        )
        for name, t in tensors.items()
    }
    safetensors.serialize_file(specs, path, metadata={"format": "pt", **(metadata or {})})


def storage_shape(tensor):
    """The reference library's writer counts pairs of F4 elements."""
    if tensor.dtype != "F4":
        return list(tensor.shape)
    return [*tensor.shape[:-1], tensor.shape[-1] // 2]


def header_bytes(path):
    with open(path, "rb") as file:
        return struct.unpack("<Q", file.read(8))[0]


def read(path):
    """Every tensor of a file, as the reference library sees it."""
    return {
        name: Tensor(view["dtype"], tuple(view["shape"]), bytes(view["data"]))
        for name, view in safetensors.deserialize(Path(path).read_bytes())
    }


def write_index(directory, files, config='{"model_type": "oracle"}'):
    """The index and a config.json. `files`: {file name: {tensor name: Tensor}}."""
    weights = {name: file for file, tensors in files.items() for name in tensors}
    size = sum(len(t.data) for tensors in files.values() for t in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": weights}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    (directory / "config.json").write_text(config, encoding="utf-8")
