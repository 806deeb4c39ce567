"""The command where there is no GPU: `auto` is the host and says why, `cuda` fails for that reason.

Environment: that of launch.py.
"""

import re
import tempfile
import time
import unittest
from pathlib import Path

from launch import run

AT_ONCE_SECONDS = 20  # on a busy machine
RANKS = 4
CONFIG_ERROR, CUDA_ERROR = 2, 6
NOT_BUILT_IN = "this safeshuffle was built without CUDA"


class NoGpu(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.enterClassContext(directory := tempfile.TemporaryDirectory(prefix="safeshuffle-"))
        cls.model = Path(directory.name) / "model"
        run("make", cls.model, "--like", "llama-2-70b", "--scale", "0.0001", "--sparse", ranks=1)

    def why_not(self, ranks):
        """What `auto` gives as the reason."""
        result = run("load", self.model, "--device", "auto", ranks=ranks)
        self.assertEqual(result.returncode, 0, result.stderr)
        found = re.search(r"(?m)^device host \((?:rank 0: )?(.+)\), transport ", result.stdout)
        self.assertIsNotNone(found, result.stdout)
        return found[1]

    def test_cuda_fails_for_the_reason_that_auto_gives(self):
        for ranks in (1, RANKS):
            with self.subTest(ranks=ranks):
                why = self.why_not(ranks)
                begin = time.monotonic()
                result = run("load", self.model, "--device", "cuda", ranks=ranks)
                self.assertLess(time.monotonic() - begin, AT_ONCE_SECONDS)
                code = CONFIG_ERROR if why == NOT_BUILT_IN else CUDA_ERROR
                self.assertEqual(result.returncode, code)
                self.assertEqual(result.stdout, "")
                self.assertEqual(result.stderr.count("safeshuffle: error: "), 1, result.stderr)
                self.assertRegex(result.stderr, f"(?m)^safeshuffle: error: .*{re.escape(why)}$")

    def test_host_gives_no_reason(self):
        result = run("load", self.model, "--device", "host", ranks=1)
        self.assertIn("device host, transport self", result.stdout)

    def test_host_has_no_gpus_to_choose_from(self):
        result = run("load", self.model, "--device", "host", "--gpu", 1, ranks=1)
        self.assertEqual(result.returncode, CONFIG_ERROR)
        self.assertIn("--gpu cannot be used with --device host", result.stderr)


if __name__ == "__main__":
    unittest.main()
