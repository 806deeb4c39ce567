"""An experiment: what is measured, as a file in configs/experiments says it. docs/scaling.md has the keys."""

import dataclasses
import itertools
import json
import pathlib
import re

SCHEMA_VERSION = 1
FIRST = ("strong-scaling", "weak-scaling")
CACHE_STATES = ("cold", "warm")
CEILINGS = ("fio", "memory-copy", "cached-read")
WORDS = {  # options of `load` with a fixed set of values
    "assign": ("auto", "round-robin", "balanced", "striped", "sliced", "mixed"),
    "device": ("auto", "cuda", "host"),
    "direct": ("auto", "on", "off"),
    "dtype": ("keep", "f16", "bf16", "f32"),
    "experts": ("cut", "parallel"),
    "io": ("auto", "posix", "uring", "gds"),
}
RATE = "gigabytes_per_second"
SIZES = ("chunk", "window", "memory-budget")
NUMBERS = ("threads", "replicas")
SIZE = re.compile(r"\d+(\.\d+)?([kKMGTP]i?B?|B)?")
PLOT_AXES = {"lines": ("x", "series"), "bars": ("x", "series"), "phases": ("x",), "heatmap": ("x", "y"),
             "timeline": ()}
NEEDED_AXES = {"lines": ("x",), "bars": ("x",), "phases": ("x",), "heatmap": ("x", "y"), "timeline": ()}


class Invalid(Exception):
    """The file, the key, and what is wrong with it."""


@dataclasses.dataclass(frozen=True)
class Model:
    """A checkpoint that is made: a layout at a scale, with other files if `files` is given."""

    name: str
    like: str
    scale: float
    files: int | None = None
    skew: float = 1


@dataclasses.dataclass(frozen=True)
class Plot:
    kind: str
    title: str
    x: str = ""
    y: str = ""
    series: str = ""
    launch: bool = False  # of phases: also what the command takes in addition
    figure: str = RATE  # of bars: what of the samples they show
    where: dict = dataclasses.field(default_factory=dict)


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
    plots: tuple
    grows_with_ranks: bool
    note: str
    definition: dict  # the file's content, with the keys of "quick" in place where that is asked for

    @property
    def axes(self):
        """Values by axis, in order."""
        return {"model": [model.name for model in self.models], "cache": list(self.cache), "ranks": list(self.ranks),
                **self.load}

    def cases(self):
        """One object per combination: values by axis."""
        return [dict(zip(self.axes, values)) for values in itertools.product(*self.axes.values())]

    def distinct(self):
        """Axes with several values, which tell cases apart; at least one axis."""
        return [axis for axis, values in self.axes.items() if len(values) > 1] or ["ranks"]


class Checker:
    """Takes keys from an object, and refuses what is wrong or unknown."""

    def __init__(self, path, value, where=""):
        self.path, self.where, self.left = path, where, value
        if not isinstance(value, dict):
            self.refuse("", "is not an object")
        self.left = dict(value)

    def refuse(self, key, problem):
        full = ".".join(part for part in (self.where, key) if part)
        raise Invalid(f"{self.path}: {full}: {problem}" if full else f"{self.path}: {problem}")

    def take(self, key, accepts, expected, default=None, required=False):
        if key not in self.left:
            if required:
                self.refuse(key, "is missing")
            return default
        value = self.left.pop(key)
        if not accepts(value):
            self.refuse(key, f"{json.dumps(value)} is not {expected}")
        return value

    def take_text(self, key, required=True):
        return self.take(key, lambda value: isinstance(value, str) and value, "a text", "", required)

    def take_words(self, key, words, default):
        """The list may be empty if it is by default."""
        return tuple(self.take(key, lambda value: is_list(value, lambda word: word in words) or value == list(default),
                               f"a list of different ones of {', '.join(words)}", default))

    def finish(self):
        for key in self.left:
            self.refuse(key, "is an unknown key")


def is_count(value):
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_list(value, accepts):
    """A list that is not empty, without repetition."""
    if not isinstance(value, list) or not value or not all(map(accepts, value)):
        return False
    return len({json.dumps(item) for item in value}) == len(value)


def option_accepts(option):
    """Whether a value is one of the option's, and what those are; None, the default, always is."""
    if option in WORDS:
        return lambda value: value is None or value in WORDS[option], f"null or one of {', '.join(WORDS[option])}"
    if option in NUMBERS:
        return lambda value: value is None or is_count(value), "null or a whole number above 0"
    return (lambda value: value is None or (isinstance(value, str) and bool(SIZE.fullmatch(value))),
            'null or a size such as "8MiB"')


def layout(path, like):
    """A built-in layout, or a file named from the directory of the experiment at `path`."""
    return str(pathlib.Path(path).parent / like) if like.endswith(".json") else like


