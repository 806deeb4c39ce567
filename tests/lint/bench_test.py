"""safeshuffle bench: what it accepts, continues, computes and writes, without loading anything.

usage: bench_test.py SCRIPTS
"""

import contextlib
import csv
import dataclasses
import io
import json
import re
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

SCRIPTS = Path(sys.argv.pop())
sys.dont_write_bytecode = True
sys.path.insert(0, str(SCRIPTS))

from lib import figures, progress, safeshuffle, turns  # noqa: E402
from lib.experiments import experiment as experiments  # noqa: E402
from lib.experiments import findings, launch, measurement, models, outputs, page, plotting, samples  # noqa: E402
from lib.experiments import timeline  # noqa: E402
from bench_samples import DEFINITION, FIO, case, checked, report, result_of, sample  # noqa: E402
from script_loading import load_script  # noqa: E402

EXPERIMENTS = SCRIPTS.parent / "configs" / "experiments"
class Validation(unittest.TestCase):
    def refused(self, message, **changes):
        definition = {name: value for name, value in (DEFINITION | changes).items() if value != "absent"}
        with self.assertRaises(experiments.Invalid) as refused:
            checked(definition)
        self.assertRegex(str(refused.exception), message)

    def test_built_in_experiments(self):
        there = experiments.built_in(EXPERIMENTS)
        self.assertIn("strong-scaling", there)
        for path in there.values():
            for quick in (False, True):
                experiment = experiments.read(path, quick)
                self.assertTrue(experiment.plots, path)
                for model in experiment.models:
                    built_in = EXPERIMENTS.parent / "layouts" / f"{model.like}.json"
                    self.assertTrue(built_in.is_file() or Path(model.like).is_file(), f"{path}: {model.like}")

    def test_layout_files_are_named_from_the_experiment(self):
        definition = DEFINITION | {"models": [{"like": "layouts/x.json", "scale": 1}, {"like": "bloom-176b", "scale": 1}]}
        found = experiments.check("/there/e.json", "e", definition).models
        self.assertEqual([model.like for model in found], ["/there/layouts/x.json", "bloom-176b"])
        self.assertEqual([model.name for model in found], ["layouts/x.json", "bloom-176b"])

    def test_cases_are_all_combinations(self):
        cases = checked().cases()
        self.assertEqual(len(cases), 2 * 2 * 2)
        self.assertEqual(cases[0], {"model": "small", "ranks": 1, "cache": "cold", "dtype": "keep", "chunk": "1MiB"})
        self.assertEqual(checked().distinct(), ["cache", "ranks", "dtype"])

    def test_quick_replaces(self):
        self.assertEqual((checked().turns, checked(quick=True).turns), (3, 1))
        self.refused(r"^e.json: quick\.title: is an unknown key", quick={"title": "x"})

    def test_errors_name_the_file_and_the_key(self):
        self.refused(r"^e\.json: title: is missing$", title="absent")
        self.refused(r"^e\.json: turns: 0 is not a whole number above 0$", turns=0)
        self.refused(r"^e\.json: turns: true is not", turns=True)
        self.refused(r"^e\.json: schema_version: 2 is not 1", schema_version=2)
        self.refused(r"^e\.json: colour: is an unknown key$", colour="red")
        self.refused(r"^e\.json: ranks: \[1, 1\] is not", ranks=[1, 1])
        self.refused(r"^e\.json: ranks: \[\] is not", ranks=[])
        self.refused(r"^e\.json: cache: \[\"hot\"\] is not a list of different ones of cold, warm$", cache=["hot"])
        self.refused(r"^e\.json: ceilings: .* fio, memory-copy, cached-read$", ceilings=["peak"])

    def test_errors_in_models(self):
        self.refused(r"^e\.json: models\[0\]\.scale: 2 is not above 0", models=[{"like": "x", "scale": 2}])
        self.refused(r"^e\.json: models\[0\]\.size: is an unknown key", models=[{"like": "x", "scale": 1, "size": 3}])
        self.refused(r"^e\.json: models\[0\]\.skew: needs files", models=[{"like": "x", "scale": 1, "skew": 3}])
        twice = [{"name": "a", "like": "x", "scale": 1}, {"name": "a", "like": "y", "scale": 1}]
        self.refused(r"^e\.json: models: two have the same name$", models=twice)

    def test_errors_in_options_of_load(self):
        self.refused(r"^e\.json: load\.io: \[\"fast\"\] is not .* posix, uring, gds$", load={"io": ["fast"]})
        self.refused(r"^e\.json: load\.threads: \[0\] is not", load={"threads": [0]})
        self.refused(r"^e\.json: load\.window: \[\"64 MiB\"\] is not .* size", load={"window": ["64 MiB"]})
        self.refused(r"^e\.json: load\.report: is an unknown key", load={"report": ["x.json"]})

    def test_errors_in_plots(self):
        plot = {"kind": "lines", "title": "Rates", "x": "ranks"}
        self.refused(r"^e\.json: plots\[0\]\.x: \"threads\" is not an axis of this experiment: model, cache, ranks",
                     plots=[plot | {"x": "threads"}])
        self.refused(r"^e\.json: plots\[0\]\.kind: \"pie\" is not one of", plots=[plot | {"kind": "pie"}])
        self.refused(r"^e\.json: plots\[0\]\.y: is an unknown key", plots=[plot | {"y": "cache"}])
        self.refused(r"^e\.json: plots\[0\]: has one axis in two roles", plots=[plot | {"series": "ranks"}])
        self.refused(r"^e\.json: plots\[0\]\.where\.cache: \"hot\" is not among",
                     plots=[{"kind": "timeline", "title": "x", "where": {"cache": "hot"}}])

    def test_files_that_are_not_json(self):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "e.json")
            for text, message in (('{"title": ]', f"{path}: line 1, column 11: "),
                                  ('{"title": "a", "title": "b"}', f"{path}: title: is given twice"),
                                  ("[]", f"{path}: is not an object")):
                path.write_text(text)
                with self.assertRaises(experiments.Invalid) as refused:
                    experiments.read(path)
                self.assertTrue(str(refused.exception).startswith(message), refused.exception)
            with self.assertRaisesRegex(experiments.Invalid, "No such file"):
                experiments.read(Path(directory, "none.json"))

    def test_unknown_names_are_told_with_the_known_ones(self):
        with self.assertRaisesRegex(experiments.Invalid, "no experiment 'weka'; there are: .*strong-scaling"):
            experiments.find("weka", EXPERIMENTS)
        self.assertEqual(experiments.find("./own.json", EXPERIMENTS), Path("own.json"))


