"""Prepares this node for a run: `page_cache.Preparer`. Once it has ended, nothing keeps warm files warm.

usage: python3 -m lib.prepare cold|warm DTYPE FILE...
"""

import os
import pathlib
import sys

from lib import page_cache


def main():
    state, dtype, *files = sys.argv[1:]
    try:
        page_cache.Preparer().prepare([pathlib.Path(file) for file in files], state, dtype)
    except page_cache.Unprepared as error:
        sys.exit(f"{os.uname().nodename}: {error}")


if __name__ == "__main__":
    main()
