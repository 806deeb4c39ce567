"""The command where there are GPUs: which one it takes, and what it says of it.

Environment: that of launch.py.
"""

import json
import os
import re
import tempfile
import unittest
from pathlib import Path

from launch import run

CONFIG_ERROR = 2
NO_SUCH_GPU = 1000


class Gpu(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.enterClassContext(directory := tempfile.TemporaryDirectory(prefix="safeshuffle-"))
        cls.model = Path(directory.name) / "model"
        run("make", cls.model, "--like", "llama-2-70b", "--scale", "0.0001", "--sparse")

    def device_line(self, *options, ranks=1):
        result = run("load", self.model, *options, ranks=ranks)
        self.assertEqual(result.returncode, 0, result.stderr)
        return re.search(r"^device (.+), transport (.+), I/O ", result.stdout, re.MULTILINE)

    def test_one_rank_needs_no_nccl(self):
        for device in ("auto", "cuda"):
            gpu, transport = self.device_line("--device", device).groups()
            self.assertRegex(gpu, r"^.+ at [0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:")
            self.assertEqual(transport, "self")

    def report(self, *options):
        path = self.model / "report.json"
        result = run("load", self.model, "--device", "cuda", *options, "--report", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(path.read_text(encoding="utf-8"))

    def test_plan_has_the_window_of_gpus_if_told(self):
        plan = run("plan", self.model, "--world", 1, "--device", "cuda", "--json")
        report = self.report()
        self.assertEqual(report["plan_hash"], json.loads(plan.stdout)["hash"])
        self.assertEqual(report["window"], 256 << 20)
        on_host = json.loads(run("plan", self.model, "--world", 1, "--json").stdout)
        self.assertEqual(on_host["window"], 64 << 20)

    def test_a_binding_to_one_cpu_does_not_hold_all_reader_threads(self):
        cpus = os.sched_getaffinity(0)
        if len(cpus) == 1:
            self.skipTest("there is one CPU only")
        self.addCleanup(os.sched_setaffinity, 0, cpus)
        os.sched_setaffinity(0, {min(cpus)})
        (free,) = self.report()["ranks"]
        self.assertNotEqual(free["io"]["cpus"], str(min(cpus)))
        self.assertGreaterEqual(free["io"]["threads"], 4)
        self.assertEqual(free["io"]["chunk"], 2 << 20)
        self.assertLessEqual(free["peak_pinned_bytes"], 80 << 20)

    def test_each_reader_thread_has_two_chunks_of_pinned_memory(self):
        (rank,) = self.report("--threads", 4, "--chunk", "256KiB")["ranks"]
        slot = (256 << 10) + 4096
        self.assertEqual(rank["peak_pinned_bytes"] - rank["packer_device_bytes"], 8 * slot)

    def test_ranks_use_nccl(self):
        gpu, transport = self.device_line("--device", "cuda", ranks=2).groups()
        self.assertNotIn("host", gpu)
        self.assertEqual(transport, "nccl+mpi")

    def test_a_gpu_that_is_not_there(self):
        for device in ("auto", "cuda"):
            for ranks in (1, 2):
                with self.subTest(device=device, ranks=ranks):
                    result = run("load", self.model, "--device", device, "--gpu", NO_SUCH_GPU,
                                 ranks=ranks)  # fmt: skip
                    self.assertEqual(result.returncode, CONFIG_ERROR, result.stderr)
                    self.assertEqual(result.stderr.count("safeshuffle: error: "), 1, result.stderr)
                    self.assertIn(f"GPU {NO_SUCH_GPU} does not exist: ", result.stderr)


if __name__ == "__main__":
    unittest.main()
