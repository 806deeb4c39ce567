"""What a rank must hold, worked out a second time: which bytes it keeps and how they are converted."""

from math import prod

import ml_dtypes
import numpy as np

from checkpoint import BITS, Tensor, byte_count

FLOATS = {"F16": np.float16, "BF16": ml_dtypes.bfloat16, "F32": np.float32}

# Word: (axis of weights, axis of biases, fused blocks). None: whole on every rank.
WORDS = {
    "colwise": (-2, -1, 1),
    "rowwise": (-1, None, 1),
    "embedding_rowwise": (0, 0, 1),
    "embedding_colwise": (1, None, 1),
    "packed_colwise": (-2, -1, 2),
    "packed_rowwise": (-1, None, 2),
    "replicate": (None, None, 1),
    "uneven": (0, 0, 1),
}


def axis_of(word, shape):
    weight, bias, _ = WORDS[word]
    axis = bias if len(shape) == 1 else weight
    if axis is None or not -len(shape) <= axis < len(shape):
        return None
    return axis % len(shape)


def intervals(word, extent, rank, world):
    """Pairs (begin, end) of the elements of the cut axis that a rank keeps."""
    if word == "uneven":
        each = -(-extent // world)
        return [(min(rank * each, extent), min((rank + 1) * each, extent))]
    blocks = WORDS[word][2]
    assert extent % (blocks * world) == 0, f"{word}: {extent} elements on {world} ranks"
    block, each = extent // blocks, extent // blocks // world
    starts = [b * block + rank * each for b in range(blocks)]
    return [(start, start + each) for start in starts]


def shard(tensor, word, rank, world):
    axis = axis_of(word, tensor.shape)
    if axis is None:
        return tensor
    kept = intervals(word, tensor.shape[axis], rank, world)
    shape = list(tensor.shape)
    shape[axis] = sum(end - begin for begin, end in kept)
    return Tensor(tensor.dtype, tuple(shape), _cut(tensor, axis, kept))


def _cut(tensor, axis, kept):
    outer = prod(tensor.shape[:axis])
    if not tensor.data:
        return b""
    rows = np.frombuffer(tensor.data, np.uint8).reshape(outer, -1)
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


def same_values(actual, expected):
    """Equal bits, where any NaN equals any other: no format says which NaN a conversion gives."""
    if actual.data == expected.data:
        return True
    if len(actual.data) != len(expected.data) or expected.dtype not in FLOATS:
        return False
    kind = FLOATS[expected.dtype]
    bits = np.uint32 if expected.dtype == "F32" else np.uint16
    differ = np.frombuffer(actual.data, bits) != np.frombuffer(expected.data, bits)
    nan = [np.isnan(np.frombuffer(t.data, kind).astype(np.float32)) for t in (actual, expected)]
    return not np.any(differ & ~(nan[0] & nan[1]))
