"""Loads safetensors checkpoints, each rank of a tensor-parallel group its part: see `load` and `open`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from . import _groups, _native, _tensors
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


def load(
    path: Any, group: Any = None, device: Any = "cpu", tp_plan: Any = "auto", dtype: Any = None, **options: Any
) -> Tensors:
    """All tensors of a checkpoint, this rank's parts of them: a dict with `report`. Collective.

    The arguments are those of `open`. Raises subclasses of Error.
    """
    with open(path, group, device, tp_plan, dtype, **options) as session:
        return session.load()


def open(  # noqa: A001
    path: Any, group: Any = None, device: Any = "cpu", tp_plan: Any = "replicate", dtype: Any = None,
    only: str | Iterable[str] | None = None, skip: str | Iterable[str] | None = None, memory_budget: int | None = None,
    framework: str | None = "pt", progress: bool | Callable[[int, int], object] | None = None, **options: Any,
) -> Session:  # fmt: skip
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
    options: those of the command (docs/command.md): window=64 << 20, threads=8, timeout=60, strict=True, ...
    """
    timeout = _seconds(options.get("timeout"))
    members = group if isinstance(group, Group) else Group(group, device, timeout)

    def prepare():
        _tensors.conversion(framework)
        return _progress_bar() if progress is True else progress or None, _texts({
            "tp-plan": _rules(tp_plan),
            "dtype": _tensors.policy(dtype), "only": only, "skip": skip, "memory-budget": memory_budget,
            **{name.replace("_", "-"): value for name, value in options.items()},
        })  # fmt: skip

    told, texts = _groups.Prepared(
        prepare,
        # Paths may differ.
        lambda _: f"tp_plan {_rules(tp_plan)}" if isinstance(tp_plan, dict) else "tp_plan",
    ).agreed(members, timeout)
    return Session(path, members, texts, framework, told, timeout)


def safe_open(filename: Any, framework: str = "pt", device: Any = "cpu", backend: str = "mmap") -> Session:
    """As safetensors.safe_open: a Session of one file, by this process alone. `backend` changes nothing."""
    if backend not in ("mmap", "pread"):
        raise ConfigError(f"backend must be 'mmap' or 'pread', not {backend!r}")
    return open(filename, framework=framework, device=device)


def _seconds(timeout):
    """What is no number is refused with the other options, on all ranks."""
    try:
        return float(timeout)
    except (TypeError, ValueError):
        return 300.0


def _rules(tp_plan):
    if isinstance(tp_plan, (str, os.PathLike)):
        return os.fspath(tp_plan)
    if not isinstance(tp_plan, dict):
        raise ConfigError(f"tp_plan must be 'auto', 'replicate', a path or a dict, not {tp_plan!r}")
    import json  # noqa: PLC0415 - `import safeshuffle` shall be quick

    return json.dumps(tp_plan)


def _texts(options):
    """(name, text) of those that are given; several, if a value is a list."""
    texts = []
    for name, value in options.items():
        values = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
        if not values:
            raise ConfigError(f"{name} is empty")
        texts += [(name, _text(each)) for each in values if each is not None]
    return texts


def _text(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


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
