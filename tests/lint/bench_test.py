"""safeshuffle bench, and what it shares with scripts/compare: what is accepted, computed and written, without loading
anything.

usage: bench_test.py SCRIPTS
"""

import contextlib
import csv
import io
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

SCRIPTS = Path(sys.argv.pop())
sys.dont_write_bytecode = True
sys.path.insert(0, str(SCRIPTS))

from lib import page_cache, progress, safeshuffle  # noqa: E402
from lib.measure import experiment as experiments  # noqa: E402
from lib.measure import launch, measurement, models, results, systems  # noqa: E402
from script_loading import load_script  # noqa: E402

EXPERIMENTS = SCRIPTS.parent / "configs" / "experiments"
DEFINITION = {
    "schema_version": 2,
    "title": "Title",
    "question": "Which is faster?",
    "models": [{"name": "small", "like": "llama-2-70b", "scale": 0.01}],
    "ranks": [1, 2],
    "load": {"dtype": ["keep", None], "chunk": ["1MiB"]},
    "turns": 3,
    "quick": {"turns": 1},
}


def checked(quickly=False, **changes):
    definition = {name: value for name, value in (DEFINITION | changes).items() if value != "absent"}
    return experiments.check("e.json", definition, quickly)


class Validation(unittest.TestCase):
    def refused(self, message, **changes):
        with self.assertRaises(experiments.Invalid) as refused:
            checked(**changes)
        self.assertRegex(str(refused.exception), message)

    def test_built_in_experiments(self):
        there = experiments.built_in(EXPERIMENTS)
        self.assertIn("strong-scaling", there)
        for path in there.values():
            for quick in (False, True):
                for model in experiments.read(path, quick).models:
                    built_in = EXPERIMENTS.parent / "layouts" / f"{model.like}.json"
                    self.assertTrue(built_in.is_file() or Path(model.like).is_file(), f"{path}: {model.like}")

    def test_layout_files_are_named_from_the_experiment(self):
        wanted = [{"like": "layouts/x.json", "scale": 1}, {"like": "bloom-176b", "scale": 1}]
        found = experiments.check("/there/e.json", DEFINITION | {"models": wanted}).models
        self.assertEqual([model.like for model in found], ["/there/layouts/x.json", "bloom-176b"])
        self.assertEqual([model.name for model in found], ["layouts/x.json", "bloom-176b"])

    def test_cases_are_all_combinations(self):
        cases = checked().cases()
        self.assertEqual(len(cases), 2 * 2 * 2)
        self.assertEqual(cases[0], {"model": "small", "cache": "cold", "ranks": 1, "dtype": "keep", "chunk": "1MiB"})
        self.assertEqual(measurement.varying(cases), ["cache", "ranks", "dtype"])

    def test_quick_replaces(self):
        self.assertEqual((checked().turns, checked(quickly=True).turns), (3, 1))

    def test_errors_name_the_file(self):
        self.refused(r"^e\.json: .* missing .* 'title'$", title="absent")
        self.refused(r"^e\.json: .* unexpected .* 'colour'$", colour="red")
        self.refused(r"^e\.json: .*'many'$", turns="many")
        self.refused(r"^e\.json: schema_version is 1, not 2$", schema_version=1)
        self.refused(r"^e\.json: unknown: hot$", cache=["hot"])
        self.refused(r"^e\.json: unknown: peak$", ceilings=["peak"])
        self.refused(r"^e\.json: 'int' object is not iterable$", load={"threads": 4})
        self.refused(r"^e\.json: .* missing .* 'like'$", models=[{"scale": 1}])
        twice = [{"name": "a", "like": "x", "scale": 1}, {"name": "a", "like": "y", "scale": 1}]
        self.refused(r"^e\.json: models: two have the same name$", models=twice)

    def test_files_that_are_not_json(self):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "e.json")
            for text in '{"title": ]', "[]", "1":
                path.write_text(text)
                with self.assertRaisesRegex(experiments.Invalid, f"^{path}: "):
                    experiments.read(path)
            with self.assertRaisesRegex(experiments.Invalid, "No such file"):
                experiments.read(Path(directory, "none.json"))

    def test_unknown_names_are_told_with_the_known_ones(self):
        with self.assertRaisesRegex(experiments.Invalid, "no experiment 'weka'; there are: .*strong-scaling"):
            experiments.find("weka", EXPERIMENTS)
        self.assertEqual(experiments.find("./own.json", EXPERIMENTS), Path("own.json"))

    def test_arguments(self):
        case = {"model": "m", "ranks": 1, "cache": "cold", "dtype": "f16", "io": None, "threads": 4, "system": "s"}
        self.assertEqual(load_script(SCRIPTS, "bench").load_arguments(case), ("--threads", "4"))


