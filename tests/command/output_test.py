"""What the command prints where, and how it ends.

Environment: that of launch.py.
"""

import contextlib
import itertools
import json
import os
import pty
import shutil
import subprocess
import tempfile
import termios
import unittest
from pathlib import Path
from unittest import mock

from files import kept_in_page_cache, reads_directly
from launch import run

USAGE_ERROR = 2
IO_ERROR = 3


def keeps_pages(directory):
    """Whether it is in memory, so that nothing can be dropped from the page cache."""
    return subprocess.check_output(["stat", "-f", "-c", "%T", directory], text=True).strip() == "tmpfs"


def drop_from_page_cache(directory):
    for path in directory.glob("*.safetensors"):
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def binds_by_default():
    """Whether the launcher is Open MPI 4, which binds each of two ranks to a core and says that it has done so."""
    launcher = os.environ["MPIEXEC"].split()[0]
    version = subprocess.run([launcher, "--version"], capture_output=True, text=True, check=False).stdout
    return "(Open MPI) 4." in version


def cores():
    """As many as have CPUs that this process may use."""
    siblings = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    return {Path(siblings.format(cpu)).read_text() for cpu in os.sched_getaffinity(0)}


def bars_on_terminal(columns, *arguments):
    """What the command draws on a terminal, one item per drawing."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, columns))
    command = [os.environ["SAFESHUFFLE"], *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        drawn = b""
        with contextlib.suppress(OSError):  # EIO: the command has ended
            while part := os.read(ours, 4096):
                drawn += part
    os.close(ours)
    return [bar.strip("\n") for bar in drawn.decode().split("\r") if bar.strip("\n")]


class Output(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="safeshuffle-")
        cls.root = Path(cls.directory.name)
        cls.model = cls.root / "model"
        cls.made = run("make", cls.model, "--like", "llama-2-70b", "--scale", "0.0001", "--sparse")

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def events(self, result):
        self.assertEqual(result.returncode, 0, result.stderr)
        events = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual([event["event"] for event in events],
                         ["progress"] * (len(events) - 1) + ["done"])
        return events

    def test_make_tells_the_scale_that_it_came_to(self):
        files = len(list(self.model.glob("*.safetensors")))
        self.assertIn(f"{self.model}: {files} files, ", self.made.stdout)
        self.assertRegex(self.made.stdout, r"; scale 0\.00152\n$")
        self.assertIn("warning: scale 0.0001 cannot be met", self.made.stderr)
        self.assertIn("making scale 0.00152 instead", self.made.stderr)
        met = run("make", self.root / "met", "--like", "llama-2-70b", "--scale", "0.01", "--sparse")
        self.assertEqual(met.returncode, 0, met.stderr)
        self.assertRegex(met.stdout, r"; scale 0\.0108\n$")
        self.assertEqual(met.stderr, "")

    def test_load_as_json(self):
        report = self.root / "report.json"
        events = self.events(run("load", self.model, "--progress", "json", "--verify", "full",
                                 "--report", report, ranks=4))
        self.assertTrue(events[-1]["verified"])
        self.assertEqual(events[-1]["report"], json.loads(report.read_text()))
        self.assertEqual(events[-1]["report"]["world"], 4)
        last = {event["activity"]: event for event in events[:-1]}
        self.assertEqual(set(last), {"loading", "verifying"})
        for event in last.values():
            self.assertEqual(event["bytes"], event["total_bytes"])

    def test_a_stream_as_json(self):
        """Progress goes on from group to group, also where each is verified."""
        events = self.events(run("load", self.model, "--progress", "json", "--stream", "2MiB", "--verify", "full",
                                 ranks=2))
        *progress, done = events
        self.assertGreater(done["groups"], 2)
        self.assertEqual({event["activity"] for event in events}, {"streaming"})
        self.assertEqual({event["total_bytes"] for event in progress}, {done["tensor_bytes"]})
        counted = [event["bytes"] for event in progress]
        self.assertEqual(counted, sorted(counted))
        self.assertEqual(counted[-1], done["tensor_bytes"])

    def test_results_go_to_standard_output_and_no_bar_to_a_pipe(self):
        result = run("load", self.model, ranks=2)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("onto 2 ranks", result.stdout)
        self.assertEqual(result.stdout.count("loaded "), 1)
        self.assertNotIn("\r", result.stdout + result.stderr)
        self.assertNotIn("GB/s", result.stderr)

    def test_one_warning_for_all_ranks(self):
        report = self.root / "warned.json"
        load = run("load", self.model, "--window", "128KiB", "--report", report, ranks=4)
        self.assertEqual(load.returncode, 0, load.stderr)
        plan = run("plan", self.model, "--world", 4, "--window", "128KiB", "--json")
        warnings = json.loads(plan.stdout)["warnings"]
        self.assertEqual(len(warnings), 1)
        self.assertIn("a window of 131072 bytes", warnings[0])
        self.assertEqual(json.loads(report.read_text())["warnings"], warnings)
        for result in load, plan:
            self.assertEqual(result.stderr.count(f"safeshuffle: warning: {warnings[0]}\n"), 1)
            self.assertEqual(result.stderr.count("safeshuffle: warning: "), 1, result.stderr)

    def test_no_warning_by_default(self):
        plan = run("plan", self.model, "--world", 4, "--json")
        self.assertEqual((json.loads(plan.stdout)["warnings"], plan.stderr), ([], ""))

    def test_a_model_of_which_nothing_is_partitioned(self):
        options = ["--tp-plan", "replicate"]
        load = run("load", self.model, *options, "--progress", "json", ranks=2)
        plan = run("plan", self.model, "--world", 2, *options)
        for result in load, plan:
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(result.stderr.count("safeshuffle: warning: no tensor is partitioned: "), 1)
        self.assertRegex(plan.stdout, "(?m)^partitioned 0 tensors of 0 B; replicated 723 tensors of ")
        alone = run("plan", self.model, "--world", 1, *options)
        self.assertEqual(alone.stderr, "")

    def test_how_tensors_are_placed(self):
        plan = run("plan", self.model, "--world", 2, "--json")
        placement = json.loads(plan.stdout)["placement"]
        self.assertEqual({how: count["tensors"] for how, count in placement.items()},
                         {"partitioned": 562, "replicated": 161, "single": 0, "dropped": 0})
        line = "(?m)^partitioned 562 tensors of [0-9.]+ MB; replicated 161 tensors of [0-9.]+ kB$"
        self.assertRegex(run("plan", self.model, "--world", 2).stdout, line)
        report = self.root / "placed.json"
        load = run("load", self.model, "--report", report, ranks=2)
        self.assertRegex(load.stdout, line)
        self.assertEqual(json.loads(report.read_text())["placement"], placement)

    def test_one_message_for_a_key_without_a_tensor(self):
        rules = self.root / "mistyped.json"
        rules.write_text('{"layerz.*.mlp.up_proj": "colwise"}', encoding="utf-8")
        message = f'{rules}: "layerz.*.mlp.up_proj": no tensor of the checkpoint '
        for world in (1, 2):
            plan = run("plan", self.model, "--world", world, "--tp-plan", rules)
            self.assert_one_message(plan, USAGE_ERROR, message)
        load = run("load", self.model, "--tp-plan", rules, ranks=4)
        self.assert_one_message(load, USAGE_ERROR, "rank 0: " + message)
    def test_a_load_of_nothing(self):
        empty = self.root / "empty.safetensors"
        empty.write_bytes(b"\x08\0\0\0\0\0\0\0{}      ")
        for ranks in (1, 2):
            report = self.root / f"empty-{ranks}.json"
            result = run("load", empty, "--tp-plan", "replicate", "--report", report, ranks=ranks)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("I/O none; 0 waves", result.stdout)
            paths = {rank["io"]["path"] for rank in json.loads(report.read_text())["ranks"]}
            self.assertEqual(paths, {"none"})

    def test_direct_reads_under_strict_leave_nothing_to_the_page_cache(self):
        """Tensors are neither aligned nor as long as a block."""
        if not reads_directly(self.model):
            self.skipTest("the filesystem refuses O_DIRECT")
        report = self.root / "direct.json"
        result = run("load", self.model, "--direct", "on", "--strict", "--window", "1MiB",
                     "--tp-plan", "replicate", "--report", report)
        self.assertEqual(result.returncode, 0, result.stderr)
        (rank,) = json.loads(report.read_text())["ranks"]
        self.assertEqual(rank["io"]["path"], "posix direct")
        self.assertEqual(rank["io"]["direct_bytes"], rank["read_bytes"])
        self.assertEqual(rank["io"]["buffered_bytes"], 0)
        self.assertEqual(rank["io"]["fallbacks"], [])

    def cores_of_load(self, binding):
        """Of rank 0 of two."""
        launcher = os.environ["MPIEXEC"].replace("--bind-to none", binding)
        report = self.root / "cores.json"
        with mock.patch.dict(os.environ, MPIEXEC=launcher):
            result = run("load", self.model, "--device", "host", "--report", report, ranks=2)
        self.assertEqual(result.returncode, 0, result.stderr)
        rank, _ = json.loads(report.read_text())["ranks"]
        return rank["cores"]

    @unittest.skipUnless(binds_by_default(), "not Open MPI 4")
    @unittest.skipUnless(len(cores()) > 1, "there is one core only")
    def test_only_a_binding_that_was_asked_for_leaves_ranks_with_one_core(self):
        everywhere, one_core = self.cores_of_load("--bind-to none"), self.cores_of_load("--bind-to core")
        self.assertGreater(everywhere, one_core)
        self.assertEqual(self.cores_of_load(""), everywhere)

    def io_of_load(self, model, *options):
        report = self.root / "io.json"
        result = run("load", model, "--strict", "--tp-plan", "replicate", "--report", report, *options)
        self.assertEqual(result.returncode, 0, result.stderr)
        (rank,) = json.loads(report.read_text())["ranks"]
        self.assertEqual(sum(choice["bytes"] for choice in rank["io"]["choices"]), rank["read_bytes"])
        return rank["io"], result.stdout

    def assert_planned_alike(self, model):
        """By `plan` and by the last load."""
        report = json.loads((self.root / "io.json").read_text())
        plan = json.loads(run("plan", model, "--world", 1, "--tp-plan", "replicate", "--json").stdout)
        self.assertEqual((plan["hash"], plan["window"]), (report["plan_hash"], report["window"]))
        self.assertEqual(plan["window"], 64 << 20)

    def test_cold_files_are_read_directly_and_cached_ones_from_the_page_cache(self):
        model = self.root / "large"  # so that a part of it is always cold, whatever reading headers caches
        run("make", model, "--like", "llama-2-70b", "--scale", "0.001")
        with kept_in_page_cache(model):
            io, text = self.io_of_load(model)
            self.assert_planned_alike(model)
        self.assertEqual([choice["reason"] for choice in io["choices"]], ["cached"])
        self.assertEqual(io["path"], "posix buffered")
        self.assertRegex(text, r"(?m)^read [0-9.]+ MB through the page cache \(cached\)$")
        if not reads_directly(model) or keeps_pages(model):
            self.skipTest("the filesystem refuses O_DIRECT, or keeps its pages")
        drop_from_page_cache(model)
        io, text = self.io_of_load(model)
        self.assert_planned_alike(model)
        self.assertIn("cold", [choice["reason"] for choice in io["choices"]])
        self.assertGreater(io["direct_bytes"], io["buffered_bytes"])
        self.assertRegex(text, r"(?m)^read [0-9.]+ MB directly \(cold\)")
        cached = io["buffered_bytes"]  # with the headers
        io, _ = self.io_of_load(model)
        self.assertLessEqual(io["buffered_bytes"], cached)  # the load has left nothing else in the page cache

    def test_memory_beyond_the_tensors_is_bounded(self):
        """Whatever the size of the model, of which a second copy would be more."""
        most = 64 << 20
        models = {scale: self.root / f"bounded-{scale}" for scale in ("0.001", "0.004")}
        for scale, model in models.items():
            made = run("make", model, "--like", "llama-2-70b", "--scale", scale)
            self.assertEqual(made.returncode, 0, made.stderr)
        self.assertGreater(sum(path.stat().st_size for path in model.glob("*.safetensors")), 4 * most)
        for direct, ranks in itertools.product(("on", "off"), (1, 2)):
            with self.subTest(direct=direct, ranks=ranks):
                small, large = (self.memory_beyond(model, direct, ranks) for model in models.values())
                self.assertLess(max(small + large), most)
                self.assertLess(max(large), max(small) + most / 4)

    def test_memory_for_each_tensor_is_bounded(self):
        """The catalog, the plan and the list of what was loaded, but not what opening and planning took."""
        few, many, most = 1_000, 100_000, 800
        beyond = {tensors: self.memory_beyond(self.make_of(tensors), "on", 1)[0] for tensors in (few, many)}
        self.assertLess(beyond[many] - beyond[few], (many - few) * most)

    def make_of(self, tensors):
        """A checkpoint of so many small tensors."""
        model, layout = self.root / f"of-{tensors}", self.root / f"of-{tensors}.json"
        layout.write_text(json.dumps({
            "config": {}, "layers": tensors // 2,
            "tensors": {"model.layers.{layer}.self_attn.q_proj.weight": ["BF16", 32, 32],
                        "model.layers.{layer}.input_layernorm.weight": ["BF16", 32]},
            "files": {"name": "model.safetensors", "starts": ["model.layers.0.self_attn.q_proj.weight"]}}))
        made = run("make", model, "--like", layout, "--sparse")
        self.assertEqual(made.returncode, 0, made.stderr)
        return model

    def memory_beyond(self, model, direct, ranks):
        """By rank: resident bytes beyond the tensors, slabs and other buffers of a load that exchanges."""
        report = self.root / "memory.json"
        result = run("load", model, "--device", "host", "--direct", direct, "--assign", "round-robin",
                     "--window", "8MiB", "--report", report, ranks=ranks)
        self.assertEqual(result.returncode, 0, result.stderr)
        by_rank = json.loads(report.read_text())["ranks"]
        for rank in by_rank:
            self.assertLess(rank["peak_device_bytes"], rank["kept_bytes"] + (64 << 20))
        return [rank["peak_resident_bytes"] - rank["peak_device_bytes"] for rank in by_rank]

    def test_what_is_left_in_the_page_cache(self):
        model = self.root / "left"
        run("make", model, "--like", "llama-2-70b", "--scale", "0.001")
        drop_from_page_cache(model)
        if not reads_directly(model) or keeps_pages(model):
            self.skipTest("the filesystem refuses O_DIRECT, or keeps its pages")
        for option, reason in (("--drop-cache-behind", "cold"), ("--threads=2", "cached")):
            read = run("load", model, "--tp-plan", "replicate", "--direct", "off", option)
            self.assertEqual(read.returncode, 0, read.stderr)
            io, _ = self.io_of_load(model)
            self.assertIn(reason, [choice["reason"] for choice in io["choices"]])

    def load_with_engine(self, engine, *options):
        """What the report says of its only rank, the rows of its timeline, and the text."""
        report, trace = self.root / "engine.json", self.root / "trace.json"
        result = run("load", self.model, "--io", engine, "--tp-plan", "replicate", "--verify", "full",
                     "--report", report, "--trace", trace, *options)
        self.assertEqual(result.returncode, 0, result.stderr)
        (rank,) = json.loads(report.read_text())["ranks"]
        rows = {event["args"]["name"] for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "M"}
        return rank["io"], rows, result.stdout

    def test_io_uring(self):
        if not reads_directly(self.model):
            self.skipTest("the filesystem refuses O_DIRECT")
        io, rows, text = self.load_with_engine("uring", "--direct", "on")
        if io["fallbacks"]:  # where the kernel has none
            self.assertIn("\nfallback: uring fell back to posix: ", text)
            self.assertEqual(io["path"], "posix direct")
        else:
            self.assertEqual(io["path"], "uring direct")
            self.assertIn("reads", rows)

    def test_exchange_where_mpi_copies_twice(self):
        """Neither Open MPI 4 nor 5 may then read the memory of other processes."""
        components = {"OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_smsc": "^cma,knem,xpmem"}
        with mock.patch.dict(os.environ, components):
            result = run("load", self.model, "--device", "host", "--assign", "round-robin", "--verify", "full", ranks=2)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_files_in_memory_are_cached(self):
        if not os.access("/dev/shm", os.W_OK):
            self.skipTest("/dev/shm is not writable")
        with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
            shutil.copytree(self.model, directory, dirs_exist_ok=True)
            io, _ = self.io_of_load(directory)
        self.assertEqual([choice["reason"] for choice in io["choices"]], ["cached"])

    def test_a_bar_keeps_to_one_line_of_the_terminal(self):
        for columns in (5, 20, 40, 59, 60, 80):
            with self.subTest(columns):
                bars = bars_on_terminal(columns, "load", self.model)
                self.assertGreater(len(bars), 0)
                self.assertLess(max(map(len, bars)), columns)

    def test_rules(self):
        listed = run("models")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        self.assertRegex(listed.stdout, r"(?m)^falcon +falcon, RefinedWeb, RefinedWebModel$")
        self.assertRegex(listed.stdout, r"(?m)^quantised layers: gptq, awq, ")
        self.assertIn("safeshuffle rules --built-in NAME\n", listed.stdout)
        for name in "llama", "gemma2":
            printed = run("rules", "--built-in", name)
            self.assertIn("gemma2", json.loads(printed.stdout)["model_types"])
            self.assertEqual(run("rules", self.model).stdout, printed.stdout)
        bare = self.root / "bare.json"
        bare.write_text('{"layers.*.mlp.up_proj": "colwise"}', encoding="utf-8")
        self.assertEqual(json.loads(run("rules", self.model, "--tp-plan", bare).stdout),
                         {"tp_plan": {"layers.*.mlp.up_proj": "colwise"}})
        self.assert_one_message(run("rules", "--built-in", "own"), USAGE_ERROR,
                                "no built-in rules 'own'; 'safeshuffle models' lists")
        self.assert_one_message(run("rules"), USAGE_ERROR, "MODEL or --built-in is required")
        self.assert_one_message(run("rules", "--tp-plan", bare), USAGE_ERROR, "--tp-plan requires MODEL")

    def assert_one_message(self, result, status, message):
        self.assertEqual(result.returncode, status)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr.count("safeshuffle: error: "), 1, result.stderr)
        self.assertIn("safeshuffle: error: " + message, result.stderr)

    def result_commands(self):
        """All that print something on standard output."""
        made = self.root / "made again"
        self.addCleanup(shutil.rmtree, made)
        return [["--help"], ["--version"], ["load", "--help"], ["inspect", self.model],
                ["inspect", self.model, "--json"], ["plan", self.model, "--world", 2],
                ["plan", self.model, "--world", 2, "--json"], ["load", self.model],
                ["models"], ["rules", self.model], ["rules", "--built-in", "llama"],
                ["load", self.model, "--progress", "json"],
                ["make", made, "--like", "llama-2-70b", "--scale", "0.0001", "--sparse"]]  # fmt: skip

    def assert_refused(self, result, cause):
        self.assertEqual(result.returncode, IO_ERROR, result.stderr)
        self.assertEqual(result.stderr.count("safeshuffle: error: "), 1, result.stderr)
        self.assertIn(f"standard output: cannot write: {cause}\n", result.stderr)

    def test_results_that_cannot_be_written(self):
        for command in self.result_commands():
            with self.subTest(command=command):
                self.assert_refused(run(*command, redirection=">/dev/full"),
                                    "No space left on device")  # fmt: skip

    def test_results_that_nobody_reads(self):
        reader, writer = os.pipe()
        os.close(reader)
        os.set_inheritable(writer, True)
        self.addCleanup(os.close, writer)
        command = [os.environ["SAFESHUFFLE"], "plan", self.model, "--world", "2"]
        result = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True,
                                check=False)  # fmt: skip
        self.assert_refused(result, "Broken pipe")

    def test_standard_output_closed(self):
        """What is opened next must not be taken for it."""
        report = self.root / "report of a closed output"
        result = run("load", self.model, "--report", report, redirection=">&-")
        self.assert_refused(result, "Bad file descriptor")
        self.assertEqual(json.loads(report.read_text())["world"], 1)

    def test_results_of_ranks_that_cannot_be_written(self):
        for option in ("none", "json"):
            result = run("load", self.model, "--progress", option, ranks=4,
                         redirection=">/dev/full")  # fmt: skip
            self.assert_refused(result, "No space left on device")
        result = run("--help", ranks=4, redirection=">/dev/full")
        self.assert_refused(result, "No space left on device")

    def test_messages_that_cannot_be_written(self):
        for ranks in (1, 4):
            result = run("load", "/nonexistent", ranks=ranks, redirection="2>/dev/full")
            self.assertEqual(result.returncode, IO_ERROR)

    # The launcher ends all ranks when the first one exits with an error, so with many of them a
    # message that does not come in time is lost.
    def test_one_message_for_all_ranks(self):
        result = run("load", "/nonexistent", ranks=8)
        self.assert_one_message(result, IO_ERROR, "rank 0: /nonexistent: ")

    def test_one_usage_message_for_all_ranks(self):
        result = run("load", self.model, "--window", "huge", ranks=8)
        self.assert_one_message(result, USAGE_ERROR, "rank 0: --window: huge ")

    def test_a_size_below_the_least_is_a_usage_error(self):
        for option in ("window", "chunk"):
            result = run("load", self.model, "--" + option, "4095")
            self.assert_one_message(result, USAGE_ERROR, f"rank 0: the {option} must be at least 4096 bytes")

    def test_an_empty_value_is_a_usage_error(self):
        for arguments in (
            ["load", ""], ["load", self.model, ""], ["load", self.model, "--report", ""],
            ["load", self.model, "--report="], ["load", self.model, "--trace", ""],
            ["load", self.model, "--save-sharded", ""], ["load", self.model, "--tp-plan", ""],
            ["plan", "", "--world", "2"], ["inspect", ""], ["make", "", "--like", "llama-2-70b"],
            ["make", self.root / "new", "--like", ""],
        ):  # fmt: skip
            with self.subTest(arguments):
                self.assert_one_message(run(*arguments), USAGE_ERROR, "")

    def test_an_option_is_no_value(self):
        result = run("load", self.model, "--report", "--trace", self.root / "trace")
        self.assert_one_message(result, USAGE_ERROR, "--report: the value is missing before --trace; see ")

    def test_messages_of_one_process(self):
        self.assert_one_message(run(), USAGE_ERROR, "A subcommand is required; see")
        self.assert_one_message(run("mkae"), USAGE_ERROR,
                                "unknown subcommand or option 'mkae'; see")
        self.assert_one_message(run("inspect", "/nonexistent"), IO_ERROR, "/nonexistent: ")


if __name__ == "__main__":
    unittest.main()
