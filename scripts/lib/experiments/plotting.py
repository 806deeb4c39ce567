"""Draws plots with a Python that has matplotlib: this one, the distribution's, or one of an environment of its own."""

import pathlib
import subprocess
import sys

from lib.python_environment import PythonEnvironment, cache_directory, last_line

SCRIPTS = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = "matplotlib"
OLDEST = (3, 7)  # that can put a legend beside the axes of a figure
VERSION = ".".join(map(str, OLDEST))
DISTRIBUTION = "/usr/bin/python3"


def has_matplotlib(python):
    """One that is new enough."""
    if not pathlib.Path(python).exists():
        return False
    check = f"import {PACKAGE}, sys; sys.exit({PACKAGE}.__version_info__ < {OLDEST})"
    done = subprocess.run([python, "-c", check], capture_output=True, check=False)
    return done.returncode == 0


def installed(environment):
    """Why matplotlib cannot be installed; empty if it is."""
    try:
        environment.create()
    except subprocess.CalledProcessError as error:
        return f"no Python environment can be made in {environment.directory}: {error}"
    environment.install(PACKAGE, f"{PACKAGE}>={VERSION}")
    return environment.failures.get(PACKAGE, "")


def find_python(announce, install):
    """A Python with matplotlib, and why there is none."""
    environment = PythonEnvironment(cache_directory() / "plots", announce)
    for python in (sys.executable, DISTRIBUTION, environment.python):
        if has_matplotlib(python):
            return python, ""
    if not install:
        return None, f"{PACKAGE} {VERSION} or newer is not installed"
    obstacle = installed(environment)
    return environment.python, f"{PACKAGE} cannot be installed: {obstacle}" if obstacle else ""


def draw(module, directories, announce, install=True):
    """By a module that draws those of the results in directories. Why there are no plots; empty if there are."""
    python, obstacle = find_python(announce, install)
    if obstacle:
        return obstacle
    absolute = [directory.absolute() for directory in directories]
    done = subprocess.run([python, "-m", module, *absolute], cwd=SCRIPTS, capture_output=True, text=True, check=False)
    return last_line(done.stderr) if done.returncode != 0 else ""
