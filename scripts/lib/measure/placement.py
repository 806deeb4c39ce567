"""What each rank is to end with: taken from what safeshuffle itself saves of each rank, so that every model and rule
works, and no second set of rules can differ."""

import hashlib
import json
import math
import pathlib
import struct

RECORD = "safeshuffle.shards"


class NotSlices(Exception):
    """A shard is not a slice of a stored tensor of its name, so other libraries cannot be asked for it."""


def header_of(path):
    """The header, and where the data begins."""
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        return json.loads(file.read(size)), 8 + size


def digest(dtype, shape, content):
    """What is compared of a tensor."""
    return [dtype, list(shape), hashlib.blake2b(content, digest_size=16).hexdigest()]


def content(file, begin, end):
    file.seek(begin)
    found = file.read(end - begin)
    if len(found) < end - begin:
        raise OSError(f"{file.name}: ends early")
    return found


def digests_of(path):
    """By name."""
    header, data = header_of(path)
    header.pop("__metadata__", None)
    with open(path, "rb") as file:
        return {name: digest(entry["dtype"], entry["shape"],
                             content(file, *(data + offset for offset in entry["data_offsets"])))
                for name, entry in header.items()}


def stored_tensors(files):
    """By name, in the order of the data: file, dtype, shape."""
    stored = {}
    for path in files:
        header, _ = header_of(path)
        entries = [(entry["data_offsets"][0], name, entry) for name, entry in header.items() if name != "__metadata__"]
        for _, name, entry in sorted(entries, key=lambda item: item[:2]):
            stored[name] = {"file": str(path), "dtype": entry["dtype"], "shape": entry["shape"]}
    return stored


def pieces_of(intervals, stored_length):
    """(begin, length, at) of what is stored; the rest of the shard is zeros."""
    pieces, at = [], 0
    for begin, length in intervals:
        there = min(length, max(0, stored_length - begin))
        if there:
            pieces.append((begin, there, at))
        at += length
    return pieces


def shard_entry(name, saved, stored, record):
    if stored is None:
        raise NotSlices(f"no stored tensor has the name of '{name}'")
    entry = {"file": stored["file"], "dtype": saved["dtype"], "stored_dtype": stored["dtype"],
             "stored_shape": stored["shape"], "shape": saved["shape"], "axis": None, "pieces": []}
    if record is not None:
        axis = record["axis"]
        entry |= {"axis": axis, "pieces": pieces_of(record["intervals"], stored["shape"][axis])}
        taken = list(stored["shape"])
        taken[axis] = sum(length for _, length in record["intervals"])
    else:
        taken = stored["shape"]
    if taken != saved["shape"]:
        raise NotSlices(f"'{name}' {saved['shape']} is not a slice of the stored tensor {stored['shape']}")
    return entry


def placement_of(saved, stored):
    """Of one rank, from the file that it saved: by name, in the order of what is stored."""
    header, _ = header_of(saved)
    metadata = header.pop("__metadata__")
    records = json.loads(metadata[RECORD])["shards"]
    order = {name: index for index, name in enumerate(stored)}
    names = sorted(header, key=lambda name: order.get(name, math.inf))
    return {name: shard_entry(name, header[name], stored.get(name), records.get(name)) for name in names}


def saved_files(directory, ranks):
    return [pathlib.Path(directory) / f"model-rank-{rank}-part-0.safetensors" for rank in range(ranks)]


def difference(wanted, found):
    """The first difference between two ranks' tensors, as `digests_of` has them; None without one."""
    for name in sorted(wanted.keys() | found.keys()):
        if name not in found:
            return name, "is missing"
        if name not in wanted:
            return name, "is not this rank's"
        for what, one, other in zip(("dtype", "shape", "bytes"), wanted[name], found[name]):
            if one != other:
                return name, f"differs in {what}: {other}, not {one}" if what != "bytes" else "differs in its bytes"
    return None
