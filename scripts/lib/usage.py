"""What the kernel counts of a process."""

import os
import pathlib

INTERVAL_SECONDS = 0.02  # between looks at a process
BYTES = {"VmHWM": "peak_resident_bytes", "VmRSS": "resident_bytes", "RssAnon": "anonymous_bytes"}


def memory(process="self"):
    """Resident memory: now, its anonymous part, and the most so far. Empty once the process has ended."""
    status = pathlib.Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return {name: int(fields[key].split()[0]) * 1024 for key, name in BYTES.items() if key in fields}


def read_bytes(process="self"):
    """Bytes that it had read from storage."""
    for line in pathlib.Path(f"/proc/{process}/io").read_text(encoding="utf-8").splitlines():
        if line.startswith("read_bytes:"):
            return int(line.split()[1])
    raise OSError(f"/proc/{process}/io: no read_bytes")


def forget_peak():
    """From now on, the peak is that since now. Not possible on all kernels; then it includes what was before."""
    try:
        pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    except OSError:
        pass


class AnonymousPeak:
    """The most anonymous memory that was seen of a process, of which the kernel keeps no peak."""

    def __init__(self, process):
        self.process, self.bytes = process, 0

    def look(self):
        try:
            self.bytes = max(self.bytes, memory(self.process).get("anonymous_bytes", 0))
        except OSError:
            pass  # it has ended


def has_ended(process):
    """Leaves it to be waited for, so that what the kernel counted of it can still be read."""
    return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
