"""The command where there are GPUs: which one it takes, and what it says of it.

Environment: that of launch.py.
"""

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
                    self.assertIn(f"there is no GPU {NO_SUCH_GPU}: ", result.stderr)


if __name__ == "__main__":
    unittest.main()
