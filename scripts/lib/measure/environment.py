"""A Python environment with the peers, made once. Delete it to get newer versions."""

import os

from lib.python_environment import PythonEnvironment

# numpy is needed by none of them to load, but torch warns without it.
STABLE = ("numpy", "torch", "safetensors", "fastsafetensors", "runai-model-streamer", "instanttensor")
PRERELEASE = "safetensors"
PRERELEASE_LABEL = f"{PRERELEASE} (pre-release)"


class Environment(PythonEnvironment):
    def __init__(self, directory, announce=lambda line: None):
        super().__init__(directory, announce)
        self.prerelease_directory = self.directory / "prerelease"
        self.look()

    def prepare(self):
        """Installs what is missing, each package by itself, so that one that fails leaves the others."""
        self.create()
        missing = [package for package in STABLE if package not in self.versions]
        for package in missing:
            self.install(package, package)
        if PRERELEASE not in self.prerelease_versions:
            self.install(PRERELEASE_LABEL, PRERELEASE, "--pre", "--no-deps", "--target", str(self.prerelease_directory))
        self.look()

    def look(self):
        """Finds out what is there."""
        self.versions = self.list_versions()
        self.prerelease_versions = self.list_versions(str(self.prerelease_directory))

    def versions_of(self, peer):
        """Of the packages that the peer needs, as far as they are there."""
        there = self.versions | (self.prerelease_versions if peer.prerelease else {})
        return {package: there[package] for package in peer.packages if package in there}

    def obstacle(self, peer):
        """Why the peer cannot run here, as far as packages go; empty if it can."""
        own, *others = peer.packages
        labels = [(PRERELEASE_LABEL, own, self.prerelease_versions) if peer.prerelease else (own, own, self.versions)]
        labels += [(package, package, self.versions) for package in others]
        for label, package, there in labels:
            if package not in there:
                return f"{label} is not installed: {self.failures.get(label, 'the environment does not have it')}"
        return ""

    def variables(self, peer, scripts):
        """Environment variables to run the peer's driver with."""
        path = [str(scripts)] + ([str(self.prerelease_directory)] if peer.prerelease else [])
        return os.environ | {"PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1"}