class Figures(unittest.TestCase):
    def test_outliers(self):
        self.assertEqual(figures.outliers([1.0, 1.01, 0.99, 1.02, 3.0]), [False] * 4 + [True])
        self.assertEqual(figures.outliers([1.0, 1.01, 0.99, 1.02, 0.2]), [False] * 4 + [True])

    def test_no_outliers_where_nothing_tells_them(self):
        self.assertEqual(figures.outliers([1, 1, 1, 9]), [False] * 4)  # too few
        self.assertEqual(figures.outliers([1, 1, 1, 1, 1.05]), [False] * 5)  # less than a tenth off
        self.assertEqual(figures.outliers([1, 2, 3, 4, 5]), [False] * 5)  # a wide spread
        self.assertEqual(figures.outliers([1, 1, 1, 1, 1.2]), [False] * 4 + [True])


class Turns(unittest.TestCase):
    THINGS = list("abcdefgh")

    def test_each_thing_once_in_each_turn(self):
        taken = list(turns.in_turns(self.THINGS, 3))
        self.assertEqual([turn for turn, _, _ in taken], [0] * 8 + [1] * 8 + [2] * 8)
        self.assertEqual([position for _, position, _ in taken], list(range(8)) * 3)
        for turn in range(3):
            self.assertEqual(sorted(thing for its, _, thing in taken if its == turn), self.THINGS)
        self.assertEqual(list(turns.in_turns([], 2)), [])

    def test_more_turns_continue_fewer(self):
        self.assertEqual(list(turns.in_turns(self.THINGS, 3)), list(turns.in_turns(self.THINGS, 5))[:3 * 8])

    def test_predecessors_differ(self):
        taken = [thing for _, _, thing in turns.in_turns(self.THINGS, 7)]
        predecessors = {thing: {one for one, other in zip(taken, taken[1:]) if other == thing} for thing in self.THINGS}
        self.assertGreaterEqual(min(map(len, predecessors.values())), 4, predecessors)

    def test_positions_are_balanced_over_two_turns(self):
        positions = {thing: 0 for thing in self.THINGS}
        for _, position, thing in turns.in_turns(self.THINGS, 2):
            positions[thing] += position
        self.assertEqual(set(positions.values()), {7})


