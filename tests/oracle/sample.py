"""One checkpoint that has everything: all dtypes and placements, shapes that are cut along every axis,
odd byte offsets, header lengths of every remainder, files of very different sizes."""

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np

import checkpoint
from checkpoint import BITS, Tensor, random_tensor
from placement import COLUMN, ROW, WHOLE, WORDS, Style

# What the words cannot say. Module: (rule, what it means).
RULES = {
    "uneven": ({"dim": 0, "uneven": True}, Style(0, 0, uneven=True)),
    "narrow": ({"dim": 0, "uneven": True}, Style(0, 0, uneven=True)),
    "uneven_row": ({"style": "rowwise", "uneven": True}, replace(ROW, uneven=True)),
    "uneven_pack": (
        {"style": "packed_colwise", "uneven": True}, replace(COLUMN, blocks=2, uneven=True)),
    "first": ({"dim": 0}, Style(0, 0)),
    "middle": ({"dim": 1}, Style(1, None)),
    "last": ({"dim": -1}, Style(-1, -1)),
    "heads": ({"style": "colwise", "units": 120}, COLUMN),
    "thirds": ({"dim": 0, "parts": [1, 1, 1]}, Style(0, 0, blocks=3)),
    "single": ({"place": {"rank": 0}}, replace(WHOLE, holders=range(1))),
    "dropped": ({"place": "drop"}, replace(WHOLE, holders=range(0))),
}  # fmt: skip

# Tensor stem: shape. The module is a word or one of RULES. What is cut evenly divides by all world sizes up to 5 and by 8, and in whole
# bytes for 4- and 6-bit elements too.
SHAPES = {
    "colwise.weight": (120, 4),
    "colwise.bias": (480,),
    "colwise_rep.weight": (2, 120, 4),
    "colwise_gather_output.weight": (120, 4),
    "local_colwise.weight": (120, 4),
    "rowwise.weight": (3, 480),
    "rowwise.bias": (16,),
    "rowwise_rep.weight": (2, 2, 480),
    "rowwise_split_input.weight": (1, 480),
    "local_rowwise.weight": (2, 480),
    "packed_colwise.weight": (240, 4),
    "packed_colwise.bias": (960,),
    "packed_rowwise.weight": (2, 960),
    "local_packed_rowwise.weight": (1, 960),
    "embedding_rowwise.weight": (120, 4),
    "embedding_colwise.weight": (3, 480),
    "replicate.weight": (24,),
    "sequence_parallel.weight": (24,),
    "gather.weight": (4, 8),
    "local.weight": (4, 8),
    "unmatched.weight": (120, 4),
    "colwise.empty_axis": (0, 8),
    "colwise.empty_row": (120, 0),
    "rowwise.empty_outer": (0, 480),
    "uneven.weight": (7, 8),
    "narrow.weight": (2, 8),
    "uneven_pack.weight": (14, 8),
    "first.weight": (120, 4),
    "middle.weight": (2, 120, 4),
    "last.weight": (2, 2, 480),
    "heads.weight": (480, 4),
    "thirds.weight": (360, 4),
    "single.weight": (12, 4),
    "dropped.weight": (12, 4),
}

# Larger than the smallest window as a whole, and by row. One layer of these is enough.
LARGE_SHAPES = {
    "colwise.large": (120, 120),
    "rowwise.large": (3, 14400),
    "packed_rowwise.large": (2, 9600),
    "uneven_row.large": (3, 7001),
    "uneven.large": (101, 70),
    "last.large": (2, 2, 4800),
    "replicate.large": (9001,),
    "single.large": (9001,),
    "dropped.large": (9001,),
}
LARGE_DTYPES = ("F32", "BF16", "F16", "U8", "F64")

# JSON strings with every kind of escape, and as long as no real name is.
ODD_NAMES = ["", " ", '"\\/', "\0\n\x1f\x7f", "é 層 \U0001f600", "ends with a dot.", "n" * 10_000]

# Header lengths as (modulus, remainder), one file each.
HEADERS = [(16, r) for r in range(16)] + [(4096, r) for r in (0, 1, 4095)]

GROUPS_PER_FILE = 3

# The forms of a rule file; only the first can hold RULES.
RULE_FORMS = ("rules", "bare")


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


def write_rules(directory):
    """Rule files of all forms; returns {form: path}."""
    plan = {f"layers.*.{word}": word for word in WORDS}
    rules = [{"match": f"layers.*.{module}", **rule} for module, (rule, _) in RULES.items()]
    contents = {
        "rules": {"tp_plan": plan, "rules": rules, "on_unmatched": "replicate"},
        "bare": plan,
    }
    paths = {form: Path(directory) / f"{form}.json" for form in RULE_FORMS}
    for form, path in paths.items():
        path.write_text(json.dumps(contents[form]), encoding="utf-8")
    return paths


