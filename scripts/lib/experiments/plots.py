"""Draws the plots of a measurement, with matplotlib: DIRECTORY/plots/*.svg and *.png.

usage: python3 -m lib.experiments.plots DIRECTORY...
"""

import itertools
import math
import pathlib
import sys
import textwrap

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.lines import Line2D  # noqa: E402
from matplotlib.patches import Patch, Rectangle  # noqa: E402

from lib.experiments import findings, outputs, page, samples  # noqa: E402
from lib.experiments.experiment import RATE  # noqa: E402
from lib.experiments.measurement import in_words  # noqa: E402

FIGURE_LABELS = {RATE: "GB/s", "cpu_seconds_per_gigabyte": "CPU s per GB", "peak_resident_gigabytes": "GB, all ranks"}
# Okabe and Ito's colours, which people with any colour vision can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442", "#999999")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
PHASE_COLOURS = {"launch": "#D9D9D9", "open": "#7F7F7F", "plan": "#F0E442", "allocate": "#CC79A7", "read": "#0072B2",
                 "h2d": "#56B4E9", "pack": "#E69F00", "exchange": "#009E73", "wait": "#D55E00"}
READING_COLOUR, IDEAL_COLOUR, CEILING_COLOUR, RUN_COLOUR = "#B5B5B5", "#8C8C8C", "#000000", "#404040"
WIDTH = 9.2  # inches
LEGEND_LETTERS, TICK_LETTERS = 115, 75  # that fit into it
WIDEST_TICK = 24
DPI = 150
STYLE = {
    "font.family": "DejaVu Sans", "font.size": 10, "axes.titlesize": 10, "axes.labelsize": 10,
    "xtick.labelsize": 9, "ytick.labelsize": 9, "legend.fontsize": 9, "figure.titlesize": 12,
    "figure.titleweight": "bold", "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
    "axes.grid": True, "grid.color": "#E3E3E3", "grid.linewidth": 0.8, "legend.frameon": False,
    "svg.hashsalt": "safeshuffle", "figure.dpi": DPI,
}
CEILING_LINES = {"fio": "-", "memory-copy": "-.", "cached-read": ":"}
IDEAL_STYLE = {"color": IDEAL_COLOUR, "linestyle": (0, (5, 3)), "linewidth": 1.2}


def axis_label(axis):
    return {"ranks": "ranks", "model": "", "cache": ""}.get(axis, f"--{axis}")


def size_of(result, name):
    """In words, if there is one model of the name."""
    sizes = [model["bytes"] for model in result["models"] if model["name"] == name]
    return f"{sizes[0] / 1e9:.2g} GB" if len(sizes) == 1 else ""


def ticks(result, axis, values, width):
    lines = [textwrap.wrap(str(page.shown_value(value)), width, break_long_words=False) for value in values]
    if axis == "model":
        lines = [[*parts, size_of(result, value)] for parts, value in zip(lines, values)]
    return ["\n".join(filter(None, parts)) for parts in lines]


class Panel:
    """The entries of the summary that one pair of axes shows: of those of the plot, those that its title names."""

    def __init__(self, result, plot, where):
        self.result, self.where = result, where
        self.entries = [entry for entry in entries_of(result, plot) if matches(entry["case"], where)]

    def title(self):
        return ", ".join(in_words(axis, value) for axis, value in self.where.items())

    def entry(self, **values):
        found = [entry for entry in self.entries if matches(entry["case"], values)]
        return found[0] if found else None

    def runs(self, entry):
        return [one for one in self.result["samples"] if one["case"] == entry["case"]]


def matches(case, where):
    return all(case[axis] == value for axis, value in where.items())


def entries_of(result, plot):
    return [entry for entry in result["summary"] if matches(entry["case"], plot.where)]


def values_of(experiment, plot, axis):
    """Those that the plot is not limited to leave out."""
    return [value for value in experiment.axes[axis] if plot.where.get(axis, value) == value]


