"""Runs one rank of a command, and writes what the kernel counted of it, as JSON, into DIRECTORY.

usage: python3 -m lib.watched DIRECTORY COMMAND...
"""

import json
import subprocess
import sys
import tempfile

from . import usage, watch


def main():
    directory, *command = sys.argv[1:]
    process = subprocess.Popen(command)
    [anonymous] = watch.until_ended([process.pid])
    counted = {"peak_anonymous_bytes": anonymous, "read_bytes": usage.read_bytes(process.pid)}
    with tempfile.NamedTemporaryFile("w", dir=directory, suffix=".json", delete=False) as file:
        json.dump(counted, file)
    return process.wait()


if __name__ == "__main__":
    sys.exit(main())