def style_of(name, form="rules"):
    """How the rule file has a tensor cut; what it does not mention is replicated."""
    _, _, path = name.removeprefix("model.").partition("layers.")
    module = path.split(".")[1] if path else None
    if module in RULES:
        return RULES[module][1] if form == "rules" else WHOLE
    return WORDS.get(module, WHOLE)


def _files(rng, shuffler):
    count = len(HEADERS) + 1
    names = [f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]
    files = {name: _groups(rng, shuffler, first * GROUPS_PER_FILE) for first, name in enumerate(names)}
    # The last file is the reference library's, which cannot write 6-bit types; the first also holds
    # what exists once.
    files[names[-1]] = {n: t for n, t in files[names[-1]].items() if not t.dtype.startswith("F6")}
    files[names[0]].update(_conversions(rng))
    files[names[0]].update({name: random_tensor(rng, "U8", (3,)) for name in ODD_NAMES})
    for i, dtype in enumerate(LARGE_DTYPES):
        files[names[0]].update(_layer(rng, 1000 + i, dtype, LARGE_SHAPES))
    return files


def _layer(rng, layer, dtype, shapes):
    prefix = f"{'model.' if layer % 2 else ''}layers.{layer}."
    return {prefix + stem: random_tensor(rng, dtype, shape) for stem, shape in shapes.items()}


def _groups(rng, shuffler, first):
    """The tensors of a file, after a few bytes that put all of them at odd offsets."""
    tensors = {}
    for layer in range(first, first + GROUPS_PER_FILE):
        dtype = list(BITS)[layer % len(BITS)]
        tensors.update(_layer(rng, layer, dtype, SHAPES))
        if BITS[dtype] >= 8:
            tensors[f"scalar.{layer}"] = random_tensor(rng, dtype, ())
            tensors[f"layers.{layer}.colwise.scalar"] = random_tensor(rng, dtype, ())
            tensors[f"one.{layer}"] = random_tensor(rng, dtype, (1,))
    names = list(tensors)
    shuffler.shuffle(names)
    odd = {f"odd.{first}": random_tensor(rng, "U8", (2 * (first % 8) + 1,))}
    return {**odd, **{name: tensors[name] for name in names}}


def _conversions(rng):
    """Every F16 and every BF16, and the F32 values on which roundings differ."""
    every = np.arange(2**16, dtype=np.uint16)
    f32 = np.concatenate([_boundaries_f16(every), _boundaries_bf16(every), _special_f32(),
                          rng.integers(0, 2**32, 2**16, dtype=np.uint32)])  # fmt: skip
    return {
        "every.f16": Tensor("F16", every.shape, every.tobytes()),
        "every.bf16": Tensor("BF16", every.shape, every.tobytes()),
        "every.f32": Tensor("F32", f32.shape, f32.tobytes()),
    }


def _boundaries_f16(every):
    """Halfway between neighbours, subnormal ones included, and the F32 values beside."""
    positive = every[:0x7C00].view(np.float16).astype(np.float32)  # from zero to below infinity
    middle = ((positive[:-1] + positive[1:]) / 2).view(np.uint32)[::5]
    middle = np.concatenate([middle, middle | np.uint32(0x80000000)])
    return np.concatenate([middle - np.uint32(1), middle, middle + np.uint32(1)])


def _boundaries_bf16(every):
    high = every[::16].astype(np.uint32) << np.uint32(16)
    return np.concatenate([high + np.uint32(d) for d in (0x7FFF, 0x8000, 0x8001, 0x18000)])


def _special_f32():
    """Zeros, infinities, NaNs quiet and signalling, the smallest and largest values of all three
    formats, and where they overflow and vanish, each with its neighbours and both signs."""
    around = [
        0x00000001, 0x007FFFFF, 0x00800000, 0x33000000, 0x33800000, 0x387FC000, 0x387FE000,
        0x38800000, 0x477FE000, 0x477FEFFF, 0x477FF000, 0x47800000, 0x7F7F0000, 0x7F7F7FFF,
        0x7F7F8000, 0x7F7FFFFF, 0x7F800000, 0x7F802000, 0x7F810000, 0x7FC00000, 0x7FFFFFFE,
    ]  # fmt: skip
    near = np.unique([value + delta for value in around for delta in (-1, 0, 1)])
    return np.concatenate([near, near + 0x80000000]).astype(np.uint32)