def panels_of(result, experiment, plot, roles):
    """One panel per combination of the axes that have no role in the plot."""
    named = [axis for axis in experiment.axes if axis in experiment.distinct() and axis not in roles]
    chosen = itertools.product(*(values_of(experiment, plot, axis) for axis in named))
    found = [Panel(result, plot, dict(zip(named, values))) for values in chosen]
    return [panel for panel in found if panel.entries]


def make_figure(count, height, columns=None):
    columns = columns or (count if count < 3 else 2 if count in (3, 4) else 3)
    rows = math.ceil(count / columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(WIDTH, 0.9 + height * rows), squeeze=False,
                                   layout="constrained")
    flat = list(axes.flat)
    for unused in flat[count:]:
        unused.set_visible(False)
    return figure, flat[:count]


def legend_columns(handles):
    """As many as fit into the width; a handle takes as much as some six letters."""
    letters = 6 + max(len(handle.get_label()) for handle in handles)
    total = sum(6 + len(handle.get_label()) for handle in handles)
    return len(handles) if total <= LEGEND_LETTERS else max(1, LEGEND_LETTERS // letters)


def tick_width(grid, values):
    """Letters that there is room for below each."""
    return max(6, TICK_LETTERS // (grid[0].get_gridspec().ncols * len(values)))


def finish(figure, title, handles):
    figure.suptitle(title, x=0.01, ha="left")
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=legend_columns(handles), columnspacing=1.4,
                      handlelength=2.0)
    return figure


def draw_runs(axes, x, runs, figure=RATE, colour=RUN_COLOUR):
    """Each run as a dot, with room between them; outliers are hollow."""
    for at, one in enumerate(runs):
        offset = 0.07 * (at - (len(runs) - 1) / 2) / max(1, len(runs) - 1)
        axes.plot(x + offset, one[figure], marker="o", markersize=3.6, linestyle="none", zorder=4,
                  markerfacecolor="none" if one["outlier"] else colour, markeredgecolor=colour,
                  markeredgewidth=0.8, alpha=1 if one["outlier"] else 0.55)


def whiskers(entries, figure=RATE):
    """Distances of least and most from the median."""
    values = [entry[figure] for entry in entries]
    return [[value["median"] - value["least"] for value in values],
            [value["most"] - value["median"] for value in values]]


def medians(entries, figure=RATE):
    return [entry[figure]["median"] for entry in entries]


def ceilings(panel, entries):
    """GB/s for each of the entries by name, of the ceilings that all of them have."""
    found = [findings.ceilings_of(panel.result, entry["case"]) for entry in entries]
    return {name: [limits[name] for limits in found] for name in found[0] if all(name in limits for limits in found)}


def ceiling_style(name):
    return {"color": CEILING_COLOUR, "linestyle": CEILING_LINES[name], "linewidth": 1.2}


def series_values(experiment, plot):
    return values_of(experiment, plot, plot.series) if plot.series else [None]


def series_label(plot, value):
    return in_words(plot.series, value) if plot.series else "median"


def draw_line(axes, panel, values, plot, series, style):
    wanted = {plot.series: series} if plot.series else {}
    there = [(at, panel.entry(**{plot.x: value}, **wanted)) for at, value in enumerate(values)]
    there = [(at, entry) for at, entry in there if entry]
    if not there:
        return 0
    at, entries = zip(*there)
    axes.errorbar(at, medians(entries), yerr=whiskers(entries), capsize=3, linewidth=1.8, elinewidth=1, zorder=3,
                  **style)
    own = {"color": style["color"]} if plot.series else {}  # so that one can tell to which of the lines it belongs
    for x, entry in there:
        draw_runs(axes, x, panel.runs(entry), colour=own.get("color", RUN_COLOUR))
    if plot.x == "ranks":
        base = entries[0]
        axes.plot(at, [medians([base])[0] * entry["case"]["ranks"] / base["case"]["ranks"] for entry in entries],
                  zorder=1, **IDEAL_STYLE | own)
    tops = [entry["gigabytes_per_second"]["most"] for entry in entries]
    for name, limits in ceilings(panel, entries).items():
        draw_ceiling(axes, at, limits, name)
        tops += limits
    return max(tops)


def draw_ceiling(axes, at, limits, name):
    """A little beyond the first and the last."""
    axes.plot([at[0] - 0.2, *at, at[-1] + 0.2], [limits[0], *limits, limits[-1]], zorder=2, **ceiling_style(name))


def ceiling_handles(result, panels):
    names = sorted({name for panel in panels for entry in panel.entries
                    for name in findings.ceilings_of(result, entry["case"])})
    return [Line2D([], [], label=f"ceiling: {name}", **ceiling_style(name)) for name in names]


def run_handles(panels):
    dot = {"color": RUN_COLOUR, "marker": "o", "markersize": 3.6, "linestyle": "none"}
    handles = [Line2D([], [], label="one run", alpha=0.55, **dot)]
    if any(entry["outliers"] for panel in panels for entry in panel.entries):
        handles.append(Line2D([], [], label="outlier", markerfacecolor="none", **dot))
    return handles


def draw_lines(result, experiment, plot):
    panels = panels_of(result, experiment, plot, {plot.x, plot.series})
    figure, grid = make_figure(len(panels), 3.1)
    values = values_of(experiment, plot, plot.x)
    styles = [{"color": colour, "marker": marker, "markersize": 5} for colour, marker in zip(COLOURS, MARKERS)]
    for axes, panel in zip(grid, panels):
        tops = [draw_line(axes, panel, values, plot, series, styles[at % len(styles)])
                for at, series in enumerate(series_values(experiment, plot))]
        axes.set(title=panel.title(), xlabel=axis_label(plot.x), ylabel="GB/s", ylim=(0, 1.12 * max(tops)),
                 xlim=(-0.35, len(values) - 0.65))
        axes.set_xticks(range(len(values)), ticks(result, plot.x, values, tick_width(grid, values)))
        axes.grid(axis="x", visible=False)
    handles = [Line2D([], [], label=series_label(plot, value), **styles[at % len(styles)])
               for at, value in enumerate(series_values(experiment, plot))]
    ideal = [Line2D([], [], label="ideal", **IDEAL_STYLE)] if plot.x == "ranks" else []
    return finish(figure, plot.title, handles + run_handles(panels) + ideal + ceiling_handles(result, panels))


def draw_bar_group(axes, panel, plot, at, value, all_series):
    width = 0.8 / len(all_series)
    for number, series in enumerate(all_series):
        entry = panel.entry(**{plot.x: value}, **({plot.series: series} if plot.series else {}))
        if entry is None or entry[plot.figure] is None:
            continue
        x, height = at + width * (number - (len(all_series) - 1) / 2), medians([entry], plot.figure)
        axes.bar(x, height, 0.9 * width, color=COLOURS[number % len(COLOURS)], alpha=0.85, zorder=2)
        axes.errorbar(x, height, yerr=whiskers([entry], plot.figure), color="#202020", elinewidth=1, capsize=2.5,
                      linestyle="none", zorder=3)
        draw_runs(axes, x, panel.runs(entry), plot.figure)
        for name, [limit] in ceilings(panel, [entry]).items() if plot.figure == RATE else ():
            axes.plot([x - width / 2, x + width / 2], [limit, limit], zorder=3, **ceiling_style(name))


def draw_bars(result, experiment, plot):
    panels = panels_of(result, experiment, plot, {plot.x, plot.series})
    values, all_series = values_of(experiment, plot, plot.x), series_values(experiment, plot)
    figure, grid = make_figure(len(panels), 3.1, 1 if len(values) * len(all_series) > 12 else None)
    for axes, panel in zip(grid, panels):
        for at, value in enumerate(values):
            draw_bar_group(axes, panel, plot, at, value, all_series)
        axes.set(title=panel.title(), xlabel=axis_label(plot.x), ylabel=FIGURE_LABELS[plot.figure],
                 xlim=(-0.6, len(values) - 0.4))
        axes.set_xticks(range(len(values)), ticks(result, plot.x, values, tick_width(grid, values)))
        axes.grid(axis="x", visible=False)
        axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
    handles = [Patch(label=series_label(plot, value), color=COLOURS[at % len(COLOURS)], alpha=0.85)
               for at, value in enumerate(all_series)]
    ceiling = ceiling_handles(result, panels) if plot.figure == RATE else []
    return finish(figure, plot.title, handles + run_handles(panels) + ceiling)


def phase_names(plot):
    return (("launch",) if plot.launch else ()) + samples.PHASES


def used_phases(plot, panels):
    """Those in which any time was spent that can be seen."""
    entries = [entry for panel in panels for entry in panel.entries]
    longest = max(sum(entry[f"{name}_seconds"]["median"] for name in phase_names(plot)) for entry in entries)
    return [name for name in phase_names(plot)
            if any(entry[f"{name}_seconds"]["median"] > longest / 500 for entry in entries)]


def draw_stack(axes, at, entry, names, total):
    """`total`: what the number beside it is the median of. Medians of the phases need not add up to that."""
    left = 0
    for name in names:
        seconds = entry[f"{name}_seconds"]["median"]
        axes.barh(at, seconds, 0.66, left=left, color=PHASE_COLOURS[name], zorder=2, edgecolor="white", linewidth=0.5)
        left += seconds
    axes.text(left, at, f" {entry[total]['median']:.2f} s", va="center", ha="left", fontsize=9)
    return left


def draw_phases(result, experiment, plot):
    panels = panels_of(result, experiment, plot, {plot.x})
    values, names = values_of(experiment, plot, plot.x), used_phases(plot, panels)
    total = "wall_seconds" if plot.launch else "seconds"
    figure, grid = make_figure(len(panels), 0.75 + (0.5 if plot.x == "model" else 0.36) * len(values))
    for axes, panel in zip(grid, panels):
        there = [(at, panel.entry(**{plot.x: value})) for at, value in enumerate(values)]
        longest = max(draw_stack(axes, at, entry, names, total) for at, entry in there if entry)
        axes.set(title=panel.title(), xlabel="seconds", ylabel=axis_label(plot.x), xlim=(0, 1.18 * longest))
        axes.set_yticks(range(len(values)), ticks(result, plot.x, values, WIDEST_TICK))
        axes.set_ylim(len(values) - 0.4, -0.6)
        axes.grid(axis="y", visible=False)
    return finish(figure, plot.title, [Patch(label=name, color=PHASE_COLOURS[name]) for name in names])


def cell_entries(panel, plot, columns, rows):
    return [[panel.entry(**{plot.x: column, plot.y: row}) for column in columns] for row in rows]


def cell_values(entries):
    return [[math.nan if entry is None else medians([entry])[0] for entry in line] for line in entries]


def label_cells(axes, entries, shades):
    """With the best framed, if it can be told."""
    best = findings.clearly_fastest([entry for line in entries for entry in line if entry])
    for row, line in enumerate(entries):
        for column, entry in enumerate(line):
            if entry is None:
                continue
            [value] = medians([entry])
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=9,
                      color="white" if shades.norm(value) > 0.55 else "#202020",
                      fontweight="bold" if entry is best else "normal")
            if entry is best:
                axes.add_patch(Rectangle((column - 0.47, row - 0.45), 0.94, 0.9, fill=False, edgecolor="#D55E00",
                                         linewidth=2))


