"""scripts/prediction-error: what it measures and computes, without loading anything.

usage: prediction_error_test.py SCRIPTS
"""

import contextlib
import io
import os
import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

from script_loading import load_script

SCRIPTS = Path(sys.argv.pop())
sys.dont_write_bytecode = True
sys.path.insert(0, str(SCRIPTS))

from lib.experiments import experiment as experiments  # noqa: E402

script = load_script(SCRIPTS, "prediction-error")
CASE = {"model": "four layers", "cache": "warm", "ranks": 2, "assign": "sliced"}


def chosen(*names):
    options = types.SimpleNamespace(experiments=list(names), ranks=[1, 2], quick=False)
    return {experiment.name: experiment for experiment in script.chosen_experiments(options)}


def sample(measured, simulated, planned, open_and_plan=0.0, assignments=("sliced", "sliced")):
    """A load on two ranks, of which the second is the slower one. `assignments`: the load's and the prediction's."""
    rank = {"total_seconds": measured, "phases": {"open": open_and_plan / 4, "plan": open_and_plan * 3 / 4}}
    faster = {"total_seconds": measured / 4, "phases": {"open": 0.0, "plan": 0.0}}
    loaded, predicted = assignments
    return {"load": {"seconds": measured, "assignment": loaded, "ranks": [faster, rank]},
            "simulate": {"seconds": simulated, "assignment": predicted},
            "plan": {"seconds": {"total": planned}}}  # fmt: skip


def printed(function, *arguments):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        function(*arguments)
    return out.getvalue()


class Experiments(unittest.TestCase):
    def test_all_that_can_be_predicted_are_by_default(self):
        there = set(experiments.built_in(script.EXPERIMENTS))
        self.assertEqual(there - set(chosen()), {"reading"})

    def test_one_that_cannot_be_predicted_is_refused(self):
        with self.assertRaisesRegex(experiments.Invalid, "reading varies --chunk"):
            chosen("reading")

    def test_ranks_are_those_of_the_experiment(self):
        found = chosen("strong-scaling", "files")
        self.assertEqual([found["strong-scaling"].ranks, found["files"].ranks], [(1, 2), (4,)])


