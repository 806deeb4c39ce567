"""Runs the cases of an experiment in turns."""

import dataclasses
import functools
import hashlib
import pathlib
import time
import typing

from lib import machine, page_cache, safeshuffle
from lib.comparison import builds, systems
from lib.experiments import launch, samples, timeline
from lib.progress import Progress
from lib.turns import in_turns


TURNS_PER_CEILING = 3  # ceilings are measured in the first turn, and in every third after it
TRACED_RUNS = 3  # of which a timeline shows the one in the middle: a single one may be an outlier
INCIDENTAL = ("title", "question", "note", "turns", "plots", "ceilings")


def sha256_of(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def identity(experiment, command, launcher, directory):
    """What was measured, with what, and where."""
    version = safeshuffle.run([command, "--version"]).split()[-1]
    return {
        "experiment": {"name": experiment.name, "definition": experiment.definition},
        "commit": builds.described(),
        "version": version,
        "command_sha256": sha256_of(command),
        "machine": machine.description(directory),
        "launcher": {"name": launcher.name, "version": launch.version_of(launcher)},
    }


def state_of(path):
    """What changes if a file is replaced."""
    status = pathlib.Path(path).stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def differences(one, other):
    """In what two identities differ such that samples of both cannot be compared: of the experiment, all but its words,
    plots and number of turns."""
    def comparable(of):
        described = of["experiment"]
        kept = {name: value for name, value in described["definition"].items() if name not in INCIDENTAL}
        return of | {"experiment": described | {"definition": kept}}

    return [name for name in one if comparable(one)[name] != comparable(other).get(name)]


def in_words(axis, value):
    if axis == "ranks":
        return f"{value} rank{'s' if value > 1 else ''}"
    if axis in ("model", "cache", "system"):
        return str(value)
    return f"--{axis} {value if value is not None else 'default'}"


def title_of(case, axes):
    """Of those of the axes that it has: "4 ranks, cold, --io posix"."""
    return ", ".join(in_words(axis, case[axis]) for axis in axes if axis in case)


def load_arguments(case):
    return [word for option, value in case.items() if option not in ("model", "ranks", "cache") and value is not None
            for word in (f"--{option}", str(value))]


class Replaced(Exception):
    """The command is no longer what was measured so far."""


@dataclasses.dataclass(frozen=True)
class Job:
    title: str
    run: typing.Callable


class Measurement:
    """`kept`: samples, ceilings and timelines of an interrupted measurement with the same identity."""

    def __init__(self, experiment, launcher, command, scratch, model_of, kept, on_result):
        self.experiment, self.launcher, self.command, self.scratch = experiment, launcher, command, scratch
        self.model_of, self.on_result = model_of, on_result
        self.samples, self.ceilings = list(kept.get("samples", [])), list(kept.get("ceilings", []))
        self.timelines, self.not_run = list(kept.get("timelines", [])), []
        self.failed = None  # the first that did

    def ceiling_systems(self):
        """Those that can be measured here, with the state of the page cache that each is the ceiling of."""
        found = []
        for system in systems.ceilings(self.launcher.ranks):
            if system.name not in self.experiment.ceilings:
                continue
            cache, = system.runs_when
            obstacle = system.obstacle("cpu", max(self.experiment.ranks))
            if cache not in self.experiment.cache:
                obstacle = f"the experiment has no {cache} runs"
            elif system.name == "fio" and isinstance(self.launcher, launch.Nodes):
                obstacle = "runs on one node only"
            if obstacle:
                self.leave_out(f"ceiling {system.name}", obstacle)
            else:
                found.append((system, cache))
        return found

    def ceiling_jobs(self, turn):
        """Reads by fio do not depend on the number of ranks, the others do."""
        known = [(entry["system"], entry["case"], entry["turn"]) for entry in self.ceilings]
        for system, cache in self.ceiling_systems():
            for model in self.experiment.models:
                for ranks in [max(self.experiment.ranks)] if system.name == "fio" else self.experiment.ranks:
                    case = {"model": model.name, "ranks": ranks, "cache": cache}
                    if (system.name, case, turn) not in known:
                        yield Job(", ".join(filter(None, [f"turn {turn + 1}: {system.name}", self.title(case)])),
                                  functools.partial(self.measure_ceiling, system, case, turn))

    def load_jobs(self):
        """By turn."""
        known = {(samples.key(one["case"]), one["turn"]) for one in self.samples}
        jobs = {turn: [] for turn in range(self.experiment.turns)}
        for turn, position, case in in_turns(self.experiment.cases(), self.experiment.turns):
            if (samples.key(case), turn) not in known:
                jobs[turn].append(Job(f"turn {turn + 1}: {self.title(case)}", functools.partial(
                    self.attempt, case, functools.partial(self.measure_load, case, turn, position))))
        return jobs

    def timeline_jobs(self):
        known = [timeline["case"] for timeline in self.timelines]
        wanted = [largest_case(self.experiment, plot.where) for plot in self.experiment.plots
                  if plot.kind == "timeline"]
        for at, case in enumerate(wanted):
            if case and case not in known and case not in wanted[:at]:
                yield Job(f"timeline: {self.title(case)}", functools.partial(
                    self.attempt, case, functools.partial(self.measure_timeline, case)))

    def jobs(self):
        """All that is not measured yet, in order."""
        found = []
        for turn, loads in self.load_jobs().items():
            if turn % TURNS_PER_CEILING == 0:
                found += self.ceiling_jobs(turn)
            found += loads
        return found + list(self.timeline_jobs())

    def has_loads_left(self):
        return any(self.load_jobs().values()) or any(self.timeline_jobs())

    def measure(self, further=0):
        """`further`: how many loads follow, of other experiments."""
        jobs = self.jobs()
        progress = Progress(len(jobs), further)
        command = state_of(self.command)
        for job in jobs:
            progress.step(job.title)
            job.run()
            if state_of(self.command) != command:
                raise Replaced(f"{self.command} was replaced while it was measured: the results of the turn are not of "
                               "one command; measure again, with --fresh")
        self.launcher.release()
        progress.finish()

    def title(self, case):
        return title_of(case, self.experiment.distinct())

    def leave_out(self, what, reason):
        entry = {"what": what, "reason": reason}
        if entry not in self.not_run:
            self.not_run.append(entry)

    def attempt(self, case, action):
        """A case that has failed is not run again; all others are."""
        title = self.title(case)
        if any(entry["what"] == title for entry in self.not_run):
            return
        try:
            action()
        except (safeshuffle.Failed, page_cache.Unprepared) as failed:
            self.failed = self.failed or failed
            self.leave_out(title, str(failed))
        self.on_result(self)

    def measure_ceiling(self, system, case, turn):
        model = self.model_of(case)
        for_system = systems.Case(model.directory, model.files, model.bytes, case["ranks"], "keep", self.command,
                                  self.scratch, case["cache"])
        try:
            taken = system.run(for_system, lambda: self.launcher.prepare(model.files, case["cache"], for_system.dtype))
        except (systems.NotRun, page_cache.Unprepared) as error:
            return self.leave_out(f"ceiling {system.name}", str(error))
        self.ceilings.append({"system": system.name, "case": case, "turn": turn, "seconds": taken["seconds"],
                              "bytes": taken["bytes"], "note": taken["note"],
                              "gigabytes_per_second": taken["bytes"] / taken["seconds"] / 1e9})
        self.on_result(self)

    def load(self, case, *further):
        """The load report, and the seconds that the whole command took."""
        model = self.model_of(case)
        self.launcher.prepare(model.files, case["cache"], case.get("dtype") or "keep")
        begin = time.perf_counter()
        report = safeshuffle.load(model.directory, case["ranks"], [*load_arguments(case), *further], self.command,
                                  launch=self.launcher.ranks, scratch=self.scratch)
        return report, time.perf_counter() - begin

    def measure_load(self, case, turn, position):
        report, wall_seconds = self.load(case)
        self.samples.append(samples.sample(report, wall_seconds, case, turn, position))

    def measure_timeline(self, case):
        """Of runs of their own, so that no trace is written while others are measured."""
        path = pathlib.Path(self.scratch) / "trace.json"
        traced = []
        for _ in range(TRACED_RUNS):
            report, _ = self.load(case, "--trace", path)
            traced.append(timeline.read(path, case) | {"seconds": report["seconds"]})
        self.timelines.append(sorted(traced, key=lambda one: one["seconds"])[TRACED_RUNS // 2])


def largest_case(experiment, where):
    """Of those that match, the one with the most ranks; None if none does."""
    matching = [case for case in experiment.cases() if all(case[axis] == value for axis, value in where.items())]
    return max(matching, key=lambda case: case["ranks"], default=None)
