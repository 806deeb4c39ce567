"""The checkpoints of an experiment: made in a directory, each once, or one that exists."""

import dataclasses
import pathlib

from lib import safeshuffle


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    name: str
    directory: pathlib.Path
    files: tuple  # of Path, in safeshuffle's order
    bytes: int  # of tensors, each counted once
    url: str = ""  # of the same directory, to load it from there

    @property
    def place(self):
        return self.url or self.directory

    @property
    def places(self):
        return [f"{self.url}/{file.name}" if self.url else str(file) for file in self.files]

    def description(self):
        return {"name": self.name, "files": len(self.files), "bytes": self.bytes}


def existing(directory, command):
    directory = pathlib.Path(directory).absolute()
    catalog = safeshuffle.inspect(directory, command)
    files = tuple(pathlib.Path(file["path"]).absolute() for file in catalog["files"])
    return Checkpoint(directory.name, directory, files, catalog["totals"]["tensor_bytes"])


class Checkpoints:
    def __init__(self, experiment, scratch, command, announce):
        self.experiment, self.scratch = experiment, pathlib.Path(scratch)
        self.command, self.announce = command, announce
        self.by_name = {model.name: model for model in experiment.models}
        self.made = {}  # by model and scale

    def of(self, case):
        model = self.by_name[case["model"]]
        scale = model.scale * (case["ranks"] if self.experiment.grows_with_ranks else 1)
        if (model, scale) not in self.made:
            self.announce(f"making {model.name}, scale {scale:g}")
            directory = self.scratch / f"model-{len(self.made)}"
            safeshuffle.make(directory, model.like, scale, self.command)
            self.made[model, scale] = dataclasses.replace(existing(directory, self.command), name=model.name)
        return self.made[model, scale]
