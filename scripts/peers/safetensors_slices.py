"""safetensors: each rank takes from every file what it keeps."""

from safetensors import safe_open

from peers.shards import by_file, filled, kept


def sliced(stored, axis, piece):
    rows = slice(piece.begin, piece.begin + piece.length)
    return stored[(slice(None),) * axis + (rows,)]


def load(files, placement, device, rank, backend):
    tensors, shards = {}, placement[rank]
    for file, wanted in by_file(shards).items():
        with safe_open(file, framework="pt", device=str(device), backend=backend) as opened:
            for shard in wanted:
                tensors[shard.name] = taken(opened, shard, device, owned=backend != "mmap" or device.type != "cpu")
    return tensors


def taken(opened, shard, device, owned):
    if shard.axis is None:
        return kept(shard, opened.get_tensor(shard.name), owned)
    stored = opened.get_slice(shard.name)
    return filled(shard, device, lambda piece: sliced(stored, shard.axis, piece))
