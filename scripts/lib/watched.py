"""Runs one rank of a command, and writes what the kernel counted of it, as JSON, into DIRECTORY.

usage: python3 -m lib.watched DIRECTORY COMMAND...
"""

import json
import subprocess
import sys
import tempfile
import time

from lib import usage


def main():
    directory, *command = sys.argv[1:]
    process = subprocess.Popen(command)
    peak = usage.AnonymousPeak(process.pid)
    while not usage.has_ended(process.pid):
        peak.look()
        time.sleep(usage.INTERVAL_SECONDS)
    counted = {"peak_anonymous_bytes": peak.bytes, "read_bytes": usage.read_bytes(process.pid)}
    with tempfile.NamedTemporaryFile("w", dir=directory, suffix=".json", delete=False) as file:
        json.dump(counted, file)
    return process.wait()


if __name__ == "__main__":
    sys.exit(main())
