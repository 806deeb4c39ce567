"""scripts/prediction-error: what it computes, without loading anything.

usage: prediction_error_test.py SCRIPTS
"""

import contextlib
import importlib.machinery
import importlib.util
import io
import sys
import unittest
from pathlib import Path

SCRIPTS = Path(sys.argv.pop())
sys.dont_write_bytecode = True
sys.path.insert(0, str(SCRIPTS))


def load_script(name):
    loader = importlib.machinery.SourceFileLoader(name, str(SCRIPTS / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


script = load_script("prediction-error")
POINT = ("warm", 2, "sliced", "keep")


def sample(measured, simulated, planned, open_and_plan=0.0):
    """A load on two ranks, of which the second is the slower one."""
    rank = {"total_seconds": measured, "phases": {"open": open_and_plan / 4, "plan": open_and_plan * 3 / 4}}
    faster = {"total_seconds": measured / 4, "phases": {"open": 0.0, "plan": 0.0}}
    return {"load": {"seconds": measured, "ranks": [faster, rank]}, "simulate": {"seconds": simulated},
            "plan": {"seconds": {"total": planned}}}  # fmt: skip


def printed(function, *arguments):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        function(*arguments)
    return out.getvalue()


class Points(unittest.TestCase):
    def test_every_combination_is_measured_once(self):
        points = script.points([1, 2, 4])
        self.assertEqual(len(points), len(set(points)))
        self.assertEqual(len(points), 2 * 2 * (1 + 3 + 3))
        self.assertEqual({point[2] for point in points if point[1] == 1}, {"round-robin"})
        self.assertEqual({point[2] for point in points if point[1] == 4}, set(script.ASSIGNMENTS))


class Errors(unittest.TestCase):
    def test_a_turn_is_compared_with_its_own_prediction(self):
        # 3, 0.5 and 0.9 of what was measured; the ratio of the medians would be 1.
        result = script.result(POINT, [sample(1.0, 3.0, 1.0), sample(4.0, 2.0, 4.0), sample(2.0, 1.8, 2.0)])
        self.assertAlmostEqual(result["error"]["simulate"], -0.1)
        self.assertAlmostEqual(result["error"]["plan"], 0)
        self.assertEqual((result["cache"], result["ranks"], result["assignment"], result["dtype"]), POINT)

    def test_what_predictions_leave_out_is_left_out(self):
        result = script.result(POINT, [sample(2.0, 1.0, 2.0, open_and_plan=1.0)])
        self.assertAlmostEqual(result["error"]["simulate"], -0.5)
        self.assertAlmostEqual(result["error_after_planning"]["simulate"], 0)
        self.assertAlmostEqual(result["error_after_planning"]["plan"], 1)

    def test_errors_in_either_direction_do_not_cancel_out(self):
        results = [script.result(POINT, [sample(1.0, simulated, 1.0)]) for simulated in (0.5, 1.5, 1.2)]
        self.assertIn("simulate 50%, plan --predict 0% (3 points)", printed(script.print_median, "all", results))

    def test_a_row_has_medians_and_spread(self):
        result = script.result(POINT, [sample(1.0, 1.1, 2.0), sample(2.0, 2.2, 4.0), sample(3.0, 3.3, 6.0)])
        row = printed(script.print_table, [result]).splitlines()[-1]
        self.assertEqual(row, "| warm | 2 | sliced | keep | 2.000 (1.000–3.000) | 2.200 (1.100–3.300) | +10% "
                              "| 4.000 (2.000–6.000) | +100% |")  # fmt: skip


if __name__ == "__main__":
    unittest.main()
