"""The checkpoints of an experiment: made in a directory, each once, or one that exists."""

import dataclasses
import pathlib
import shutil

from lib import safeshuffle

ROOM = 1.1  # of what all models take


class NoRoom(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    name: str
    directory: pathlib.Path
    files: tuple  # of Path
    bytes: int  # of tensors, each counted once

    def description(self):
        return {"name": self.name, "files": len(self.files), "bytes": self.bytes}


def existing(directory, command):
    directory = pathlib.Path(directory).absolute()
    return Checkpoint(directory.name, directory, *safeshuffle.model_files(safeshuffle.inspect(directory, command)))


class Checkpoints:
    def __init__(self, experiment, scratch, command, announce):
        self.experiment, self.scratch = experiment, pathlib.Path(scratch)
        self.command, self.announce = command, announce
        self.by_name = {model.name: model for model in experiment.models}
        self.made = {}  # by model and scale

    def wanted(self, case):
        model = self.by_name[case["model"]]
        return model, model.scale * (case["ranks"] if self.experiment.grows_with_ranks else 1)

    def size(self, model, scale):
        """Of its files, from one without contents, which takes no room."""
        directory = self.scratch / "sparse"
        safeshuffle.make(directory, model.like, scale, self.command, sparse=True)
        size = safeshuffle.inspect(directory, self.command)["totals"]["file_bytes"]
        shutil.rmtree(directory)
        return size

    def make_all(self):
        wanted = list(dict.fromkeys(map(self.wanted, self.experiment.cases())))
        needed, free = ROOM * sum(self.size(*one) for one in wanted), shutil.disk_usage(self.scratch).free
        if needed > free:
            raise NoRoom(f"the models take {needed / 1e9:.1f} GB, and {self.scratch.parent} has {free / 1e9:.1f} GB "
                         "free: give a directory that has more with --dir, or a smaller --scale")
        for model, scale in wanted:
            self.announce(f"making {model.name}, scale {scale:g}")
            directory = self.scratch / f"model-{len(self.made)}"
            safeshuffle.make(directory, model.like, scale, self.command)
            self.made[model, scale] = dataclasses.replace(existing(directory, self.command), name=model.name)

    def of(self, case):
        return self.made[self.wanted(case)]
