"""Runs the command safeshuffle."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPTS = ROOT / "scripts"
COMMAND = ROOT / "build" / "bin" / "safeshuffle"
LIBRARY = ROOT / "build" / "bin" / "libsafeshuffle_c.so"


def launcher(ranks):
    # Not bound: Open MPI would give each of one or two ranks a single core for all of its threads.
    return ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)]


def program(module, *arguments):
    """A module of the scripts as a command, on any node."""
    return ["env", f"PYTHONPATH={SCRIPTS}", "PYTHONDONTWRITEBYTECODE=1", sys.executable, "-m", module, *arguments]


def environment():
    """That of this process, with what Open MPI needs as root, and without a way to other nodes."""
    added = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if not shutil.which("ssh") and not shutil.which("rsh"):
        added["OMPI_MCA_plm"] = "isolated"
    return os.environ | added


class Failed(Exception):
    """A command has failed, with its message."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def message_of(said):
    """What safeshuffle says under mpirun, which says more about it afterwards; otherwise, the first paragraph."""
    for line in said.splitlines():
        if line.startswith("safeshuffle: error: "):
            return line.removeprefix("safeshuffle: error: ")
    lines = [line.strip() for line in said.splitlines() if line.strip("- ") or not line]  # without frames
    paragraphs = " ".join(line or "\n" for line in lines).strip().split("\n")
    return paragraphs[0].strip() or "no message"


def run(command):
    """What it prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    if done.returncode != 0:
        raise Failed(done.returncode, message_of(done.stderr))
    return done.stdout


def make(directory, like, scale, command=COMMAND):
    """A synthetic checkpoint in bf16."""
    run([command, "make", directory, "--like", like, "--scale", str(scale), "--dtype", "bf16"])


def inspect(model, command=COMMAND):
    return json.loads(run([command, "inspect", model, "--json"]))


def load(directory, ranks, arguments, command=COMMAND, wrapper=(), launch=launcher, scratch=None):
    """The load report. `wrapper` is put before the command of each rank; all ranks, or their launcher, can be on other
    nodes, if they have the directory `scratch`, too."""
    with tempfile.TemporaryDirectory(dir=scratch) as directory_of_report:
        report = pathlib.Path(directory_of_report) / "report.json"
        run([*launch(ranks), *wrapper, command, "load", directory, "--report", report, "--progress", "none",
             *arguments])
        return json.loads(report.read_text())
