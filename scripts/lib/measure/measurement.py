"""Runs what is measured in turns, and collects samples."""

import dataclasses
import random

from lib import gpu_memory, page_cache, safeshuffle
from lib.measure import systems


def order_of(things, turn):
    """Shuffled anew every other turn, reversed in between: over two turns, all have the same average position."""
    order = list(things)
    random.Random(turn // 2).shuffle(order)
    return order if turn % 2 == 0 else order[::-1]


def in_turns(things, turns):
    """(turn, position, thing): each thing once in each turn. The order differs from turn to turn, so that a
    disturbance, or what one leaves behind, does not always meet the same one."""
    for turn in range(turns):
        for position, thing in enumerate(order_of(things, turn)):
            yield turn, position, thing


def in_words(axis, value):
    if axis == "ranks":
        return f"{value} rank{'s' if value > 1 else ''}"
    if axis in ("model", "cache", "system"):
        return str(value)
    return f"--{axis} {value if value is not None else 'default'}"


def title_of(case, axes=None):
    """Of those of the axes that it has: "4 ranks, cold, --io posix"."""
    return ", ".join(in_words(axis, case[axis]) for axis in axes or case if axis in case)


def varying(cases):
    """The axes that tell cases apart."""
    axes = list(dict.fromkeys(axis for case in cases for axis in case))
    return [axis for axis in axes if len({case[axis] for case in cases if axis in case}) > 1]


@dataclasses.dataclass(frozen=True)
class Run:
    """A system, what it loads, and the values by axis that its samples have."""

    system: object
    case: systems.Case
    axes: dict


class Measurement:
    """`prepare(files, cache, dtype)` puts files into the state that a run begins with, and touches memory."""

    def __init__(self, prepare, progress):
        self.prepare, self.progress = prepare, progress
        self.gpus = gpu_memory.Gpus()
        self.samples, self.not_run = [], []
        self.failed = None  # the first load by safeshuffle, or preparation, that did

    def leave_out(self, what, reason):
        entry = {"what": what, "reason": str(reason)}
        if entry not in self.not_run:
            self.not_run.append(entry)

    def take_turns(self, runs, turns, turns_per_ceiling=1):
        """Ceilings are measured in the first turn, and in every so many after it."""
        for turn, position, run in in_turns(runs, turns):
            if run.system.loads or turn % turns_per_ceiling == 0:
                self.attempt(run, turn, position)

    def attempt(self, run, turn, position):
        """What has failed is not run again; all others are."""
        title = title_of(run.axes)
        self.progress.step(f"turn {turn + 1}: {title}")
        if any(entry["what"] == title for entry in self.not_run):
            return
        case = run.case
        try:
            with gpu_memory.Peak(self.gpus) as peak:
                taken = run.system.run(case, lambda: self.prepare(case.model.files, case.cache, case.dtype))
        except systems.NotRun as reason:
            return self.leave_out(title, reason)
        except (safeshuffle.Failed, page_cache.Unprepared) as reason:
            self.failed = self.failed or reason
            return self.leave_out(title, reason)
        self.samples.append({
            "case": run.axes, "turn": turn, "position": position,
            "gigabytes_per_second": taken["bytes"] / taken["seconds"] / 1e9,
            **taken, "peak_gpu_bytes": peak.bytes if run.system.loads else None})