class Turns(unittest.TestCase):
    THINGS = list("abcdefgh")

    def test_each_thing_once_in_each_turn(self):
        taken = list(measurement.in_turns(self.THINGS, 3))
        self.assertEqual([turn for turn, _, _ in taken], [0] * 8 + [1] * 8 + [2] * 8)
        self.assertEqual([position for _, position, _ in taken], list(range(8)) * 3)
        for turn in range(3):
            self.assertEqual(sorted(thing for its, _, thing in taken if its == turn), self.THINGS)
        self.assertEqual(list(measurement.in_turns([], 2)), [])

    def test_predecessors_differ(self):
        taken = [thing for _, _, thing in measurement.in_turns(self.THINGS, 7)]
        predecessors = {thing: {one for one, other in zip(taken, taken[1:]) if other == thing} for thing in self.THINGS}
        self.assertGreaterEqual(min(map(len, predecessors.values())), 4, predecessors)

    def test_positions_are_balanced_over_two_turns(self):
        positions = {thing: 0 for thing in self.THINGS}
        for _, position, thing in measurement.in_turns(self.THINGS, 2):
            positions[thing] += position
        self.assertEqual(set(positions.values()), {7})


class Stub:
    """A system that takes a second, or raises."""

    def __init__(self, loads=True, error=None):
        self.loads, self.error, self.cases = loads, error, []

    def run(self, case, prepare):
        prepare()
        self.cases.append(case)
        if self.error:
            raise self.error
        return systems.sample(1.0, 10**9, [])


class Measuring(unittest.TestCase):
    """What is run, without running it."""

    def setUp(self):
        self.prepared = []
        self.measured = measurement.Measurement(lambda *state: self.prepared.append(state), mock.Mock())

    def take_turns(self, stubs, turns, *further):
        model = models.Checkpoint("m", Path("m"), (Path("f"),), 10**9)
        case = systems.Case(model, 2, "f16", "cold", Path("safeshuffle"), Path("."))
        self.measured.take_turns([measurement.Run(stub, case, {"ranks": 2, "cache": "cold", "system": name})
                                  for name, stub in stubs.items()], turns, *further)

    def test_each_run_is_prepared_and_kept(self):
        self.take_turns({"ours": Stub(), "other": Stub()}, 2)
        self.assertEqual(self.prepared, [((Path("f"),), "cold", "f16")] * 4)
        kept = {(one["case"]["system"], one["turn"]) for one in self.measured.samples}
        self.assertEqual(kept, {("ours", 0), ("ours", 1), ("other", 0), ("other", 1)})
        self.assertEqual(self.measured.samples[0]["gigabytes_per_second"], 1.0)

    def test_what_fails_is_told_once_and_the_others_run(self):
        failing = {"peer": systems.NotRun("no module"), "ours": safeshuffle.Failed(7, "no memory"),
                   "cold": page_cache.Unprepared("not cold")}
        stubs = {name: Stub(error=error) for name, error in failing.items()} | {"other": Stub()}
        self.take_turns(stubs, 3)
        self.assertEqual({name: len(stub.cases) for name, stub in stubs.items()},
                         {"peer": 1, "ours": 1, "cold": 1, "other": 3})
        self.assertEqual({entry["what"]: entry["reason"] for entry in self.measured.not_run},
                         {f"2 ranks, cold, {name}": str(error) for name, error in failing.items()})
        self.assertIn(self.measured.failed, (failing["ours"], failing["cold"]))  # other libraries may fail

    def test_ceilings_are_measured_in_the_first_turn_and_some_later_ones(self):
        for turns, wanted in ((3, [0]), (4, [0, 3])):
            self.setUp()
            self.take_turns({"load": Stub(), "ceiling": Stub(loads=False)}, turns, 3)
            found = [one["turn"] for one in self.measured.samples if one["case"]["system"] == "ceiling"]
            self.assertEqual(found, wanted)

    def test_a_command_that_is_replaced_ends_the_measurement(self):
        with tempfile.NamedTemporaryFile("w") as file:
            ours = systems.Safeshuffle(command=file.name)
            file.write("another")
            file.flush()
            case = systems.Case(mock.Mock(), 1, "keep", "warm", Path(file.name), Path(tempfile.gettempdir()))
            with mock.patch.object(systems.safeshuffle, "load"), \
                    self.assertRaisesRegex(systems.Replaced, "was replaced while it was measured"):
                ours.run(case, lambda: None)