class Samples(unittest.TestCase):
    def setUp(self):
        self.samples = [sample(1.0, 0), sample(2.0, 1), sample(4.0, 2),
                        sample(0.5, 0, ranks=2), sample(0.5, 1, ranks=2), sample(9.0, 0, cache="warm", ranks=2)]
        self.summary = samples.summary(samples.with_outliers(self.samples))

    def test_of_a_report(self):
        one = self.samples[3]
        self.assertAlmostEqual(one["launch_seconds"], 0.4)
        self.assertEqual((one["read_seconds"], one["pack_seconds"], one["cpu_seconds"]), (0.375, 0.125, 1.0))
        self.assertAlmostEqual(sum(one[f"{phase}_seconds"] for phase in samples.PHASES), one["seconds"])
        self.assertEqual(one["peak_resident_bytes"], 2 * 10**8)

    def test_the_summary_is_in_the_order_of_the_experiment(self):
        cases = [entry["case"] for entry in self.summary]
        shuffled = self.summary[::2] + self.summary[1::2]
        self.assertEqual(samples.in_order(shuffled[::-1], cases), self.summary)

    def test_summary(self):
        alone, both, warm = self.summary
        self.assertEqual(alone["seconds"], {"median": 2.0, "least": 1.0, "most": 4.0})
        self.assertIsNone(alone["speed_up"])
        self.assertEqual(both["speed_up"], {"median": 3.0, "least": 2.0, "most": 4.0})  # of turns, not of medians
        self.assertIsNone(warm["speed_up"])  # its own base: there is no warm run with fewer ranks

    def test_outliers_are_marked_and_counted(self):
        seconds = [1.0, 1.01, 0.99, 1.02, 3.0]
        marked = samples.with_outliers([sample(value, turn) for turn, value in enumerate(seconds)])
        self.assertEqual([one["outlier"] for one in marked], [False] * 4 + [True])
        [entry] = samples.summary(marked)
        self.assertEqual((entry["outliers"], entry["runs"], entry["seconds"]["most"]), (1, 5, 3.0))


