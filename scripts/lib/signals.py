"""How a script ends when it is interrupted."""

import signal
import sys


def end_cleanly(number, _):
    """Temporary directories, which may have gigabytes, are removed."""
    sys.exit(128 + number)


def end_cleanly_on_signals():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end_cleanly)
