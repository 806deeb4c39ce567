"""An experiment: what `safeshuffle bench` measures, as a file in configs/experiments says it. docs/measuring.md has the
keys."""

import dataclasses
import itertools
import json
import pathlib

SCHEMA_VERSION = 2
CACHE_STATES = ("cold", "warm")
CEILINGS = ("fio", "cached-read")


class Invalid(Exception):
    """The file, and what is wrong with it."""


@dataclasses.dataclass(frozen=True)
class Model:
    """A checkpoint to be made: a layout at a scale."""

    name: str
    like: str
    scale: float


@dataclasses.dataclass(frozen=True)
class Experiment:
    name: str
    title: str
    question: str
    models: tuple
    ranks: tuple  # empty: as many as there is room for
    cache: tuple
    load: dict  # values by option of `load`; None: its default
    turns: int
    ceilings: tuple
    grows_with_ranks: bool

    def cases(self):
        """Values by axis, one object per combination."""
        axes = {"model": [model.name for model in self.models], "cache": self.cache, "ranks": self.ranks, **self.load}
        return [dict(zip(axes, values)) for values in itertools.product(*axes.values())]


def model_of(path, like, scale, name=None):
    """A layout file is named from the directory of the experiment."""
    place = path.parent / like if like.endswith(".json") else like
    return Model(name or like, str(place), float(scale))


def experiment_of(path, *, schema_version, title, question, models, ranks, turns, cache=CACHE_STATES, load=(),
                  ceilings=(), grows_with_ranks=False):
    """From the keys of the file; values of `load` are checked by the command itself."""
    models = tuple(model_of(path, **model) for model in models)
    if schema_version != SCHEMA_VERSION:
        raise ValueError(f"schema_version is {schema_version}, not {SCHEMA_VERSION}")
    if len({model.name for model in models}) < len(models):
        raise ValueError("models: two have the same name")
    if unknown := ({*cache} - {*CACHE_STATES}) | ({*ceilings} - {*CEILINGS}):
        raise ValueError(f"unknown: {', '.join(map(str, unknown))}")
    load = {option: list(values) for option, values in dict(load).items()}
    return Experiment(path.stem, title, question, models, () if ranks == "auto" else tuple(map(int, ranks)),
                      tuple(cache), load, int(turns), tuple(ceilings), grows_with_ranks)


def check(path, definition, quick=False):
    """The experiment. With `quick`, the keys of "quick" replace others."""
    try:
        found = dict(definition)
        replacing = found.pop("quick", {})
        return experiment_of(pathlib.Path(path), **found | (replacing if quick else {}))
    except (TypeError, ValueError) as error:
        raise Invalid(f"{path}: {error}") from error


def read(path, quick=False):
    try:
        definition = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Invalid(f"{path}: {error}") from error
    return check(path, definition, quick)


def built_in(directory):
    """Paths by name."""
    return {path.stem: path for path in sorted(pathlib.Path(directory).glob("*.json"))}


def find(name, directory):
    """The path of an experiment: a built-in one's name, or a file."""
    there = built_in(directory)
    if name in there:
        return there[name]
    if name.endswith(".json") or "/" in name:
        return pathlib.Path(name)
    raise Invalid(f"no experiment '{name}'; there are: {', '.join(there)}; or give the path of a .json file")