class Outputs(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name)
        slower = FIO | {"turn": 3, "gigabytes_per_second": 3.0}
        self.result = result_of([sample(1.0, 0), sample(0.5, 0, ranks=2)], [FIO, slower])

    def test_what_is_written_can_be_read(self):
        self.assertEqual(outputs.read(self.root / "out"), {})
        outputs.write(self.result, self.root / "out")
        self.assertEqual(outputs.read(self.root / "out"), self.result)
        self.assertEqual(sorted(path.name for path in (self.root / "out").iterdir()), ["results.csv", "results.json"])

    def test_csv_has_every_sample_and_axis(self):
        rows = list(csv.DictReader(io.StringIO(outputs.csv_text(self.result))))
        self.assertEqual(len(rows), 2)
        self.assertEqual((rows[1]["ranks"], rows[1]["dtype"], float(rows[1]["seconds"])), ("2", "keep", 0.5))
        self.assertEqual((rows[0]["outlier"], float(rows[0]["read_seconds"])), ("False", 0.75))

    def test_ceilings(self):
        both = self.result["summary"][1]
        self.assertEqual(findings.share_of_ceiling(self.result, both), 0.5)  # 2 of 4 GB/s, of any number of ranks
        self.assertIsNone(findings.ceiling_of(self.result, case(cache="warm")))

    def test_reads_by_fio_with_as_many_ranks_count_before_others(self):
        alike = FIO | {"case": FIO["case"] | {"ranks": 1}, "gigabytes_per_second": 3.0}
        self.result["ceilings"].append(alike)
        self.assertEqual(findings.ceilings_of(self.result, case(ranks=1)), {"fio": 3.0})
        self.assertEqual(findings.ceilings_of(self.result, case(ranks=4)), {"fio": 4.0})

    def test_the_lower_of_two_ceilings_counts(self):
        of = {"model": "small", "ranks": 2, "cache": "warm"}
        measured = [("memory-copy", 0, 9.0), ("cached-read", 0, 4.0), ("cached-read", 3, 6.0)]
        self.result["ceilings"] += [{"system": name, "case": of, "turn": turn, "gigabytes_per_second": rate}
                                    for name, turn, rate in measured]
        warm = case(cache="warm", ranks=2)
        self.assertEqual(findings.ceilings_of(self.result, warm), {"memory-copy": 9.0, "cached-read": 6.0})
        self.assertEqual(findings.ceiling_of(self.result, warm), ("cached-read", 6.0))
        self.assertIsNone(findings.ceiling_of(self.result, case(cache="warm", ranks=1)))

    def test_the_fastest_is_told_only_beyond_its_spread(self):
        def entry(least, median, runs=5):
            return {"runs": runs, "gigabytes_per_second": {"least": least, "median": median, "most": 9.0}}

        best = entry(2.1, 2.5)
        self.assertIs(findings.clearly_fastest([entry(1.0, 2.0), best, entry(0.5, 1.0)]), best)
        self.assertIsNone(findings.clearly_fastest([entry(1.0, 2.2), best]))
        self.assertIsNone(findings.clearly_fastest([entry(1.0, 2.0), entry(2.5, 2.5, runs=1)]))

    def test_sentences(self):
        fastest, speed_up, *_ = findings.sentences(self.result, ["ranks"])
        self.assertIn("2.00 GB/s, bound by reading; 50% of the ceiling, 4.00 GB/s (fio)", fastest)
        self.assertIn("2.00 times the GB/s of 1 rank, 100% of ideal", speed_up)

    def html(self):
        outputs.write(self.result, self.root)
        return page.html([self.root], "matplotlib is not installed")

    def test_page_has_all_figures_without_plots(self):
        text = self.html()
        self.assertIn("<title>Title</title>", text)
        self.assertIn("There are no plots: matplotlib is not installed.", text)
        self.assertIn('<td class="right">2.00</td>', text)
        self.assertIn('<td class="right">50%</td>', text)
        self.assertIn("CPU &lt;x&gt;", text)  # nothing is markup by accident
        self.assertIn("<b>warm, 2 ranks</b>: no &lt;memory&gt;", text)
        self.assertIn("<td>1.2, commit abc</td>", text)

    def test_page_is_well_formed_and_needs_nothing_else(self):
        (self.root / "plots").mkdir()
        (self.root / "plots" / "1-lines.svg").write_text("<svg/>")
        text = self.html()
        self.assertIn('src="data:image/svg+xml;base64,PHN2Zy8+"', text)
        self.assertNotRegex(text, r'(src|href)="(?!data:|#)')
        for tag in ("table", "tr", "td", "th", "details", "figure", "ul", "li", "div", "p"):
            opened = len(re.findall(rf"<{tag}[ >]", text))
            self.assertEqual(opened, text.count(f"</{tag}>"), tag)


class Plots(unittest.TestCase):
    def test_why_there_are_none(self):
        with mock.patch.object(plotting, "has_matplotlib", return_value=False):
            self.assertEqual(plotting.draw("lib.experiments.plots", [], print, install=False),
                             "matplotlib 3.7 or newer is not installed")


