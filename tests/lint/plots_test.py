"""The plots of safeshuffle bench and scripts/compare, drawn with whatever Python has matplotlib here.

usage: plots_test.py SCRIPTS

Exit code 77, by which ctest knows a skipped test, if none has it.
"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(sys.argv.pop())
sys.dont_write_bytecode = True
sys.path.insert(0, str(SCRIPTS))

from bench_samples import FIO, case, result_of, sample  # noqa: E402
from lib.comparison import results, systems  # noqa: E402
from lib.experiments import outputs, page, plotting  # noqa: E402
from lib.experiments.experiment import CEILINGS  # noqa: E402

SKIPPED = 77
PYTHON, OBSTACLE = plotting.find_python(print, install=False)
# Prints the share of pixels that are neither white nor grey, for each picture.
COLOURED_SHARES = """
import sys
from matplotlib.image import imread
for path in sys.argv[1:]:
    colours = imread(path)[:, :, :3]
    print((colours.max(2) - colours.min(2) > 0.1).mean())
"""
LEGEND_SHARE = 0.003  # more than the legend alone has


def coloured_shares(paths):
    done = subprocess.run([PYTHON, "-c", COLOURED_SHARES, *paths], capture_output=True, text=True, check=True)
    return dict(zip((path.name for path in paths), map(float, done.stdout.split())))


class Plots(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)

    def draw(self, module):
        """The pictures' names without ending; each must be there in both forms, and show more than a legend."""
        self.assertEqual(plotting.draw(module, [self.directory], print, install=False), "")
        pictures = sorted((self.directory / "plots").glob("*.png"))
        for name, share in coloured_shares(pictures).items():
            self.assertGreater(share, LEGEND_SHARE, name)
        self.assertEqual([path.stem for path in sorted((self.directory / "plots").glob("*.svg"))],
                         [path.stem for path in pictures])
        return [path.stem for path in pictures]


class Ceilings(unittest.TestCase):
    def test_each_has_a_line_of_its_own(self):
        code = "from lib.experiments import plots\nfor line in plots.CEILING_LINES.items(): print(*line)"
        done = subprocess.run([PYTHON, "-c", code], cwd=SCRIPTS, capture_output=True, text=True, check=True)
        lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
        self.assertEqual(set(lines), set(CEILINGS))
        self.assertEqual(len(set(lines.values())), len(lines))


class OfExperiments(Plots):
    PLOTS = [
        {"kind": "lines", "title": "Lines", "x": "ranks", "series": "dtype"},
        {"kind": "bars", "title": "Bars", "x": "dtype", "series": "ranks"},
        {"kind": "phases", "title": "Phases", "x": "ranks", "launch": True},
        {"kind": "heatmap", "title": "Map", "x": "ranks", "y": "dtype"},
        {"kind": "timeline", "title": "Timeline", "where": {"cache": "cold"}},
    ]

    def measure(self, plots):
        """Cold files only."""
        some = [sample(1.0 / ranks + 0.1 * turn, turn, ranks=ranks, dtype=dtype) for ranks in (1, 2)
                for dtype in ("keep", None) for turn in range(2)]
        rank = {"rank": 0, "phases": [["open", 0, 0.1], ["read", 0.1, 0.5]], "reading": [[0.1, 0.4]]}
        result = result_of(some, [FIO]) | {"timelines": [{"case": case(), "ranks": [rank]}]}
        result["identity"]["experiment"]["definition"] |= {"plots": plots}
        outputs.write(result, self.directory)

    def test_every_kind(self):
        self.measure(self.PLOTS)
        self.assertEqual(self.draw("lib.experiments.plots"),
                         [f"{at}-{plot['kind']}" for at, plot in enumerate(self.PLOTS, 1)])
        text = page.html([self.directory])
        self.assertEqual(text.count("<img src="), len(self.PLOTS))
        self.assertNotIn("There are no plots", text)

    def test_plots_of_what_was_not_measured_are_left_out(self):
        self.measure(self.PLOTS)
        self.draw("lib.experiments.plots")
        self.measure([plot | {"where": {"cache": "warm"}} for plot in self.PLOTS] + self.PLOTS[:1])
        self.assertEqual(self.draw("lib.experiments.plots"), [f"{len(self.PLOTS) + 1}-lines"])
        self.assertEqual(page.html([self.directory]).count("<img src="), 1)

    def test_plots_show_only_what_they_are_limited_to(self):
        code = """
import pathlib, sys
from lib.experiments import outputs, page, plots
result = outputs.read(pathlib.Path(sys.argv[1]))
experiment = page.experiment_of(result)
for plot in experiment.plots:
    axes = plots.DRAW[plot.kind](result, experiment, plot).axes[0]
    print(*(label.get_text() for label in axes.get_xticklabels()))
"""
        self.measure([{"kind": "bars", "title": "x", "x": "dtype", "series": "ranks", "where": {"dtype": "keep"}},
                      {"kind": "heatmap", "title": "z", "x": "ranks", "y": "dtype", "where": {"ranks": 2}}])
        done = subprocess.run([PYTHON, "-c", code, self.directory], cwd=SCRIPTS, capture_output=True, text=True,
                              check=True)
        self.assertEqual(done.stdout.splitlines(), ["keep", "2"])


class OfComparisons(Plots):
    def test_what_is_not_known_is_left_out(self):
        known = [{"cpu_seconds": 1.0, "peak_resident_bytes": 3e9}]
        some = [results.completed(systems.sample(1.0 + turn, 10**9, ranks), dtype="keep", cache="cold", ranks=2,
                                  turn=turn, position=0, system=system)
                for system, ranks in (("ours", known), ("other", [])) for turn in range(2)]
        outputs.write_text(self.directory / outputs.NAME, json.dumps(
            {"samples": results.with_outliers(some), "model": {"bytes": 10**9},
             "systems": [{"name": name} for name in ("ours", "other")]}))
        self.assertEqual(self.draw("lib.comparison.plots"), ["1-bars", "2-bars", "3-bars"])


if __name__ == "__main__":
    if OBSTACLE:
        print(OBSTACLE)
        sys.exit(SKIPPED)
    unittest.main()
