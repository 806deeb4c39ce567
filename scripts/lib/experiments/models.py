"""The checkpoints of an experiment."""

import dataclasses
import heapq
import json
import pathlib
import shutil
import tempfile

from lib import safeshuffle

ROOM = 1.1  # of what all models take


class NoRoom(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class Made:
    name: str
    directory: pathlib.Path
    files: tuple  # of Path
    bytes: int  # of tensors

    def description(self):
        return {"name": self.name, "files": len(self.files), "bytes": self.bytes,
                "file_bytes": sum(file.stat().st_size for file in self.files)}


def existing(name, directory, command):
    files, size = safeshuffle.model_files(safeshuffle.inspect(directory, command))
    return Made(name, pathlib.Path(directory).absolute(), files, size)


def dealt(tensors, count, skew):
    """Names by file: the largest tensor first, each to the file that lacks most of its share. The first file's share is
    `skew` times as large as each of the others'."""
    shares = [skew] + [1] * (count - 1)
    unit = sum(size for _, size in tensors) / sum(shares)
    lacking = [(-unit * share, file) for file, share in enumerate(shares)]
    heapq.heapify(lacking)
    names = [[] for _ in shares]
    for name, size in sorted(tensors, key=lambda tensor: (-tensor[1], tensor[0])):
        lacks, file = lacking[0]
        names[file].append(name)
        heapq.heapreplace(lacking, (lacks + size, file))
    return names


def layout_with_files(sparse, model, command):
    """The tensors of a sparse model in other files."""
    tensors = {tensor["name"]: tensor for file in safeshuffle.inspect(sparse, command)["files"]
               for tensor in file["tensors"]}
    parts = dealt([(name, tensor["bytes"]) for name, tensor in tensors.items()], model.files, model.skew)
    if not all(parts):
        raise NoRoom(f"model '{model.name}': {len(tensors)} tensors cannot be put into {model.files} files")
    return {
        "source": f"{model.like}, in other files",
        "config": json.loads((sparse / "config.json").read_text()),
        "tensors": {name: ["BF16", *tensors[name]["shape"]] for part in parts for name in part},
        "files": {"name": "model-{index:05}-of-{count:05}.safetensors", "starts": [part[0] for part in parts]},
    }


class Scratch:
    """A directory with the models, each made once, while the object is used as a context."""

    def __init__(self, parent, command):
        self.command = command
        self.temporary = tempfile.TemporaryDirectory(prefix="safeshuffle-bench-", dir=parent)
        self.directory = pathlib.Path(self.temporary.name)
        self.made = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.temporary.cleanup()

    def sparse(self, model, scale):
        """The same without contents, which takes no room."""
        directory = self.directory / "sparse"
        shutil.rmtree(directory, ignore_errors=True)
        safeshuffle.make(directory, model.like, scale, self.command, sparse=True)
        return directory

    def size(self, model, scale):
        return safeshuffle.inspect(self.sparse(model, scale), self.command)["totals"]["file_bytes"]

    def check_room(self, wanted):
        """`wanted`: pairs of a model and its scale."""
        needed = ROOM * sum(self.size(model, scale) for model, scale in wanted)
        free = shutil.disk_usage(self.directory).free
        if needed > free:
            raise NoRoom(f"the models take {needed / 1e9:.1f} GB, and {self.directory.parent} has {free / 1e9:.1f} GB "
                         "free: give a directory that has more with --dir, or a smaller --scale")

    def make(self, model, scale):
        key = (model, scale)
        if key not in self.made:
            self.made[key] = self.make_new(model, scale, self.directory / f"model-{len(self.made)}")
        return self.made[key]

    def make_new(self, model, scale, directory):
        like = model.like
        if model.files:
            like = self.directory / "layout.json"
            like.write_text(json.dumps(layout_with_files(self.sparse(model, scale), model, self.command)))
        safeshuffle.make(directory, like, 1 if model.files else scale, self.command)
        return existing(model.name, directory, self.command)


class Checkpoints:
    """Those of an experiment, by case: made in `scratch`, or else one that exists."""

    def __init__(self, experiment, scratch, existing_directory, command, announce):
        self.experiment, self.scratch, self.announce = experiment, scratch, announce
        self.by_name = {model.name: model for model in experiment.models}
        self.existing = (existing(experiment.models[0].name, existing_directory, command) if existing_directory
                         else None)

    def wanted(self, case):
        model = self.by_name[case["model"]]
        return model, model.scale * (case["ranks"] if self.experiment.grows_with_ranks else 1)

    def all_wanted(self):
        return list(dict.fromkeys(self.wanted(case) for case in self.experiment.cases()))

    def make_all(self):
        if self.existing:
            return
        self.scratch.check_room(self.all_wanted())
        for model, scale in self.all_wanted():
            self.announce(f"making {model.name}, scale {scale:g}")
            self.scratch.make(model, scale)

    def of(self, case):
        return self.existing or self.scratch.make(*self.wanted(case))

    def descriptions(self):
        return [self.existing.description()] if self.existing else [
            self.scratch.make(model, scale).description() | {"like": model.like, "scale": scale}
            for model, scale in self.all_wanted()]