class Runs(unittest.TestCase):
    """What is run, without running it."""

    def setUp(self):
        self.loaded = []
        file = tempfile.NamedTemporaryFile()
        self.addCleanup(file.close)
        self.command = Path(file.name)

    def measurement(self, kept=None, ceilings=()):
        written = []
        self.experiment = dataclasses.replace(checked(), ceilings=ceilings)
        measured = measurement.Measurement(self.experiment, launch.Here(), self.command, ".", lambda case: None,
                                           kept or {}, lambda measured: written.append(len(measured.samples)))
        measured.written = written
        return measured

    def run_all(self, measured, load):
        with mock.patch.object(measured, "load", side_effect=load), mock.patch.object(measurement, "Progress"):
            measured.measure()

    def load(self, of, *further):
        self.loaded.append(of)
        return report(1.0, of["ranks"]), 1.5

    def test_every_case_once_in_each_turn_and_kept_at_once(self):
        measured = self.measurement()
        self.run_all(measured, self.load)
        keys = [(samples.key(one["case"]), one["turn"]) for one in measured.samples]
        self.assertEqual(len(set(keys)), 8 * 3)
        self.assertEqual(measured.written, list(range(1, 25)))

    def test_only_what_is_missing_is_run(self):
        kept = {"samples": [sample(2.0, 0), sample(2.0, 2, ranks=2, dtype=None)]}
        measured = self.measurement(kept)
        self.assertEqual(len(measured.jobs()), 8 * 3 - 2)
        self.run_all(measured, self.load)
        self.assertEqual(len(self.loaded), 8 * 3 - 2)
        self.assertEqual([one["seconds"] for one in measured.samples[:3]], [2.0, 2.0, 1.0])

    def test_a_command_that_is_replaced_ends_the_measurement(self):
        def load(of, *further):
            if len(self.loaded) == 4:
                self.command.write_text("another")
            return self.load(of)

        measured = self.measurement()
        with self.assertRaisesRegex(measurement.Replaced, "was replaced while it was measured"):
            self.run_all(measured, load)
        self.assertEqual(len(self.loaded), 5)

    def test_a_case_that_fails_is_told_once_and_the_others_run(self):
        def load(of, *further):
            if of["cache"] == "warm" and of["dtype"] is None:
                raise safeshuffle.Failed(7, "no memory")
            return self.load(of)

        measured = self.measurement()
        self.run_all(measured, load)
        self.assertEqual(len(measured.samples), 6 * 3)
        self.assertEqual([entry["what"] for entry in measured.not_run],
                         ["warm, 1 rank, --dtype default", "warm, 2 ranks, --dtype default"])
        self.assertEqual((measured.failed.code, measured.not_run[0]["reason"]), (7, "no memory"))

    def test_ceilings_are_measured_in_the_first_turn_and_some_later_ones(self):
        copies = [{"system": "memory-copy", "case": {"model": "small", "ranks": 2, "cache": "warm"}, "turn": 0}]
        for turns_in_all, kept, wanted in ((3, [], [(0, 1), (0, 2)]), (3, copies, [(0, 1)]),
                                           (4, [], [(0, 1), (0, 2), (3, 1), (3, 2)])):
            measured = self.measurement({"ceilings": kept}, ("memory-copy",))
            measured.experiment = dataclasses.replace(measured.experiment, turns=turns_in_all)
            found = []
            with mock.patch.object(measured, "attempt"), mock.patch.object(measurement, "Progress"), \
                    mock.patch.object(measured, "measure_ceiling",
                                      side_effect=lambda system, case, turn: found.append((turn, case["ranks"]))):
                measured.measure()
            self.assertEqual(found, wanted)

    def test_arguments(self):
        self.assertEqual(measurement.load_arguments(case(dtype=None, threads=4)), ["--chunk", "1MiB", "--threads", "4"])

    def test_a_timeline_is_the_one_in_the_middle(self):
        measured = self.measurement()
        seconds = iter([2.0, 9.0, 3.0])
        with mock.patch.object(measurement.timeline, "read", return_value={"case": case()}), \
                mock.patch.object(measured, "load", side_effect=lambda *_: (report(next(seconds), 1), 0)) as load:
            measured.measure_timeline(case())
        self.assertEqual([one["seconds"] for one in measured.timelines], [3.0])
        self.assertEqual([call.args[1] for call in load.mock_calls], ["--trace"] * 3)

    def test_timelines_are_of_the_most_ranks(self):
        found = measurement.largest_case(checked(), {"cache": "warm", "dtype": "keep"})
        self.assertEqual(found, case(ranks=2, cache="warm"))
        self.assertIsNone(measurement.largest_case(checked(), {"ranks": 8}))


