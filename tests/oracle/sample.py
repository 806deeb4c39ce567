"""One checkpoint that has everything: all dtypes and placements, shapes that are cut along every axis,
odd byte offsets, header lengths of every remainder, files of very different sizes."""

import json
import random
from pathlib import Path

import numpy as np

import checkpoint
from checkpoint import BITS, Tensor, random_tensor

# Tensor stem: (word, shape). What is cut evenly divides by all world sizes up to 5, and in whole
# bytes for 4- and 6-bit elements too.
SHAPES = {
    "col.weight": ("colwise", (60, 8)),
    "col.bias": ("colwise", (240,)),
    "row.weight": ("rowwise", (3, 240)),
    "row.bias": ("rowwise", (16,)),
    "cube_col.weight": ("colwise", (2, 60, 8)),
    "cube_row.weight": ("rowwise", (2, 3, 240)),
    "packed_col.weight": ("packed_colwise", (120, 8)),
    "packed_col.bias": ("packed_colwise", (480,)),
    "packed_row.weight": ("packed_rowwise", (2, 480)),
    "embed_row.weight": ("embedding_rowwise", (60, 8)),
    "embed_col.weight": ("embedding_colwise", (3, 240)),
    "uneven.weight": ("uneven", (7, 8)),
    "narrow.weight": ("uneven", (2, 8)),
    "norm.weight": ("replicate", (24,)),
    "none.weight": ("colwise", (0, 8)),
    "none_inside.weight": ("colwise", (60, 0)),
}

# Header lengths as (modulus, remainder), one file each.
HEADERS = [(16, r) for r in range(16)] + [(4096, r) for r in (0, 1, 4095)]

GROUPS_PER_FILE = 3


def write(directory):
    """Writes the sample into `directory`; returns {tensor name: Tensor}, as the reference library
    reads it, and {tensor name: file name}."""
    files = _files(np.random.default_rng(2505), random.Random(23072))
    for (name, tensors), header in zip(files.items(), [*HEADERS, None]):
        if header is None:
            checkpoint.write_by_reference(directory / name, tensors)
        else:
            checkpoint.write_by_hand(directory / name, tensors, *header)
    checkpoint.write_index(directory, files)
    written = {file: checkpoint.read(directory / file) for file in files}
    tensors = {name: t for group in written.values() for name, t in group.items()}
    return tensors, {name: file for file, group in written.items() for name in group}


def write_rules(path):
    """The rule file for the sample."""
    words = {stem.rsplit(".", 1)[0]: word for stem, (word, _) in SHAPES.items()}
    rules = {
        "tp_plan": {f"layers.*.{m}": word for m, word in words.items() if word != "uneven"},
        "rules": [
            {"match": f"layers.*.{module}", "dim": 0, "uneven": True}
            for module, word in words.items()
            if word == "uneven"
        ],
    }
    Path(path).write_text(json.dumps(rules), encoding="utf-8")


def word_of(name):
    """The word that the rule file gives a tensor; what it does not mention is replicated."""
    stem = name.split(".", 2)[-1]
    return SHAPES[stem][0] if name.startswith("layers.") else "replicate"


def _files(rng, shuffler):
    count = len(HEADERS) + 1
    names = [f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]
    files = {name: _groups(rng, shuffler, first * GROUPS_PER_FILE) for first, name in enumerate(names)}
    # The last file is the reference library's, which cannot write 6-bit types; the first also holds
    # what exists once.
    files[names[-1]] = {n: t for n, t in files[names[-1]].items() if not t.dtype.startswith("F6")}
    files[names[0]].update(_conversions())
    return files


def _groups(rng, shuffler, first):
    """The tensors of a file, after a few bytes that put all of them at odd offsets."""
    tensors = {}
    for layer in range(first, first + GROUPS_PER_FILE):
        dtype = list(BITS)[layer % len(BITS)]
        group = {f"layers.{layer}.{stem}": random_tensor(rng, dtype, shape)
                 for stem, (_, shape) in SHAPES.items()}  # fmt: skip
        if BITS[dtype] >= 8:
            group[f"scalar.{layer}"] = random_tensor(rng, dtype, ())
            group[f"one.{layer}"] = random_tensor(rng, dtype, (1,))
        tensors.update(group)
    names = list(tensors)
    shuffler.shuffle(names)
    odd = {f"odd.{first}": random_tensor(rng, "U8", (2 * (first % 8) + 1,))}
    return {**odd, **{name: tensors[name] for name in names}}


def _conversions():
    """Every F16 and every BF16, and F32 values at and beside every 16th rounding boundary."""
    every = np.arange(2**16, dtype=np.uint16)
    halves = every[::16].view(np.float16)
    halves = halves[np.isfinite(halves)].astype(np.float32).view(np.uint32)
    f16_ties = [halves + np.uint32(delta) for delta in (0xFFF, 0x1000, 0x1001)]
    high = every[::16].astype(np.uint32) << np.uint32(16)
    bf16_ties = [high + np.uint32(delta) for delta in (0x7FFF, 0x8000, 0x8001, 0x18000)]
    boundaries = np.concatenate(f16_ties + bf16_ties)
    return {
        "every.f16": Tensor("F16", every.shape, every.tobytes()),
        "every.bf16": Tensor("BF16", every.shape, every.tobytes()),
        "every.boundary": Tensor("F32", boundaries.shape, boundaries.tobytes()),
    }
