"""The plots of safeshuffle bench, scripts/compare and docs/results.md, which are only drawn if this Python has
matplotlib.

usage: plots_test.py SCRIPTS
"""

import importlib.util
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(sys.argv.pop())
sys.dont_write_bytecode = True
sys.path.insert(0, str(SCRIPTS))

from lib.measure import plot  # noqa: E402
from script_loading import load_script  # noqa: E402

LEGEND_SHARE = 0.003  # of the pixels: more than the legend alone has


def entry(rate, **case):
    return {"case": case, plot.RATE: {"median": rate, "least": 0.9 * rate, "most": 1.1 * rate}}


OF_EXPERIMENT = [entry(1.0 + at, model=model, cache="cold", ranks=ranks, system="safeshuffle")
                 for at, (model, ranks) in enumerate([("a", 1), ("a", 2), ("b", 1), ("b", 2)])]
FIO = entry(3.0, model="a", cache="cold", system="fio")  # whatever the number of ranks
OF_COMPARISON = [entry(1.0 + at, dtype="keep", cache=cache, ranks=2, system=system)
                 for at, (cache, system) in enumerate([("cold", "ours"), ("cold", "other"), ("warm", "ours")])]
OF_SWEEP = [entry(1.0, cache="cold", ranks=2, io=io, threads=threads, system="safeshuffle")
            for io in ("posix", "uring") for threads in (1, None)]


class Panels(unittest.TestCase):
    def test_a_panel_for_each_value_of_an_axis_that_has_no_role(self):
        first, second = plot.panels_of([*OF_EXPERIMENT, FIO])[0]
        self.assertEqual((first.title, second.title), ("a", "b"))
        self.assertEqual({key: bar["median"] for key, bar in first.bars.items()}, {(1, None): 1.0, (2, None): 2.0})
        self.assertEqual((first.ceilings, second.ceilings), ({"fio": {1: 3.0, 2: 3.0}}, {}))

    def test_systems_are_series(self):
        (cold, warm), x, series = plot.panels_of(OF_COMPARISON)
        self.assertEqual((cold.title, warm.title, series), ("cold", "warm", "system"))
        self.assertEqual(list(cold.bars), [(2, "ours"), (2, "other")])

    def test_options_where_the_number_of_ranks_is_one(self):
        panels, x, series = plot.panels_of(OF_SWEEP)
        self.assertEqual((len(panels), x, series), (1, "threads", "io"))


@unittest.skipUnless(importlib.util.find_spec("matplotlib"), "matplotlib is missing")
class Pictures(unittest.TestCase):
    def assert_drawn(self, path):
        from matplotlib.image import imread

        colours = imread(path)[:, :, :3]
        self.assertGreater((colours.max(2) - colours.min(2) > 0.1).mean(), LEGEND_SHARE, path)

    def test_results(self):
        with tempfile.TemporaryDirectory() as directory:
            for name, entries in (("a", [*OF_EXPERIMENT, FIO]), ("b", OF_COMPARISON), ("c", OF_SWEEP)):
                path = Path(directory, f"{name}.png")
                self.assertEqual(plot.draw_result({"summary": entries}, path), "")
                self.assert_drawn(path)
            self.assertEqual(plot.draw_result({"summary": []}, path), "nothing was measured")

    def test_those_of_the_documentation(self):
        script = load_script(SCRIPTS, "plot-results")
        data = script.RESULTS / "compare.csv"
        with tempfile.TemporaryDirectory() as directory:
            script.RESULTS = Path(directory)
            (script.RESULTS / data.name).write_bytes(data.read_bytes())
            script.main()
            for name in script.PICTURES:
                self.assert_drawn(script.RESULTS / f"{name}.png")


if __name__ == "__main__":
    unittest.main()
