"""Draws how far predictions are from loads, with matplotlib: DIRECTORY/plots/errors.svg and .png.

usage: python3 -m lib.prediction_plot DIRECTORY...
"""

import pathlib
import statistics
import sys

from matplotlib import pyplot
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

from lib import page_cache
from lib.experiments import outputs, plots

HOW = {"simulate": "safeshuffle simulate", "plan": "safeshuffle plan --predict"}
AIM = 0.15  # of the median error
STYLES = {state: {"color": colour, "marker": marker}
          for state, colour, marker in zip(page_cache.STATES, plots.COLOURS, plots.MARKERS)}
AIM_STYLE = {"color": "#E3E3E3", "linewidth": 0, "zorder": 0}


def draw_points(axes, results, how):
    """A point has medians; its line goes from the fastest load to the slowest."""
    for each in results:
        measured, predicted = each["seconds"], statistics.median(each["predicted_seconds"][how])
        style = STYLES[each["case"]["cache"]]
        axes.plot([min(measured), max(measured)], [predicted, predicted], color=style["color"], alpha=0.25, linewidth=1)
        axes.plot(statistics.median(measured), predicted, markersize=5, alpha=0.7, linestyle="none", **style)


def draw_aim(axes, ends):
    axes.plot(ends, ends, zorder=1, **plots.IDEAL_STYLE)
    axes.fill_between(ends, [(1 - AIM) * end for end in ends], [(1 + AIM) * end for end in ends], **AIM_STYLE)


def ends_of(results):
    """The least and the most seconds, with some room."""
    seconds = [second for each in results for values in (each["seconds"], *each["predicted_seconds"].values())
               for second in values]
    return 0.9 * min(seconds), 1.1 * max(seconds)


def draw(results):
    figure, grid = plots.make_figure(len(HOW), 3.7)
    ends = ends_of(results)
    for axes, (how, title) in zip(grid, HOW.items()):
        axes.set(title=title, xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="measured, seconds",
                 ylabel="predicted, seconds", aspect="equal")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(FormatStrFormatter("%g"))
            axis.set_minor_formatter(NullFormatter())
        draw_aim(axes, ends)
        draw_points(axes, results, how)
    handles = [Line2D([], [], label=state, linestyle="none", markersize=5, **style) for state, style in STYLES.items()]
    handles += [Line2D([], [], label="as predicted", **plots.IDEAL_STYLE),
                Patch(label=f"within {AIM:.0%}", **AIM_STYLE)]
    return plots.finish(figure, "Predicted and measured seconds", handles)


def main():
    pyplot.rcParams.update(plots.STYLE)
    for directory in map(pathlib.Path, sys.argv[1:]):
        results = [each for one in outputs.read(directory)["experiments"] for each in one["results"]]
        plots.save(draw(results), directory / "plots" / "errors.svg")


if __name__ == "__main__":
    main()
