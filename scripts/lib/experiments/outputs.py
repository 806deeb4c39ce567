"""The files of a measurement: results.json, results.csv."""

import csv
import io
import json
import os
import pathlib

from lib.experiments import samples

SCHEMA_VERSION = 1
NAME = "results.json"
NEEDED = {"identity", "models", "samples", "ceilings", "timelines"}  # to continue a measurement


class Unusable(Exception):
    """The file, and why the measurement that it is of cannot be continued."""


def text_of(result):
    return json.dumps(result, indent=1) + "\n"


def write_text(path, text):
    """At once: an interruption leaves the earlier file."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def csv_text(result):
    """One line per sample."""
    axes = list(result["samples"][0]["case"]) if result["samples"] else []
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*axes, *samples.TAKEN])
    for one in result["samples"]:
        writer.writerow([*one["case"].values(), *(one[name] for name in samples.TAKEN)])
    return text.getvalue()


def read(directory):
    """The results there; empty if there are none."""
    path = pathlib.Path(directory) / NAME
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def parsed(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # not JSON, or not UTF-8
        raise Unusable(f"{path} is damaged: {error}") from error


def kept(directory):
    """Of an earlier measurement, to be continued; empty if there is none."""
    path = pathlib.Path(directory) / NAME
    if not path.exists():
        return {}
    found = parsed(path)
    if not isinstance(found, dict) or "schema_version" not in found:
        raise Unusable(f"{path} is not of a scaling experiment")
    if found["schema_version"] != SCHEMA_VERSION:
        raise Unusable(f"{path} has schema_version {json.dumps(found['schema_version'])}, not {SCHEMA_VERSION}")
    if not NEEDED <= found.keys():
        raise Unusable(f"{path} is not of a scaling experiment")  # but of a comparison, for example
    return found


def write(result, directory):
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    write_text(directory / NAME, text_of(result))
    write_text(directory / "results.csv", csv_text(result))
