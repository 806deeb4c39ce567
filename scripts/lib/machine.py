"""What this machine is."""

import os
import pathlib
import platform
import shutil
import subprocess


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def filesystem(path):
    """The type of the filesystem that has the path, such as "ext4", and its device."""
    listed = subprocess.run(["df", "--output=fstype,source", path], capture_output=True, text=True, check=True)
    return listed.stdout.splitlines()[1].split(maxsplit=1)


def gpus():
    """Names of the GPUs, as nvidia-smi lists them."""
    if not shutil.which("nvidia-smi"):
        return []
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return listed.stdout.splitlines() if listed.returncode == 0 else []


def description(path):
    """For results: the machine, and the filesystem of the path."""
    kind, source = filesystem(path)
    return {
        "cpu": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "filesystem": kind,
        "filesystem_device": source,
        "gpus": gpus(),
    }
