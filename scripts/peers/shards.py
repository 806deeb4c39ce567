"""What each rank is to end with, and how to make it of what a library delivers."""

import dataclasses

import torch

from lib.measure import placement

DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclasses.dataclass(frozen=True)
class Piece:
    """Of a stored tensor, along the axis: elements [begin, begin + length) go to `at` of the shard."""

    begin: int
    length: int
    at: int


@dataclasses.dataclass(frozen=True)
class Shard:
    name: str
    file: str
    dtype: torch.dtype
    stored_dtype: torch.dtype
    stored_shape: tuple
    shape: tuple
    axis: int | None  # None: the whole stored tensor
    pieces: tuple

    @property
    def is_stored(self):
        """It is the stored tensor, bit for bit."""
        return self.axis is None and self.dtype == self.stored_dtype

    @property
    def is_padded(self):
        return self.axis is not None and sum(piece.length for piece in self.pieces) < self.shape[self.axis]


def placed(name, entry):
    types = {key: DTYPES[entry[key]] for key in ("dtype", "stored_dtype")}
    shapes = {key: tuple(entry[key]) for key in ("shape", "stored_shape")}
    return Shard(name, **entry | types | shapes | {"pieces": tuple(Piece(*piece) for piece in entry["pieces"])})


def placement_of(ranks):
    """For each rank its shards by name, in the order of the files."""
    return [{name: placed(name, entry) for name, entry in rank.items()} for rank in ranks]


def by_file(shards):
    files = {}
    for shard in shards.values():
        files.setdefault(shard.file, []).append(shard)
    return files


def filled(shard, device, take):
    """New memory for the shard, filled with `take(piece)` of the stored tensor."""
    make = torch.zeros if shard.is_padded else torch.empty
    tensor = make(shard.shape, dtype=shard.dtype, device=device)
    for piece in shard.pieces:
        tensor.narrow(shard.axis, piece.at, piece.length).copy_(take(piece))
    return tensor


def kept(shard, tensor, owned):
    """The shard of a whole stored tensor; the tensor itself where that is the same, and `owned`: not a view of memory
    that is used again, or is that of a file."""
    if shard.is_stored and owned:
        return tensor
    if shard.axis is None:
        return torch.empty(shard.shape, dtype=shard.dtype, device=tensor.device).copy_(tensor)
    return filled(shard, tensor.device, lambda piece: tensor.narrow(shard.axis, piece.begin, piece.length))


def kept_of(tensors, shards, owned):
    """The shards by name, of an iterator of names and whole stored tensors."""
    return {name: kept(shards[name], tensor, owned) for name, tensor in tensors if name in shards}


def digest(tensor):
    stored = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return placement.digest(NAMES[tensor.dtype], tensor.shape, stored.numpy())
