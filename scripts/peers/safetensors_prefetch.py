"""safetensors' prefetch: reads in the background, straight to a GPU."""

import contextlib

from safetensors import safe_open

from peers.shards import by_file, filled, kept


def rows_of(shard):
    """What of the first dimension is to be read: the whole shard's rows, if that is what it is cut along."""
    if shard.axis != 0 or not shard.pieces:
        return None
    return slice(min(piece.begin for piece in shard.pieces), max(piece.begin + piece.length for piece in shard.pieces))


def cut(shard, tensor):
    rows = rows_of(shard)
    if rows is None:
        return kept(shard, tensor, owned=True)
    if tuple(tensor.shape) == shard.shape and tensor.dtype == shard.dtype and len(shard.pieces) == 1:
        return tensor
    return filled(shard, tensor.device, lambda piece: tensor.narrow(0, piece.begin - rows.start, piece.length))


def load(files, placement, device, rank):
    tensors, shards = {}, placement[rank]
    with contextlib.ExitStack() as stack:
        loaders = []
        for file, wanted in by_file(shards).items():
            opened = stack.enter_context(safe_open(file, framework="pt", device=str(device)))
            plan = {shard.name: rows_of(shard) for shard in wanted}
            loaders.append(stack.enter_context(opened.prefetch(plan, device=str(device))))
        for loader in loaders:
            for name, tensor in loader:
                tensors[name] = cut(shards[name], tensor)
    return tensors
