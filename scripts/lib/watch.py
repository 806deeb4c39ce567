"""Watches processes: the kernel keeps no peak of anonymous memory, so it is looked at every few milliseconds."""

import os
import time

from . import usage

INTERVAL_SECONDS = 0.02


class AnonymousPeak:
    """The most anonymous memory that was seen of a process."""

    def __init__(self, process):
        self.process = process
        self.bytes = 0

    def look(self):
        try:
            self.bytes = max(self.bytes, usage.memory(self.process).get("anonymous_bytes", 0))
        except OSError:
            pass  # it has ended


def has_ended(process):
    """Leaves it to be waited for, so that what the kernel counted of it can still be read."""
    return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def until_ended(processes):
    """Bytes of the peaks, in order."""
    peaks = [AnonymousPeak(process) for process in processes]
    while not all(has_ended(process) for process in processes):
        for peak in peaks:
            peak.look()
        time.sleep(INTERVAL_SECONDS)
    return [peak.bytes for peak in peaks]
