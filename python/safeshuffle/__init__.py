"""Loads safetensors checkpoints, each rank of a tensor-parallel group its part: see `load` and `open`."""

import os

from . import _native, _tensors
from ._groups import Group
from ._session import Binding, Session, Slice, Tensors
from ._tensors import Tensor
from .errors import (
    CancelledError,
    ConfigError,
    Error,
    FallbackError,
    FormatError,
    InternalError,
    IoError,
    MemoryError,  # noqa: A004
    PlanError,
    TimeoutError,  # noqa: A004
    TransportError,
    VerificationError,
)

__all__ = [
    "Binding", "CancelledError", "ConfigError", "Error", "FallbackError", "FormatError", "Group", "InternalError",
    "IoError", "MemoryError", "PlanError", "Session", "Slice", "Tensor", "Tensors", "TimeoutError", "TransportError",
    "VerificationError", "load", "open", "safe_open",
]  # fmt: skip
__version__ = _native.library.safeshuffle_version().decode()


def load(path, group=None, device="cpu", tp_plan="auto", dtype=None, **options):
    """All tensors of a checkpoint, this rank's parts of them: a dict with `report`. Collective.

    The arguments are those of `open`. Raises subclasses of Error.
    """
    with open(path, group, device, tp_plan, dtype, **options) as session:
        return session.load()


def open(  # noqa: A001
    path, group=None, device="cpu", tp_plan="replicate", dtype=None,
    only=None, skip=None, memory_budget=None, framework="pt", progress=None, **options,
):  # fmt: skip
    """Opens a checkpoint: a Session, from which tensors are loaded on demand. Collective.

    path: directory, file, index, or a list of files; used on rank 0, others open the files that it finds
    group: None (this process alone), or what safeshuffle.Group takes, or a Group
    device: of this rank; see safeshuffle.Group
    tp_plan: how tensors are split among the ranks: "auto" (by config.json), "replicate" (every rank has all), the
        path of a rule file, or a dict: Hugging Face's `tp_plan`, or the content of a rule file
    dtype: None (as stored), or "f16", "bf16", "f32", or a dtype of PyTorch or NumPy, for floating-point tensors
    only, skip: a pattern of names, or a list of them, such as "model.layers.0.*"
    memory_budget: most bytes of device memory per rank
    framework: of the tensors: "pt", "np", or None for safeshuffle.Tensor, which other frameworks take by DLPack
    progress: called with the bytes done and all bytes, or True for a bar by tqdm
    options: those of the command (docs/command.md): window=64 << 20, threads=8, strict=True, ...
    """
    if isinstance(progress, bool):
        progress = _progress_bar() if progress else None
    texts = _texts({
        "tp-plan": _rules(tp_plan),
        "dtype": _tensors.policy(dtype), "only": only, "skip": skip, "memory-budget": memory_budget,
        **{name.replace("_", "-"): value for name, value in options.items()},
    })  # fmt: skip
    members = group if isinstance(group, Group) else Group(group, device)
    return Session(path, members, texts, framework, progress)


def safe_open(filename, framework="pt", device="cpu", backend="mmap"):
    """As safetensors.safe_open: a Session of one file, by this process alone. `backend` changes nothing."""
    if backend not in ("mmap", "pread"):
        raise ConfigError(f"backend must be 'mmap' or 'pread', not {backend!r}")
    return open(filename, framework=framework, device=device)


def _rules(tp_plan):
    if not isinstance(tp_plan, dict):
        return os.fspath(tp_plan)
    import json  # noqa: PLC0415 - `import safeshuffle` shall be quick

    return json.dumps(tp_plan)


def _texts(options):
    """(name, text) of those that are given; several, if a value is a list."""
    texts = []
    for name, value in options.items():
        for each in value if isinstance(value, (list, tuple)) else [value]:
            if each is not None:
                texts.append((name, str(each).lower() if isinstance(each, bool) else str(each)))
    return texts


def _progress_bar():
    import tqdm  # noqa: PLC0415 - optional

    bar = None

    def update(done, total):
        nonlocal bar
        if bar is None or bar.total != total:
            bar = tqdm.tqdm(total=total, unit="B", unit_scale=True)
        bar.update(done - bar.n)
        if done == total:
            bar.close()
            bar = None

    return update
