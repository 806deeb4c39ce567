"""Runs the command safeshuffle."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
COMMAND = ROOT / "build" / "bin" / "safeshuffle"


def launcher(ranks):
    # Not bound: Open MPI would give each of one or two ranks a single core for all of its threads.
    return ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)]


def environment():
    """That of this process, with what Open MPI needs as root, and without a way to other nodes."""
    added = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if not shutil.which("ssh") and not shutil.which("rsh"):
        added["OMPI_MCA_plm"] = "isolated"
    return os.environ | added


def make(directory, like, scale, command=COMMAND):
    """A synthetic checkpoint in bf16."""
    subprocess.run([command, "make", directory, "--like", like, "--scale", str(scale), "--dtype", "bf16"],
                   check=True, stdout=subprocess.DEVNULL)


def load(directory, ranks, arguments, command=COMMAND, wrapper=()):
    """The load report. `wrapper` is put before the command of each rank."""
    with tempfile.TemporaryDirectory() as scratch:
        report = pathlib.Path(scratch) / "report.json"
        subprocess.run([*launcher(ranks), *wrapper, command, "load", directory, "--report", report, "--progress",
                        "none", *arguments], check=True, stdout=subprocess.DEVNULL, env=environment())
        return json.loads(report.read_text())
