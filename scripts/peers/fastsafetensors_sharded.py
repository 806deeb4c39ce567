"""fastsafetensors: its low-level loader, which scatters the parts of a tensor."""

import contextlib

import torch
from fastsafetensors import SafeTensorsFileLoader, SingleGroup

from peers.shards import Piece, kept


def is_scattered(name, placement):
    """Whether the ranks have equal parts of the tensor, in order: that is what a scatter gives them."""
    shards = [rank.get(name) for rank in placement]
    if len(shards) == 1 or any(shard is None or shard.axis is None for shard in shards):
        return False
    length = shards[0].stored_shape[shards[0].axis] // len(shards)
    parts = [(Piece(rank * length, length, 0),) for rank in range(len(shards))]
    whole = length * len(shards) == shards[0].stored_shape[shards[0].axis]
    return whole and parts == [shard.pieces for shard in shards] and not any(shard.is_padded for shard in shards)


def load(files, placement, device, rank):
    ranks = len(placement)
    group = SingleGroup() if ranks == 1 else torch.distributed.group.WORLD
    loader = SafeTensorsFileLoader(group, str(device), nogds=device.type == "cpu")
    tensors, shards = {}, placement[rank]
    with contextlib.closing(loader):
        loader.add_filenames({owner: files[owner::ranks] for owner in range(ranks)})
        with contextlib.closing(loader.copy_files_to_device()) as buffers:
            for name in loader.get_keys():  # on all ranks in one order
                if is_scattered(name, placement):
                    part = buffers.get_sharded(name, shards[name].axis)
                    tensors[name] = part.to(shards[name].dtype)
                elif any(name in other for other in placement):
                    tensor = buffers.get_tensor(name)
                    if name in shards:
                        tensors[name] = kept(shards[name], tensor, owned=True)
    return tensors
