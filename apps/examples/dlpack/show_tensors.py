#!/usr/bin/env python3
"""Lists the tensors of a checkpoint as a Python framework sees them, which shares their memory: name,
dtype, shape and CRC-32 of the bytes, separated by tabs.

    show_tensors.py build/apps/examples/libexample_dlpack.so CHECKPOINT
    show_tensors.py build/apps/examples/libexample_dlpack.so CHECKPOINT --device cuda --framework torch
"""

import argparse
import importlib
import zlib

import safeshuffle_dlpack


def bytes_of(array, framework):
    """A copy in host memory."""
    if framework == "torch":
        return array.cpu().reshape(-1).view(importlib.import_module("torch").uint8).numpy().tobytes()
    return (array.get() if framework == "cupy" else array).tobytes()


def describe(tensor, framework):
    try:
        array = importlib.import_module(framework).from_dlpack(tensor)
    except (BufferError, RuntimeError) as error:
        return f"not exported: {error}"
    shape = ",".join(str(extent) for extent in array.shape)
    return f"{array.dtype}\t[{shape}]\t{zlib.crc32(bytes_of(array, framework)):08x}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("library")
    parser.add_argument("checkpoint")
    parser.add_argument("--device", choices=("host", "cuda"), default="host")
    parser.add_argument("--framework", choices=("numpy", "torch", "cupy"), default="numpy")
    options = parser.parse_args()
    model = safeshuffle_dlpack.Model(options.library, options.checkpoint, options.device)
    for name, tensor in model.items():
        print(name, describe(tensor, options.framework), sep="\t")


if __name__ == "__main__":
    main()