def sample(seconds, turn, ranks=2, system="ours", **further):
    each = [{"cpu_seconds": 1.0, "read_bytes": 5}, {"cpu_seconds": 2.0, "read_bytes": 6}]
    taken = systems.sample(seconds, 10**9, each)
    return {"case": {"cache": "cold", "ranks": ranks, "system": system}, "turn": turn, "position": 0,
            "gigabytes_per_second": 1 / seconds} | taken | further


class Results(unittest.TestCase):
    # The other one is slow in the turn in which the first is: what is compared are turns, not medians.
    SAMPLES = [sample(1.0, 0), sample(2.0, 0, system="other"), sample(6.0, 1, system="other"), sample(4.0, 1),
               sample(1.0, 2), sample(1.0, 2, system="other"), sample(0.5, 0, ranks=4)]
    CASES = [{"cache": "cold", "ranks": ranks, "system": system} for ranks in (2, 4) for system in ("ours", "other")]

    def summary(self, samples=None):
        return results.summary(samples or self.SAMPLES, self.CASES, lambda case: case | {"system": "ours"},
                               lambda ours, base: base / ours)

    def test_summary(self):
        ours, other, four = self.summary()
        self.assertEqual((ours["case"], ours["runs"], ours["ratio"]), (self.CASES[0], 3, None))
        self.assertEqual(ours["gigabytes_per_second"], {"median": 1.0, "least": 0.25, "most": 1.0})
        self.assertEqual(other["ratio"], {"median": 1.5, "least": 1.0, "most": 2.0})
        self.assertEqual((four["case"]["ranks"], four["ratio"]), (4, None))

    def test_a_turn_that_one_of_them_lacks_does_not_count(self):
        samples = [one for one in self.SAMPLES if (one["case"]["system"], one["turn"]) != ("other", 1)]
        self.assertEqual(self.summary(samples)[1]["ratio"], {"median": 1.5, "least": 1.0, "most": 2.0})

    def test_speed_up_over_the_fewest_ranks(self):
        found = results.summary(self.SAMPLES, self.CASES, lambda case: case | {"ranks": 2},
                                lambda ours, base: ours / base)
        self.assertEqual(found[-1]["ratio"], {"median": 2.0, "least": 2.0, "most": 2.0})

    def test_ranks_are_added(self):
        one = self.SAMPLES[0]
        self.assertEqual((one["cpu_seconds"], one["read_bytes"]), (3.0, 11))
        self.assertIsNone(one["peak_resident_bytes"])  # unknown, not 0
        two = systems.sample(1.0, 1, [{"peak_resident_bytes": 3}, {"peak_resident_bytes": 4}])
        self.assertEqual(two["peak_resident_bytes"], 7)

    def test_phases_are_averages(self):
        ranks = [{"phases": {"read": 1.0}}, {"phases": {"read": 2.0, "pack": 1.0}}]
        found = systems.phase_seconds(ranks)
        self.assertEqual((found["read_seconds"], found["pack_seconds"], found["wait_seconds"]), (1.5, 0.5, 0))

    def test_csv_has_every_sample_and_column(self):
        rows = list(csv.DictReader(io.StringIO(results.csv_text([*self.SAMPLES, sample(1.0, 0, io="uring")]))))
        self.assertEqual(len(rows), len(self.SAMPLES) + 1)
        self.assertEqual((rows[1]["system"], float(rows[1]["seconds"]), rows[1]["turn"]), ("other", 2.0, "0"))
        self.assertEqual((rows[0]["peak_resident_bytes"], rows[0]["io"], rows[-1]["io"]), ("", "", "uring"))

    def result(self):
        machine = {"cpu": "CPU", "cores": 2, "memory_bytes": 8e9, "kernel": "6", "filesystem": "ext4", "gpus": []}
        measured = mock.Mock(samples=self.SAMPLES, not_run=[{"what": "third", "reason": "needs a GPU for each rank"}])
        ours = mock.Mock(settings="defaults", versions=lambda: {"ours": "1.2"})
        ours.name = "ours"
        return results.result("Title", measured, [ours], self.CASES, lambda case: case | {"system": "ours"},
                              lambda ours, base: base / ours, "ours ÷ it", machine=machine,
                              models=[{"name": "m", "bytes": 10**9, "files": 3}])

    def test_markdown(self):
        text = results.markdown(self.result())
        self.assertIn("| ranks | system | GB/s | ours ÷ it | seconds | CPU s | from disk, GB |", text)
        self.assertIn("| 2 | other | 0.50 (0.17–1.00) | 1.50 (1.00–2.00) | 2.000 | 3.00 |", text)
        self.assertIn("m: 1.00 GB in 3 files. CPU, 2 cores", text)
        self.assertIn("- **ours** (ours 1.2): defaults", text)
        self.assertIn("- **third**: needs a GPU for each rank", text)

    def test_files(self):
        with tempfile.TemporaryDirectory() as directory:
            out = Path(directory, "out")
            results.check(out, fresh=False)
            results.write(self.result(), out)
            self.assertEqual(sorted(path.name for path in out.iterdir()), ["results.csv", "results.json", "summary.md"])
            self.assertEqual(json.loads((out / "results.json").read_text())["samples"], self.SAMPLES)
            with self.assertRaisesRegex(results.Exists, "has results: use another --out, or --fresh"):
                results.check(out, fresh=False)
            results.check(out, fresh=True)
            results.remove(out)
            self.assertEqual(list(out.iterdir()), [])

    def test_the_commit_is_told_with_changes(self):
        with tempfile.TemporaryDirectory() as directory, \
                mock.patch.object(results.safeshuffle, "ROOT", Path(directory)):
            self.assertEqual(results.commit(), "unknown")
            path = Path(directory, "file")
            path.write_text("committed")
            author = ("-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false")
            for arguments in ("init", "--quiet"), ("add", "."), (*author, "commit", "--quiet", "--message", "first"):
                subprocess.run(["git", "-C", directory, *arguments], check=True)
            self.assertRegex(results.commit(), "^[0-9a-f]{40}$")
            path.write_text("changed")
            self.assertRegex(results.commit(), "^[0-9a-f]{40} with changes$")


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
    def test_the_time_left_follows_from_what_is_done(self):
        with mock.patch("time.monotonic", side_effect=[0, 60, 120]), contextlib.redirect_stderr(io.StringIO()) as said:
            shown = progress.Progress(3)
            for step in ("one", "two", "three"):
                shown.step(step)
        self.assertEqual(said.getvalue().splitlines(),
                         ["[0/3] one", "[1/3] two; about 2 min left", "[2/3] three; about 60 s left"])


if __name__ == "__main__":
    unittest.main()