class Continuing(unittest.TestCase):
    """What is kept of an earlier measurement."""

    RESULT = result_of([sample(1.0, 0)])

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.out = Path(directory.name)
        self.script = load_script(SCRIPTS, "bench")
        announced = mock.patch.object(self.script, "announce")
        announced.start()
        self.addCleanup(announced.stop)

    def refused(self, content, message):
        (self.out / "results.json").write_bytes(content)
        with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(io.StringIO()) as said:
            self.script.kept_results(self.out, self.RESULT["identity"], False)
        self.assertEqual(ended.exception.code, 2)
        self.assertRegex(said.getvalue(), f"^safeshuffle: error: {self.out}/results.json {message}.*: use another --")

    def test_what_was_measured_is_continued(self):
        outputs.write(self.RESULT, self.out)
        self.assertEqual(self.script.kept_results(self.out, self.RESULT["identity"], False), self.RESULT)
        self.assertEqual(self.script.kept_results(self.out, self.RESULT["identity"], True), {})

    def test_what_cannot_be_continued_is_refused(self):
        self.refused(b'{"schema_version": 1, "samp', "is damaged: .*line 1 column 23")
        self.refused(b"\xff\xfe", "is damaged: .*utf-8")
        self.refused(b"[]", "is not of a scaling experiment")
        self.refused(json.dumps(self.RESULT | {"schema_version": 2}).encode(), "has schema_version 2, not 1")
        comparison = {name: value for name, value in self.RESULT.items() if name not in ("identity", "ceilings")}
        self.refused(json.dumps(comparison).encode(), "is not of a scaling experiment")

    def test_models_are_made_only_if_something_is_left_to_measure(self):
        made = mock.Mock()
        made.descriptions.return_value = ["made"]
        done, unfinished = (mock.Mock(has_loads_left=lambda left=left: left) for left in (False, True))
        self.assertEqual(self.script.models_of(done, made, {"models": ["kept"]}), ["kept"])
        made.make_all.assert_not_called()
        self.assertEqual(self.script.models_of(unfinished, made, {"models": ["kept"]}), ["made"])
        made.make_all.assert_called_once()


class Identity(unittest.TestCase):
    ONE = result_of([sample(1.0, 0)])["identity"]

    def with_definition(self, **changes):
        described = self.ONE["experiment"]
        return self.ONE | {"experiment": described | {"definition": described["definition"] | changes}}

    def test_turns_plots_and_words_may_differ(self):
        self.assertEqual(measurement.differences(self.ONE, self.with_definition(turns=9, plots=[], title="x")), [])

    def test_all_else_may_not(self):
        self.assertEqual(measurement.differences(self.with_definition(ranks=[1, 2, 4]), self.ONE), ["experiment"])
        for name in ("commit", "command_sha256", "machine", "launcher"):
            self.assertEqual(measurement.differences(self.ONE | {name: "another"}, self.ONE), [name])
        self.assertEqual(measurement.differences(self.ONE, {"experiment": self.ONE["experiment"]}),
                         ["commit", "version", "command_sha256", "machine", "launcher"])


