"""Builds the command of a commit, once, apart from the work tree."""

import pathlib
import shutil
import subprocess

from lib import safeshuffle


def git(*arguments):
    done = subprocess.run(["git", "-C", safeshuffle.ROOT, *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def commit_of(name):
    """The full hash."""
    return git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").strip()


def has_changes():
    """Whether tracked files differ from the last commit."""
    return bool(git("status", "--porcelain", "--untracked-files=no").strip())


def described():
    """The commit that is checked out, and whether there are changes besides."""
    try:
        if pathlib.Path(git("rev-parse", "--show-toplevel").strip()) != safeshuffle.ROOT:
            return "unknown"  # installed, inside some other repository
        return git("rev-parse", "HEAD").strip() + (" with changes" if has_changes() else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"  # not a clone


def built(commit, cache, announce):
    """The command of that commit, in a directory of the cache."""
    directory = pathlib.Path(cache) / "builds" / commit
    command = directory / "build" / "bin" / "safeshuffle"
    if command.exists():
        return command
    announce(f"building {commit[:12]} in {directory}")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    archive = subprocess.run(["git", "-C", safeshuffle.ROOT, "archive", commit], stdout=subprocess.PIPE, check=True)
    subprocess.run(["tar", "-x", "-C", directory], input=archive.stdout, check=True)
    configure = ["cmake", "--preset", "release"]
    for step in (configure, ["cmake", "--build", "--preset", "release", "--target", "bin/safeshuffle"]):
        done = subprocess.run(step, cwd=directory, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"compare: building {commit[:12]} failed: {' '.join(step)}:\n{done.stdout}{done.stderr}")
    return command