class Measuring(unittest.TestCase):
    def test_what_the_last_load_kept_in_the_page_cache_is_not_in_the_way_of_probes(self):
        preparer = mock.Mock()
        with mock.patch.multiple(script, probe=preparer.probe, announce=lambda _: None, predict=lambda *_: {},
                                 load=lambda *_: preparer.load()), \
             mock.patch.object(script.page_cache, "Preparer", return_value=preparer):
            script.measure(types.SimpleNamespace(turns=2), chosen("assignment")["assignment"], mock.Mock())
        names = [call[0] for call in preparer.mock_calls]
        loads = ["load"] * (len(names) // 2 - 2)
        self.assertEqual(names, ["release", "probe", *loads] * 2)

    def test_each_turn_has_its_own_probes_and_every_load_once(self):
        experiment = chosen("assignment")["assignment"]
        made = mock.Mock()
        events = []
        probe = mock.Mock(side_effect=lambda *_: events.append("probe") or f"after {len(events)}")
        with mock.patch.multiple(script, probe=probe, announce=lambda _: None,
                                 load=lambda _options, _preparer, _model, case: events.append(tuple(case.values())),
                                 predict=lambda *_: {}):
            probes, samples = script.measure(types.SimpleNamespace(turns=3), experiment, made)
        cases = len(experiment.cases())
        self.assertEqual([len(of_case) for of_case in samples], [3] * cases)
        self.assertEqual([at for at, event in enumerate(events) if event == "probe"],
                         [0, cases + 1, 2 * (cases + 1)])  # fmt: skip
        self.assertEqual(len(set(events[1 : cases + 1])), cases)
        self.assertEqual(probes, ["after 1", f"after {cases + 2}", f"after {2 * cases + 3}"])


class Cache(unittest.TestCase):
    def test_only_probes_are_kept_elsewhere(self):
        for before in ({}, {"XDG_CACHE_HOME": "/before"}):
            with mock.patch.dict("os.environ", before):
                if not before:
                    os.environ.pop("XDG_CACHE_HOME", None)
                with contextlib.suppress(KeyError), script.probes_kept_in("/probes"):
                    self.assertEqual(os.environ["XDG_CACHE_HOME"], "/probes")
                    raise KeyError
                self.assertEqual(os.environ.get("XDG_CACHE_HOME"), before.get("XDG_CACHE_HOME"))


class Errors(unittest.TestCase):
    def test_a_turn_is_compared_with_its_own_prediction(self):
        # 3, 0.5 and 0.9 of what was measured; the ratio of the medians would be 1.
        result = script.result(CASE, [sample(1.0, 3.0, 1.0), sample(4.0, 2.0, 4.0), sample(2.0, 1.8, 2.0)])
        self.assertAlmostEqual(result["error"]["simulate"], -0.1)
        self.assertAlmostEqual(result["error"]["plan"], 0)
        self.assertEqual(result["case"], CASE)

    def test_what_predictions_leave_out_is_left_out(self):
        result = script.result(CASE, [sample(2.0, 1.0, 2.0, open_and_plan=1.0)])
        self.assertAlmostEqual(result["error"]["simulate"], -0.5)
        self.assertAlmostEqual(result["error_after_planning"]["simulate"], 0)
        self.assertAlmostEqual(result["error_after_planning"]["plan"], 1)

    def test_errors_in_either_direction_do_not_cancel_out(self):
        results = [script.result(CASE, [sample(1.0, simulated, 1.0)]) for simulated in (0.5, 1.5, 1.2)]
        self.assertIn("simulate 50%, plan --predict 0% (3 points)", printed(script.print_median, "all", results))

    def test_the_median_with_the_sign_tells_the_direction(self):
        results = [script.result(CASE, [sample(1.0, simulated, 1.0)]) for simulated in (0.5, 0.8, 1.6)]
        self.assertIn("with the sign: simulate -20%, plan --predict +0% (3 points)",
                      printed(script.print_medians, results))  # fmt: skip

    def test_predictions_for_another_assignment_are_told(self):
        pairs = (("striped", "sliced"), ("sliced", "sliced"), ("striped", "sliced"))
        result = script.result(CASE, [sample(1.0, 1.0, 1.0, assignments=pair) for pair in pairs])
        self.assertEqual(printed(script.print_other_assignments, chosen("assignment")["assignment"], [result]),
                         "\npredicted for another assignment, sliced, than the load had, striped: "
                         "warm, 2 ranks, --assign sliced, 2 of 3 turns\n")  # fmt: skip
        alike = script.result(CASE, [sample(1.0, 1.0, 1.0)])
        self.assertEqual(printed(script.print_other_assignments, chosen("assignment")["assignment"], [alike]), "")

    def test_results_name_the_commit_and_the_command(self):
        with tempfile.NamedTemporaryFile() as command:
            command.write(b"abc")
            command.flush()
            with mock.patch.object(script.builds, "described", return_value="1234 with changes"):
                identity = script.identity(command.name)
        sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, B.1
        self.assertEqual(identity, {"schema_version": script.SCHEMA_VERSION, "commit": "1234 with changes",
                                    "command_sha256": sha256})  # fmt: skip

    def test_a_row_has_medians_and_spread(self):
        result = script.result(CASE, [sample(1.0, 1.1, 2.0), sample(2.0, 2.2, 4.0), sample(3.0, 3.3, 6.0)])
        row = printed(script.print_table, chosen("assignment")["assignment"], [result]).splitlines()[-1]
        self.assertEqual(row, "| warm | 2 | sliced | 2.000 (1.000–3.000) | 2.200 (1.100–3.300) | +10% "
                              "| 4.000 (2.000–6.000) | +100% |")  # fmt: skip


if __name__ == "__main__":
    unittest.main()
