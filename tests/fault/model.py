"""A small checkpoint of bytes, cut by rows or replicated."""

import json
import struct

FILES = 4
ROWS, COLUMNS = 24, 4096
WINDOW = 64 << 10  # so that each file takes two waves
RULES = {"tp_plan": {"cut.*": "colwise"}}


def file_name(number):
    return f"model-{number:05}-of-{FILES:05}.safetensors"


def write_file(path, tensors):
    """`tensors`: {name: (shape, bytes)}, all U8. Returns where the data begins."""
    header, offset = {}, 0
    for name, (shape, data) in tensors.items():
        header[name] = {
            "dtype": "U8",
            "shape": shape,
            "data_offsets": [offset, offset + len(data)],
        }
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(d for _, d in tensors.values()))
    return 8 + len(text)


def write(directory):
    """FILES files, each with one tensor to cut and one to replicate; returns the rule file."""
    directory.mkdir()
    for number in range(FILES):
        data = bytes((number * 50 + i) % 251 for i in range(ROWS * COLUMNS))
        tensors = {
            f"cut.{number}.weight": ([ROWS, COLUMNS], data),
            f"whole.{number}.weight": ([COLUMNS], data[:COLUMNS]),
        }
        write_file(directory / file_name(number), tensors)
    rules = directory / "rules.json"
    rules.write_text(json.dumps(RULES), encoding="utf-8")
    return rules
