"""The command and the C library start where there is no MPI, and the command says so if it needs it.

Environment: that of launch.py; LIBRARY, the C library.
"""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from launch import run

COMMAND = os.environ["SAFESHUFFLE"]
CONFIG_ERROR = 2


def needed_libraries(file):
    dynamic = subprocess.run(["readelf", "-d", file], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)


class WithoutMpi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.enterClassContext(directory := tempfile.TemporaryDirectory(prefix="safeshuffle-"))
        cls.model = Path(directory.name) / "model"
        run("make", cls.model, "--like", "llama-2-70b", "--scale", "0.0001", "--sparse", ranks=1)
        cls.alone = Path(directory.name) / "bin" / "safeshuffle"  # without libsafeshuffle_mpi.so
        cls.alone.parent.mkdir()
        shutil.copy(COMMAND, cls.alone)

    def test_not_linked_with_mpi(self):
        for file in (COMMAND, os.environ["LIBRARY"]):
            libraries = needed_libraries(file)
            self.assertIn("libc.so.6", libraries)
            self.assertEqual([name for name in libraries if "mpi" in name], [])

    def test_a_single_process_does_not_need_it(self):
        with mock.patch.dict(os.environ, SAFESHUFFLE=str(self.alone)):
            result = run("load", self.model, ranks=1)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_ranks_of_mpirun_say_that_it_is_missing(self):
        with mock.patch.dict(os.environ, SAFESHUFFLE=str(self.alone)):
            result = run("load", self.model, ranks=2)
        self.assertEqual(result.returncode, CONFIG_ERROR, result.stderr)
        errors = re.findall("^safeshuffle: error: .*", result.stderr, re.MULTILINE)
        self.assertEqual(len(errors), 1, result.stderr)
        self.assertIn("cannot load MPI: ", errors[0])
        self.assertIn(str(self.alone.parent / "libsafeshuffle_mpi.so"), errors[0])


if __name__ == "__main__":
    unittest.main()
