"""What a rank must hold, worked out a second time: which bytes it keeps and how they are converted."""

from dataclasses import dataclass
from math import prod
from typing import Optional

import ml_dtypes
import numpy as np

from checkpoint import BITS, Tensor, byte_count

FLOATS = {"F16": np.float16, "BF16": ml_dtypes.bfloat16, "F32": np.float32}


@dataclass(frozen=True)
class Style:
    weight: Optional[int]  # the axis cut; None: whole on every rank
    bias: Optional[int]  # the same for tensors of one dimension
    blocks: int = 1  # fused blocks, each cut for itself
    uneven: bool = False
    holders: Optional[range] = None  # the ranks that have it at all; None: every one


COLUMN, ROW, WHOLE = Style(-2, -1), Style(-1, None), Style(None, None)

# Hugging Face's words.
WORDS = {
    "colwise": COLUMN,
    "colwise_rep": COLUMN,
    "colwise_gather_output": COLUMN,
    "local_colwise": COLUMN,
    "rowwise": ROW,
    "rowwise_rep": ROW,
    "rowwise_split_input": ROW,
    "local_rowwise": ROW,
    "embedding_rowwise": Style(0, None),
    "embedding_colwise": Style(1, None),
    "packed_colwise": Style(-2, -1, blocks=2),
    "packed_rowwise": Style(-1, None, blocks=2),
    "local_packed_rowwise": Style(-1, None, blocks=2),
    "replicate": WHOLE,
    "sequence_parallel": WHOLE,
    "gather": WHOLE,
    "local": WHOLE,
}


def holds(style, rank):
    return style.holders is None or rank in style.holders


def axis_of(style, shape):
    axis = style.bias if len(shape) == 1 else style.weight
    if axis is None or not -len(shape) <= axis < len(shape):
        return None
    return axis % len(shape)


def intervals(style, extent, rank, world):
    """Pairs (begin, end) of the elements of the cut axis that a rank keeps."""
    block = extent // style.blocks
    assert block * style.blocks == extent, f"{extent} elements in {style.blocks} blocks"
    assert style.uneven or block % world == 0, f"{block} elements on {world} ranks"
    each = -(-block // world)
    begin, end = min(rank * each, block), min((rank + 1) * each, block)
    return [(start + begin, start + end) for start in range(0, extent, block)] if extent else []


def shard(tensor, style, rank, world):
    axis = axis_of(style, tensor.shape)
    if axis is None:
        return tensor
    return shard_along(tensor, axis, intervals(style, tensor.shape[axis], rank, world))


def shard_along(tensor, axis, kept):
    """The parts `kept`, pairs (begin, end), of one axis, joined."""
    shape = list(tensor.shape)
    shape[axis] = sum(end - begin for begin, end in kept)
    return Tensor(tensor.dtype, tuple(shape), _cut(tensor, axis, kept))


def _cut(tensor, axis, kept):
    if not tensor.data or not kept:
        return b""
    rows = np.frombuffer(tensor.data, np.uint8).reshape(prod(tensor.shape[:axis]), -1)
    bits = prod(tensor.shape[axis + 1 :]) * BITS[tensor.dtype]
    assert all(begin * bits % 8 == 0 and end * bits % 8 == 0 for begin, end in kept)
    pieces = [rows[:, begin * bits // 8 : end * bits // 8] for begin, end in kept]
    return np.concatenate(pieces, axis=1).tobytes()


def converted_dtype(dtype, policy):
    return policy.upper() if policy != "keep" and dtype in FLOATS else dtype


def convert(tensor, policy):
    """Round to nearest even, as numpy and ml_dtypes do; by way of F32, which holds every F16 and
    BF16 exactly."""
    target = converted_dtype(tensor.dtype, policy)
    if target == tensor.dtype:
        return tensor
    values = np.frombuffer(tensor.data, FLOATS[tensor.dtype]).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        return Tensor(target, tensor.shape, values.astype(FLOATS[target]).tobytes())


def converted_bytes(tensor, policy):
    return byte_count(converted_dtype(tensor.dtype, policy), tensor.shape)


def same_values(actual, expected, stored_dtype):
    """Equal bits; after a conversion any NaN equals any other of its sign, since no format says which
    NaN a conversion gives."""
    if actual.data == expected.data:
        return True
    if expected.dtype == stored_dtype or len(actual.data) != len(expected.data):
        return False
    kind = FLOATS[expected.dtype]
    bits = np.uint32 if expected.dtype == "F32" else np.uint16
    views = [np.frombuffer(t.data, kind).astype(np.float32) for t in (actual, expected)]
    differ = np.frombuffer(actual.data, bits) != np.frombuffer(expected.data, bits)
    signs = np.signbit(views[0]) == np.signbit(views[1])
    return not np.any(differ & ~(np.isnan(views[0]) & np.isnan(views[1]) & signs))
