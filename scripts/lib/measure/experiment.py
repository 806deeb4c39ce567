"""An experiment: what `safeshuffle bench` measures, as a file in configs/experiments says it. docs/measuring.md has the
keys."""

import dataclasses
import itertools
import json
import pathlib

SCHEMA_VERSION = 2
FIRST = ("strong-scaling", "weak-scaling")
CACHE_STATES = ("cold", "warm")
CEILINGS = ("fio", "memory-copy", "cached-read")


class Invalid(Exception):
    """The file, the key, and what is wrong with it."""


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


def is_text(value):
    return isinstance(value, str) and bool(value)


def is_count(value):
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def is_scale(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 1


def is_list(value, accepts):
    """A list that is not empty, without repetition."""
    return (isinstance(value, list) and bool(value) and all(map(accepts, value))
            and len({json.dumps(item) for item in value}) == len(value))


def is_option_value(value):
    return value is None or is_text(value) or is_count(value)


def list_of(accepts, what):
    return lambda value: is_list(value, accepts), f"a list of different {what}"


def words_of(words):
    return lambda value: value == [] or is_list(value, lambda word: word in words), (
        f"a list of different ones of {', '.join(words)}")


TEXT = (is_text, "a text")
FLAG = (lambda value: isinstance(value, bool), "true or false")
KEYS = {  # what each accepts, in words
    "schema_version": (lambda value: value == SCHEMA_VERSION and is_count(value), f"{SCHEMA_VERSION}"),
    "title": TEXT,
    "question": TEXT,
    "models": list_of(lambda value: isinstance(value, dict), "models"),
    "ranks": (lambda value: value == "auto" or is_list(value, is_count), 'a list of different numbers, or "auto"'),
    "cache": list_of(lambda value: value in CACHE_STATES, f"ones of {', '.join(CACHE_STATES)}"),
    "load": (lambda value: isinstance(value, dict), "an object"),
    "turns": (is_count, "a whole number above 0"),
    "ceilings": words_of(CEILINGS),
    "grows_with_ranks": FLAG,
    "quick": (lambda value: isinstance(value, dict), "an object"),
}
DEFAULTS = {"cache": list(CACHE_STATES), "load": {}, "ceilings": [], "grows_with_ranks": False, "quick": {}}
MODEL_KEYS = {"like": TEXT, "scale": (is_scale, "above 0 and at most 1"), "name": TEXT}
OPTION_VALUES = list_of(is_option_value, "values, each null, a text or a whole number above 0")
AXES = ("model", "cache", "ranks", "system")  # which no option of `load` may be
QUICK_KEYS = ("models", "ranks", "cache", "load", "turns", "ceilings")


def checked(path, where, found, keys, defaults):
    """With defaults for what is missing; `where` has the key of the object."""
    def refuse(key, problem):
        raise Invalid(f"{path}: {'.'.join(filter(None, (where, key)))}: {problem}")

    for key, (accepts, expected) in keys.items():
        if key in found and not accepts(found[key]):
            refuse(key, f"{json.dumps(found[key])} is not {expected}")
        if key not in found and key not in defaults:
            refuse(key, "is missing")
    for key in found:
        if key not in keys:
            refuse(key, "is an unknown key")
    return defaults | found


def model_of(path, where, found):
    """A layout file is named from the directory of the experiment."""
    model = checked(path, where, found, MODEL_KEYS, {"name": found.get("like")})
    if model["like"].endswith(".json"):
        model["like"] = str(pathlib.Path(path).parent / model["like"])
    return Model(**model)


def models_of(path, found):
    models = tuple(model_of(path, f"models[{at}]", model) for at, model in enumerate(found))
    if len({model.name for model in models}) < len(models):
        raise Invalid(f"{path}: models: two have the same name")
    return models


def check(path, definition, quick=False):
    """The experiment. With `quick`, the keys of "quick" replace others."""
    if not isinstance(definition, dict):
        raise Invalid(f"{path}: is not an object")
    found = checked(path, "", definition, KEYS, DEFAULTS)
    replacing = checked(path, "quick", found.pop("quick"), {key: KEYS[key] for key in QUICK_KEYS},
                        dict.fromkeys(QUICK_KEYS))
    if quick:
        found |= {key: value for key, value in replacing.items() if value is not None}
    options = {option: OPTION_VALUES for option in found["load"] if option not in AXES}
    checked(path, "load", found["load"], options, {})
    del found["schema_version"]
    found |= {"models": models_of(path, found["models"]), "cache": tuple(found["cache"]),
              "ranks": () if found["ranks"] == "auto" else tuple(found["ranks"]), "ceilings": tuple(found["ceilings"])}
    return Experiment(name=pathlib.Path(path).stem, **found)


def read(path, quick=False):
    def unrepeated(pairs):
        names = [name for name, _ in pairs]
        for name in names:
            if names.count(name) > 1:
                raise Invalid(f"{path}: {name}: is given twice")
        return dict(pairs)

    try:
        definition = json.loads(pathlib.Path(path).read_text(encoding="utf-8"), object_pairs_hook=unrepeated)
    except json.JSONDecodeError as error:
        raise Invalid(f"{path}: line {error.lineno}, column {error.colno}: {error.msg}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    return check(path, definition, quick)


def built_in(directory):
    """Paths by name, the most general ones first."""
    there = sorted(pathlib.Path(directory).glob("*.json"), key=lambda path: (path.stem not in FIRST, path.stem))
    return {path.stem: path for path in there}


def find(name, directory):
    """The path of an experiment: a built-in one's name, or a file."""
    there = built_in(directory)
    if name in there:
        return there[name]
    if name.endswith(".json") or "/" in name:
        return pathlib.Path(name)
    raise Invalid(f"no experiment '{name}'; there are: {', '.join(there)}; or give the path of a .json file")
