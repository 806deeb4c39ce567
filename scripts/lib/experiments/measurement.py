"""Runs the cases of an experiment in turns."""

import hashlib
import pathlib
import time

from lib import machine, page_cache, safeshuffle
from lib.comparison import builds, systems
from lib.experiments import launch, samples, timeline
from lib.turns import in_turns


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


def differences(one, other):
    """In what two identities differ such that samples of both cannot be compared: of the experiment, all but its words,
    plots and number of turns."""
    def comparable(of):
        described = of["experiment"]
        kept = {name: value for name, value in described["definition"].items() if name not in INCIDENTAL}
        return of | {"experiment": described | {"definition": kept}}

    return [name for name in one if comparable(one)[name] != comparable(other).get(name)]


def title_of(case, model_matters):
    """In words: "cold, 4 ranks, io posix"."""
    words = [case["model"]] if model_matters else []
    words += [case["cache"], f"{case['ranks']} rank{'s' if case['ranks'] > 1 else ''}"]
    words += [f"{option} {value if value is not None else 'default'}" for option, value in case.items()
              if option not in ("model", "ranks", "cache")]
    return ", ".join(words)


def load_arguments(case):
    return [word for option, value in case.items() if option not in ("model", "ranks", "cache") and value is not None
            for word in (f"--{option}", str(value))]


class Measurement:
    """`kept`: samples, ceilings and timelines of an interrupted measurement with the same identity."""

    def __init__(self, experiment, launcher, command, scratch, model_of, kept, on_result):
        self.experiment, self.launcher, self.command, self.scratch = experiment, launcher, command, scratch
        self.model_of, self.on_result = model_of, on_result
        self.samples, self.ceilings = list(kept.get("samples", [])), list(kept.get("ceilings", []))
        self.timelines, self.not_run = list(kept.get("timelines", [])), []
        self.failed = None  # the first that did

    def ceiling_runs(self):
        """(system, case of its own): reads do not depend on the number of ranks, copies do."""
        found = []
        for system in (systems.Fio(), systems.MemoryCopy(self.launcher.ranks)):
            if system.name not in self.experiment.ceilings:
                continue
            cache, = system.runs_when
            obstacle = system.obstacle("cpu")
            if system.name == "fio" and isinstance(self.launcher, launch.Nodes):
                obstacle = "runs on one node only"
            if obstacle or cache not in self.experiment.cache:
                self.leave_out(system.name, obstacle or f"the experiment has no {cache} runs")
                continue
            ranks = self.experiment.ranks if system.name == "memory-copy" else [max(self.experiment.ranks)]
            found += [(system, {"model": model.name, "ranks": number, "cache": cache})
                      for model in self.experiment.models for number in ranks]
        return found

    def missing_ceilings(self):
        known = [(entry["system"], entry["case"]) for entry in self.ceilings]
        return [(system, case) for system, case in self.ceiling_runs() if (system.name, case) not in known]

    def missing_runs(self):
        known = {(samples.key(one["case"]), one["turn"]) for one in self.samples}
        return [(turn, position, case)
                for turn, position, case in in_turns(self.experiment.cases(), self.experiment.turns)
                if (samples.key(case), turn) not in known]

    def missing_timelines(self):
        known = [timeline["case"] for timeline in self.timelines]
        wanted = [plot.where for plot in self.experiment.plots if plot.kind == "timeline"]
        cases = [largest_case(self.experiment, where) for where in wanted]
        return [case for at, case in enumerate(cases) if case and case not in known and case not in cases[:at]]

    def measure(self, progress):
        several = len(self.experiment.models) > 1
        for system, case in self.missing_ceilings():
            progress.step(f"ceiling {system.name}, {title_of(case, several)}")
            self.measure_ceiling(system, case)
        for turn, position, case in self.missing_runs():
            progress.step(f"turn {turn + 1}: {title_of(case, several)}")
            self.attempt(case, lambda: self.measure_load(case, turn, position))
        for case in self.missing_timelines():
            progress.step(f"timeline: {title_of(case, several)}")
            self.attempt(case, lambda: self.measure_timeline(case))

    def count(self):
        return len(self.missing_ceilings()) + len(self.missing_runs()) + len(self.missing_timelines())

    def leave_out(self, what, reason):
        entry = {"what": what, "reason": reason}
        if entry not in self.not_run:
            self.not_run.append(entry)

    def attempt(self, case, action):
        """A case that has failed is not run again; all others are."""
        title = title_of(case, len(self.experiment.models) > 1)
        if any(entry["what"] == title for entry in self.not_run):
            return
        try:
            action()
        except (safeshuffle.Failed, page_cache.Unprepared) as failed:
            self.failed = self.failed or failed
            self.leave_out(title, str(failed))
        self.on_result(self)

    def measure_ceiling(self, system, case):
        model = self.model_of(case)
        for_system = systems.Case(model.directory, model.files, model.bytes, case["ranks"], "keep", self.command,
                                  self.scratch, case["cache"])
        try:
            taken = system.run(for_system, lambda: self.launcher.prepare(model.files, case["cache"]))
        except (systems.NotRun, page_cache.Unprepared) as error:
            return self.leave_out(f"ceiling {system.name}", str(error))
        self.ceilings.append({"system": system.name, "case": case, "seconds": taken["seconds"],
                              "bytes": taken["bytes"], "note": taken["note"],
                              "gigabytes_per_second": taken["bytes"] / taken["seconds"] / 1e9})
        self.on_result(self)

    def load(self, case, *further):
        """The load report, and the seconds that the whole command took."""
        model = self.model_of(case)
        self.launcher.prepare(model.files, case["cache"])
        begin = time.perf_counter()
        report = safeshuffle.load(model.directory, case["ranks"], [*load_arguments(case), *further], self.command,
                                  launch=self.launcher.ranks, scratch=self.scratch)
        return report, time.perf_counter() - begin

    def measure_load(self, case, turn, position):
        report, wall_seconds = self.load(case)
        self.samples.append(samples.sample(report, wall_seconds, case, turn, position))

    def measure_timeline(self, case):
        """Of a run of its own, so that no trace is written while others are measured."""
        path = pathlib.Path(self.scratch) / "trace.json"
        report, _ = self.load(case, "--trace", path)
        self.timelines.append(timeline.read(path, case) | {"seconds": report["seconds"]})


def largest_case(experiment, where):
    """Of those that match, the one with the most ranks; None if none does."""
    matching = [case for case in experiment.cases() if all(case[axis] == value for axis, value in where.items())]
    return max(matching, key=lambda case: case["ranks"], default=None)
