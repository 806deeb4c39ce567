"""One picture of a result: bars of the rates, with their spread and ceilings."""

import itertools

from lib.measure.experiment import CEILINGS
from lib.measure.measurement import in_words, title_of, varying

RATE = "gigabytes_per_second"
# Okabe and Ito's colours, which people with any colour vision can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442", "#999999")
CEILING_LINES = {"fio": "-", "cached-read": ":"}
NAME = "plot.png"
WIDTH, PANEL_HEIGHT, DPI = 10, 2.8, 120


class Panel:
    """`bars`: figures by x and series; `ceilings`: rates by name and x."""

    def __init__(self, title):
        self.title, self.bars, self.ceilings = title, {}, {}


def roles_of(cases):
    """The axes along x and of the series: the ranks, if they or systems vary, or else the last that does; and the last
    of the others."""
    axes = varying(cases)
    x = "ranks" if {"ranks", "system"} & set(axes) or not axes else axes[-1]
    others = [axis for axis in axes if axis not in (x, "model", "cache")]
    return x, others[-1] if others else ""


def panels_of(entries):
    """By the values of the axes that have no other role; and the axes that do."""
    loads = [entry for entry in entries if entry["case"]["system"] not in CEILINGS]
    x, series = roles_of([entry["case"] for entry in loads])
    named = [axis for axis in varying([entry["case"] for entry in loads]) if axis not in (x, series)]
    panels = {}
    for entry in loads:
        case = entry["case"]
        key = tuple(case[axis] for axis in named)
        panel = panels.setdefault(key, Panel(title_of(case, named) if named else ""))
        panel.bars[case[x], case.get(series)] = entry[RATE]
    for entry, (key, panel) in itertools.product(entries, panels.items()):
        case = entry["case"]
        if case["system"] in CEILINGS and all(case.get(axis, value) == value for axis, value in zip(named, key)):
            where = [case[x]] if x in case else [key[0] for key in panel.bars]  # the same for all, if it does not vary
            panel.ceilings.setdefault(case["system"], {}).update(dict.fromkeys(where, entry[RATE]["median"]))
    return list(panels.values()), x, series


def draw_bars(axes, panel, xs, series):
    width = 0.8 / len(series)
    for (at, x), (number, one) in itertools.product(enumerate(xs), enumerate(series)):
        if (x, one) in panel.bars:
            bar = panel.bars[x, one]
            axes.bar(at + (number - (len(series) - 1) / 2) * width, bar["median"], width,
                     color=COLOURS[number % len(COLOURS)], error_kw={"lw": 0.8, "ecolor": "#404040"},
                     yerr=[[bar["median"] - bar["least"]], [bar["most"] - bar["median"]]])


def draw_ceilings(axes, panel, xs):
    for name, rates in panel.ceilings.items():
        for at, x in enumerate(xs):
            if x in rates:
                axes.hlines(rates[x], at - 0.45, at + 0.45, color="black", ls=CEILING_LINES[name], lw=1)


def legend_of(pyplot, series, names, panels):
    """Handles and labels; `names`: of the series."""
    handles = [pyplot.Rectangle((0, 0), 1, 1, color=COLOURS[at % len(COLOURS)]) for at in range(len(series))]
    ceilings = sorted({name for panel in panels for name in panel.ceilings})
    handles += [pyplot.Line2D([], [], color="black", ls=CEILING_LINES[name], lw=1) for name in ceilings]
    return handles, [*names, *(f"ceiling: {name}" for name in ceilings)]


def draw(panels, x_label, series_label, path, columns=2):
    """`x_label` and `series_label` name a value. Needs matplotlib."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    keys = [key for panel in panels for key in panel.bars]
    xs, series = (list(dict.fromkeys(key[at] for key in keys)) for at in (0, 1))
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure, grid = pyplot.subplots(rows, columns, figsize=(WIDTH, 0.5 + PANEL_HEIGHT * rows), squeeze=False,
                                   sharey=True, layout="constrained")
    for axes in grid.flat[len(panels):]:
        axes.set_visible(False)
    for axes, panel in zip(grid.flat, panels):
        draw_bars(axes, panel, xs, series)
        draw_ceilings(axes, panel, xs)
        axes.set_xticks(range(len(xs)), map(x_label, xs))
        axes.set_title(panel.title, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in grid[:, 0]:
        axes.set_ylabel("GB/s")
    handles, labels = legend_of(pyplot, series, map(series_label, series), panels)
    figure.legend(handles, labels, loc="outside lower center", ncols=min(6, len(labels)), frameon=False, fontsize=9,
                  columnspacing=1.4)
    figure.savefig(path, dpi=DPI)
    pyplot.close(figure)


def draw_result(result, path):
    """Returns why there is no picture, if there is none."""
    panels, x, series = panels_of(result["summary"])
    if not panels:
        return "nothing was measured"
    try:
        draw(panels, lambda value: in_words(x, value),
             lambda value: in_words(series, value) if series else "load", path)
    except ImportError as error:
        return f"matplotlib cannot be used: {error}"
    return ""