def draw_heatmap(result, experiment, plot):
    panels = panels_of(result, experiment, plot, {plot.x, plot.y})
    columns, rows = values_of(experiment, plot, plot.x), values_of(experiment, plot, plot.y)
    figure, grid = make_figure(len(panels), 1.0 + 0.42 * len(rows))
    there = [value for panel in panels for value in medians(panel.entries)]
    for axes, panel in zip(grid, panels):
        entries = cell_entries(panel, plot, columns, rows)
        shades = axes.imshow(cell_values(entries), cmap="cividis_r", vmin=min(there), vmax=max(there), aspect="auto")
        label_cells(axes, entries, shades)
        axes.set(title=panel.title(), xlabel=axis_label(plot.x), ylabel=axis_label(plot.y))
        axes.set_xticks(range(len(columns)), ticks(result, plot.x, columns, tick_width(grid, columns)))
        axes.set_yticks(range(len(rows)), ticks(result, plot.y, rows, WIDEST_TICK))
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
    figure.colorbar(shades, ax=grid, label="GB/s", shrink=0.9, pad=0.02).outline.set_visible(False)
    return finish(figure, plot.title, [])


def draw_rank(axes, at, rank):
    for name, begin, seconds in rank["phases"]:
        axes.broken_barh([(begin, seconds)], (at - 0.36, 0.44), color=PHASE_COLOURS.get(name, "#000000"), linewidth=0)
    axes.broken_barh(rank["reading"], (at + 0.12, 0.2), color=READING_COLOUR, linewidth=0)