def check_model(path, value, where):
    checker = Checker(path, value, where)
    like = checker.take_text("like")
    model = Model(
        name=checker.take_text("name", required=False) or like,
        like=layout(path, like),
        scale=checker.take("scale", lambda scale: is_number(scale) and 0 < scale <= 1, "above 0 and at most 1",
                           required=True),
        files=checker.take("files", is_count, "a whole number above 0"),
        skew=checker.take("skew", lambda skew: is_number(skew) and skew >= 1, "a number of at least 1", 1),
    )
    if model.skew > 1 and model.files is None:
        checker.refuse("skew", "needs files")
    checker.finish()
    return model


def check_models(checker):
    values = checker.take("models", lambda value: is_list(value, lambda item: isinstance(item, dict)),
                          "a list of different models", required=True)
    models = tuple(check_model(checker.path, value, f"models[{at}]") for at, value in enumerate(values))
    if len({model.name for model in models}) < len(models):
        checker.refuse("models", "two have the same name")
    return models


def check_load(checker):
    options = Checker(checker.path, checker.take("load", lambda value: True, "", {}), "load")
    found = {}
    for option in [*WORDS, *SIZES, *NUMBERS]:
        accepts, expected = option_accepts(option)
        values = options.take(option, lambda value: is_list(value, accepts), f"a list of different values, each "
                              f"{expected}")
        if values is not None:
            found[option] = values
    options.finish()
    return found


def check_where(plot, axes):
    where = plot.take("where", lambda value: isinstance(value, dict), "an object", {})
    for axis, value in where.items():
        if axis not in axes:
            plot.refuse(f"where.{axis}", f"is not an axis of this experiment: {', '.join(axes)}")
        if value not in axes[axis] and axis != "ranks":  # of ranks, those that are measured may be fewer
            plot.refuse(f"where.{axis}", f"{json.dumps(value)} is not among {json.dumps(axes[axis])}")
    return where


def check_plot(path, value, where, axes):
    plot = Checker(path, value, where)
    kind = plot.take("kind", lambda kind: kind in PLOT_AXES, f"one of {', '.join(PLOT_AXES)}", required=True)
    taken = {axis: plot.take(axis, lambda name: name in axes, f"an axis of this experiment: {', '.join(axes)}", "",
                             required=axis in NEEDED_AXES[kind]) for axis in PLOT_AXES[kind]}
    named = [axis for axis in taken.values() if axis]
    if len(set(named)) < len(named):
        plot.refuse("", "has one axis in two roles")
    checked = Plot(kind, plot.take_text("title"), where=check_where(plot, axes), **taken)
    if kind == "phases":
        launch = plot.take("launch", lambda value: isinstance(value, bool), "true or false", False)
        checked = dataclasses.replace(checked, launch=launch)
    plot.finish()
    return checked


def check_plots(checker, axes):
    values = checker.take("plots", lambda value: is_list(value, lambda item: isinstance(item, dict)),
                          "a list of different plots", required=True)
    return tuple(check_plot(checker.path, value, f"plots[{at}]", axes) for at, value in enumerate(values))


def with_quick(path, definition, quick):
    """The definition without "quick"; its keys replace others, where that is asked for."""
    definition = dict(definition)
    replacing = Checker(path, definition.pop("quick", {}), "quick")
    for key in replacing.left:
        if key not in ("note", "models", "ranks", "cache", "load", "turns", "plots", "ceilings"):
            replacing.refuse(key, "is an unknown key")
    return definition | replacing.left if quick else definition


def check(path, name, definition, quick=False):
    """The experiment; `path` is for messages."""
    definition = with_quick(path, Checker(path, definition).left, quick)
    checker = Checker(path, definition)
    checker.take("schema_version", lambda value: value == SCHEMA_VERSION and not isinstance(value, bool),
                 f"{SCHEMA_VERSION}, the only one so far", required=True)
    ranks = checker.take("ranks", lambda value: value == "auto" or is_list(value, is_count),
                         'a list of different numbers of ranks, or "auto"', required=True)
    fields = {
        "title": checker.take_text("title"),
        "question": checker.take_text("question"),
        "note": checker.take_text("note", required=False),
        "models": check_models(checker),
        "ranks": () if ranks == "auto" else tuple(ranks),
        "cache": checker.take_words("cache", CACHE_STATES, CACHE_STATES),
        "load": check_load(checker),
        "turns": checker.take("turns", is_count, "a whole number above 0", required=True),
        "ceilings": checker.take_words("ceilings", CEILINGS, ()),
        "grows_with_ranks": checker.take("grows_with_ranks", lambda value: isinstance(value, bool), "true or false",
                                         False),
    }
    experiment = Experiment(name=name, plots=(), definition=definition, **fields)
    experiment = dataclasses.replace(experiment, plots=check_plots(checker, experiment.axes))
    checker.finish()
    return experiment


def unrepeated(path):
    def collect(pairs):
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            raise Invalid(f"{path}: {next(name for name in names if names.count(name) > 1)}: is given twice")
        return found

    return collect


def read(path, quick=False):
    path = pathlib.Path(path)
    try:
        definition = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=unrepeated(path))
    except json.JSONDecodeError as error:
        raise Invalid(f"{path}: line {error.lineno}, column {error.colno}: {error.msg}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    return check(path, path.stem, definition, quick)


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
