"""Progress on stderr."""

import shutil
import sys
import time


def duration(seconds):
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


class Progress:
    """What is being done, and how long all of it will take; one line, if it is a terminal."""

    def __init__(self, total):
        self.total, self.done, self.begin = total, 0, time.monotonic()

    def say(self, line):
        if sys.stderr.isatty():
            room = shutil.get_terminal_size().columns - 1  # a line that wraps could not be taken back
            print("\r\033[K" + line[:room], end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def step(self, line):
        self.say(f"[{self.done}/{self.total}] {line}{self.time_left()}")
        self.done += 1

    def time_left(self):
        if self.done == 0:
            return ""
        each = (time.monotonic() - self.begin) / self.done
        return f"; about {duration(each * (self.total - self.done))} left"

    def finish(self):
        if sys.stderr.isatty():
            self.say("")
