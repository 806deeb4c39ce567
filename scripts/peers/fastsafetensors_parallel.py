"""fastsafetensors: its parallel loader, which broadcasts every tensor to all ranks."""

import contextlib

import torch
from fastsafetensors import ParallelLoader

from peers.shards import kept_of


def load(files, placement, device, rank):
    alone = len(placement) == 1
    loader = ParallelLoader(
        None if alone else torch.distributed.group.WORLD,
        files,
        use_tqdm_on_load=False,
        device=str(device),
        nogds=device.type == "cpu",
        # Alone it would clone what it yields, and this would copy it again.
        accumulate_resident=not alone,
        borrowed_tensors=alone,
    )
    with contextlib.closing(loader), contextlib.closing(loader.iterate_weights()) as weights:
        return kept_of(weights, placement[rank], owned=not alone)
