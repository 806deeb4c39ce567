"""Python environments with packages that scripts need, each made once, apart from everything else."""

import json
import os
import pathlib
import re
import subprocess
import sys

VERSIONS = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"


def cache_directory():
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "safeshuffle"


def normalised(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def last_line(text):
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def error_of(result):
    """pip ends with a hint now and then, after the error itself."""
    errors = [line for line in result.stderr.splitlines() if line.startswith("ERROR:")]
    return errors[-1].removeprefix("ERROR:").strip() if errors else last_line(result.stderr)


class PythonEnvironment:
    def __init__(self, directory, announce=lambda line: None):
        self.directory = pathlib.Path(directory).absolute()
        self.announce = announce
        self.failures = {}  # by label: why it cannot be installed

    @property
    def python(self):
        return self.directory / "bin" / "python"

    def create(self):
        if not self.python.exists():
            self.announce(f"making a Python environment in {self.directory}")
            subprocess.run([sys.executable, "-m", "venv", self.directory], check=True)

    def install(self, label, package, *options):
        self.announce(f"installing {label} into {self.directory}")
        result = subprocess.run([self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                                 "--only-binary", ":all:", *options, package],
                                capture_output=True, text=True, check=False)
        if result.returncode != 0:
            self.failures[label] = error_of(result)

    def list_versions(self, *path):
        if not self.python.exists():
            return {}
        code = VERSIONS if not path else VERSIONS.replace("distributions()", f"distributions(path={list(path)!r})")
        listed = subprocess.run([self.python, "-c", code], capture_output=True, text=True, check=True)
        return {normalised(name): version for name, version in json.loads(listed.stdout).items()}