class Launchers(unittest.TestCase):
    def test_slots_of_a_hostfile(self):
        self.assertEqual(launch.slots_of("# nodes\na slots=8\nb slots = 4 # fewer\n\nc\n"), 13)

    def test_slurm(self):
        slurm = launch.Slurm({"SLURM_JOB_NUM_NODES": "2", "SLURM_NTASKS": "16"})
        self.assertEqual(slurm.slots(), 16)
        self.assertEqual(slurm.ranks(1)[-2:], ["--nodes=1", "--ntasks=1"])
        self.assertEqual(slurm.ranks(8)[-2:], ["--nodes=1", "--ntasks=8"])
        self.assertEqual(slurm.ranks(9)[-2:], ["--nodes=2", "--ntasks=9"])
        self.assertEqual(slurm.ranks(16)[-2:], ["--nodes=2", "--ntasks=16"])
        self.assertIn("--mpi=pmix", slurm.ranks(1))
        self.assertNotIn("--mpi=pmix", launch.Slurm({"SLURM_NTASKS": "2", "SLURM_MPI_TYPE": "pmi2"}).ranks(1))
        self.assertIn("--ntasks-per-node=1", slurm.each_node())
        self.assertEqual(launch.Slurm({"SLURM_JOB_NUM_NODES": "2", "SLURM_NTASKS_PER_NODE": "8"}).slots(), 16)
        self.assertEqual(launch.Slurm({"SLURM_NTASKS": "3", "SLURM_NTASKS_PER_NODE": "8"}).slots(), 3)

    def test_powers_of_two(self):
        self.assertEqual(launch.up_to(4), (1, 2, 4))
        self.assertEqual(launch.up_to(6), (1, 2, 4))
        self.assertEqual(launch.up_to(1), (1,))

    def test_the_line_that_tells_why(self):
        said = "warning\nsafeshuffle: error: no such file\n----\nmpirun has exited\n"
        self.assertEqual(safeshuffle.message_of(said), "no such file")
        self.assertEqual(safeshuffle.message_of("killed\n"), "killed")
        framed = "-----\nThere are not enough\n  slots.\n\nOthers say more.\n-----\n"
        self.assertEqual(safeshuffle.message_of(framed), "There are not enough slots.")
        self.assertEqual(safeshuffle.message_of(""), "no message")


class ProgressLines(unittest.TestCase):
    def lines(self, *arguments):
        """Of three steps, each of which takes a minute."""
        with mock.patch("time.monotonic", side_effect=[0, 60, 120]), contextlib.redirect_stderr(io.StringIO()) as said:
            shown = progress.Progress(*arguments)
            for step in ("one", "two", "three"):
                shown.step(step)
        return said.getvalue().splitlines()

    def test_the_time_left_follows_from_what_is_done(self):
        self.assertEqual(self.lines(3), ["[0/3] one", "[1/3] two; about 2 min left", "[2/3] three; about 60 s left"])

    def test_what_follows_is_counted_apart(self):
        self.assertEqual(self.lines(3, 10)[1:], ["[1/3] two; about 2 min left, 12 min in all",
                                                 "[2/3] three; about 60 s left, 11 min in all"])  # fmt: skip


class Models(unittest.TestCase):
    def test_tensors_are_dealt_evenly(self):
        tensors = [(f"t{number}", 10 + number % 3) for number in range(60)]
        parts = models.dealt(tensors, 4, 1)
        self.assertEqual(sorted(name for part in parts for name in part), sorted(name for name, _ in tensors))
        sizes = [sum(dict(tensors)[name] for name in part) for part in parts]
        self.assertLess(max(sizes) - min(sizes), 13)

    def test_the_first_file_has_more(self):
        parts = models.dealt([(f"t{number:02}", 1) for number in range(60)], 3, 4)
        self.assertEqual([len(part) for part in parts], [40, 10, 10])


class Timeline(unittest.TestCase):
    def test_rows_and_neighbours(self):
        def span(name, rank, row, begin, length):
            return {"ph": "X", "name": name, "pid": rank, "tid": row, "ts": begin, "dur": length}

        events = [{"ph": "M", "name": "thread_name", "pid": 0, "tid": 0}, span("read", 0, 0, 5e5, 5e5),
                  span("open", 0, 0, 0, 5e5), span("read", 0, 0, 1e6, 1e6), span("wave 0", 1, 1, 2e6, 1e6),
                  span("pack 0", 1, 5, 0, 1e6)]
        first, second = timeline.spans({"traceEvents": events})
        self.assertEqual(first["phases"], [["open", 0.0, 0.5], ["read", 0.5, 1.5]])
        self.assertEqual((second["rank"], second["phases"], second["reading"]), (1, [], [["wave 0", 2.0, 1.0]]))


if __name__ == "__main__":
    unittest.main()