def draw_timeline(result, experiment, plot):
    matching = [found for found in result["timelines"] if matches(found["case"], plot.where)]
    if not matching:
        return None
    ranks = max(matching, key=lambda found: found["case"]["ranks"])["ranks"]
    figure, [axes] = make_figure(1, 0.6 + 0.42 * min(len(ranks), 32))
    for at, rank in enumerate(ranks):
        draw_rank(axes, at, rank)
    axes.set(xlabel="seconds since the rank started to load", ylim=(len(ranks) - 0.5, -0.6), xlim=(0, None))
    axes.set_yticks(range(len(ranks)), [f"rank {rank['rank']}" for rank in ranks])
    axes.grid(axis="y", visible=False)
    total = max(begin + seconds for rank in ranks for _, begin, seconds in rank["phases"])
    there = [name for name in PHASE_COLOURS
             if any(sum(part[2] for part in rank["phases"] if part[0] == name) > total / 500 for rank in ranks)]
    handles = [Patch(label=name, color=PHASE_COLOURS[name]) for name in there]
    reading = [Patch(label="reads in progress", color=READING_COLOUR)] if any(rank["reading"] for rank in ranks) else []
    return finish(figure, plot.title, handles + reading)


DRAW = {"lines": draw_lines, "bars": draw_bars, "phases": draw_phases, "heatmap": draw_heatmap,
        "timeline": draw_timeline}


def save(figure, svg):
    """And a PNG beside it."""
    svg.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(svg, metadata={"Date": None})
    figure.savefig(svg.with_suffix(".png"), dpi=DPI, metadata={"Software": None})
    pyplot.close(figure)


def remove(svg):
    """And the PNG, of results that were drawn before: the page shows whatever is there."""
    for picture in (svg, svg.with_suffix(".png")):
        picture.unlink(missing_ok=True)


def draw(directory, result, experiment):
    for at, plot in enumerate(experiment.plots):
        figure = DRAW[plot.kind](result, experiment, plot) if entries_of(result, plot) else None
        svg = page.plot_path(directory, at, plot)
        if figure:
            save(figure, svg)
        else:
            remove(svg)


def main(experiment_of=page.experiment_of, read=outputs.read):
    pyplot.rcParams.update(STYLE)
    for directory in map(pathlib.Path, sys.argv[1:]):
        result = read(directory)
        draw(directory, result, experiment_of(result))


if __name__ == "__main__":
    main()
