"""The command: python -m safeshuffle."""

import os
import sys


def main():
    command = os.path.join(os.path.dirname(__file__), "bin", "safeshuffle")
    os.execv(command, ["safeshuffle", *sys.argv[1:]])


if __name__ == "__main__":
    main()
