"""The example programs, run as their comments say: what they print and how they end.

Environment: SAFESHUFFLE, the command; MPIEXEC, the launcher with {ranks} where the number goes;
LOAD_MPI and LOAD_NCCL, the examples, either of which may be absent; RANK_WRAPPER, a program that
becomes one of them, INJECT, the library made of tests/fault/inject.cpp, and DEVICE, what load_mpi is
to say it loaded onto, all optional.
"""

import json
import os
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

TIMEOUT_SECONDS = 60
GONE_SECONDS = 20
IO_ERROR = 3


def wrapped(program):
    return [*os.environ.get("RANK_WRAPPER", "").split(), program]


def run(command, **environment):
    return subprocess.run(
        list(map(str, command)), env=os.environ | environment, timeout=TIMEOUT_SECONDS,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def state_and_parent(process):
    """As /proc tells them; state Z if there is no such process."""
    try:
        state, parent = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return "Z", 0
    return state, int(parent)


def is_there(process):
    """Whether a process runs; the dead that nobody has asked after do not."""
    return state_and_parent(process)[0] != "Z"


def processes_of(parent):
    """The children of a process, as they are now."""
    everyone = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    return [process for process in everyone if state_and_parent(process)[1] == parent]


def kill_all(processes):
    for process in filter(is_there, processes):
        os.kill(process, signal.SIGKILL)


class Example(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.enterClassContext(directory := tempfile.TemporaryDirectory(prefix="safeshuffle-"))
        cls.model = Path(directory.name) / "model"
        command = os.environ["SAFESHUFFLE"]
        made = run([command, "make", cls.model, "--like", "llama-2-70b", "--scale", "0.0001"])
        assert made.returncode == 0, made.stderr
        cls.tensors = json.loads(run([command, "inspect", cls.model, "--json"]).stdout)["files"]
        cls.tensors = {t["name"]: t for file in cls.tensors for t in file["tensors"]}

    def assert_lists_all(self, lines, ranks):
        """Name, dtype and, where a tensor is cut or not, its bytes."""
        listed = {line.split()[0]: line.split() for line in lines}
        self.assertEqual(set(listed), set(self.tensors))
        for name, tensor in self.tensors.items():
            words = listed[name]
            self.assertEqual(words[1], tensor["dtype"])
            size = int(words[words.index("bytes") - 1])
            self.assertIn(size, {tensor["bytes"], tensor["bytes"] // ranks})
        self.assertIn(f" {self.tensors['model.norm.weight']['bytes']} bytes",
                      " ".join(listed["model.norm.weight"]))  # fmt: skip

    def assert_fails_for_want_of_a_checkpoint(self, result):
        self.assertEqual(result.returncode, IO_ERROR, result.stderr)
        self.assertEqual(result.stderr.count("/nonexistent: "), 1, result.stderr)


@unittest.skipUnless("LOAD_MPI" in os.environ, "no MPI")
class LoadMpi(Example):
    def launch(self, ranks, path):
        launcher = os.environ["MPIEXEC"].replace("{ranks}", str(ranks)).split()
        return run([*launcher, *wrapped(os.environ["LOAD_MPI"]), path])

    def test_loads(self):
        result = self.launch(2, self.model)
        self.assertEqual(result.returncode, 0, result.stderr)
        first, *lines = result.stdout.splitlines()
        self.assertIn(f"2 ranks on {os.environ.get('DEVICE', 'host')}, over ", first)
        self.assert_lists_all(lines, 2)

    def test_no_checkpoint(self):
        self.assert_fails_for_want_of_a_checkpoint(self.launch(2, "/nonexistent"))


@unittest.skipUnless("LOAD_NCCL" in os.environ, "no NCCL")
class LoadNccl(Example):
    def launch(self, ranks, path, **environment):
        command = [*wrapped(os.environ["LOAD_NCCL"]), path, ranks]
        return run(command, WORLD_SIZE=str(ranks), **environment)  # which the wrapper reads

    def test_loads(self):
        for ranks in (1, 2, 4):
            with self.subTest(ranks=ranks):
                result = self.launch(ranks, self.model)
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                self.assert_lists_all(result.stdout.splitlines(), ranks)

    def test_no_checkpoint(self):
        for ranks in (1, 4):
            with self.subTest(ranks=ranks):
                self.assert_fails_for_want_of_a_checkpoint(self.launch(ranks, "/nonexistent"))

    def test_usage(self):
        for arguments in ([], [self.model], [self.model, 0], [self.model, "two"]):
            result = run([os.environ["LOAD_NCCL"], *arguments])
            self.assertEqual(result.returncode, 2)
            self.assertIn("usage: ", result.stderr)

    def start(self, ranks):
        """The program and its ranks, as soon as they are there."""
        command = [*wrapped(os.environ["LOAD_NCCL"]), str(self.model), str(ranks)]
        program = subprocess.Popen(
            command, env=os.environ | {"WORLD_SIZE": str(ranks)},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        while len(found := processes_of(program.pid)) < ranks:
            self.assertIsNone(program.poll())
            time.sleep(0.001)
        self.addCleanup(kill_all, found)
        return program, found

    def assert_gone(self, processes):
        end = time.monotonic() + GONE_SECONDS
        while any(map(is_there, processes)):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def test_a_rank_that_dies_ends_all(self):
        for lost in (0, 1):
            with self.subTest(rank=lost):
                program, ranks = self.start(2)
                os.kill(ranks[lost], signal.SIGKILL)
                self.assertNotEqual(program.wait(TIMEOUT_SECONDS), 0)
                self.assert_gone(ranks)

    @unittest.skipUnless("INJECT" in os.environ, "no library that kills a rank")
    def test_a_rank_that_dies_in_a_load_is_named_by_the_others(self):
        """When it reads the header that falls to it."""
        for lost in (0, 2):
            with self.subTest(rank=lost):
                fault = f"call=pread path=model-{lost + 1:05}-of action=kill"
                result = self.launch(3, self.model, LD_PRELOAD=os.environ["INJECT"], FAULTS=fault)
                self.assertNotEqual(result.returncode, 0)
                self.assertEqual(result.stderr.count(f"rank {lost}: "), 2, result.stderr)

    def test_no_rank_outlives_the_program(self):
        program, ranks = self.start(2)
        # Until it has threads, it may not yet have asked to end with the program.
        while len(list(Path(f"/proc/{ranks[1]}/task").iterdir())) == 1:
            time.sleep(0.001)
        os.kill(ranks[1], signal.SIGSTOP)  # so that it cannot end by itself
        program.kill()
        self.assert_gone(ranks)


if __name__ == "__main__":
    unittest.main()
