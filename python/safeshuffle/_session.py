"""Opened checkpoints."""

from __future__ import annotations

import array
import ctypes
import itertools
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from . import _calls, _groups, _native, _tensors, errors

_library = _native.library


class Tensors(dict):
    """Loaded tensors by name. `report` is that of the load (docs/report.md)."""

    report: dict[str, Any]


class Binding:
    """Elements of a stored tensor, as a strided view of it, and the tensor that they fill.

    tensor: name of the stored tensor
    offset: of the first element, in elements, row-major
    strides: of the view, in elements; its sizes are those of `destination`
    destination: tensor of PyTorch or NumPy, of the stored dtype, or both are of F16, BF16 and F32
    name: of the destination, for errors
    """

    __slots__ = ("destination", "name", "offset", "strides", "tensor")

    def __init__(self, tensor: str, offset: int, strides: Sequence[int], destination: Any, name: str = "") -> None:
        self.tensor, self.offset, self.strides = tensor, offset, strides
        self.destination, self.name = destination, name


class Session:
    """An opened checkpoint, from which any number of loads follow; see `safeshuffle.open`, which makes one.

    All methods but those that tell of the checkpoint (`keys`, `metadata`, `get_slice` without indices) are
    collective: all ranks call them in the same order with the same arguments, except where a method says otherwise.
    They release the GIL, and Ctrl-C cancels them on all ranks. Threads take turns.
    """

    def __init__(self, paths, group, options, framework, progress, timeout):
        self._convert = _tensors.conversion(framework)
        self.reshapes = framework is not None
        self._group = group
        self._timeout = timeout
        self._lock = threading.RLock()
        self._cancelling = threading.Lock()  # a handle is not freed while it is used to cancel
        self._failure = None
        self._progress = _native.Progress(self._report_progress) if progress else _native.Progress()
        self._user_progress = progress
        pairs = (_native.Pair * len(options))(
            *((_native.text(name, "an option"), _native.text(value, name)) for name, value in options)
        )
        callbacks = _native.Callbacks(None, self._progress, _native.Ready())
        handle = _groups.Prepared(lambda: _native.new(
            _library.safeshuffle_session_new, group.handle.pointer(), pairs, len(options), ctypes.byref(callbacks)
        )).agreed(group, timeout)  # fmt: skip
        self._handle = _native.Handle(handle, _library.safeshuffle_session_free)
        try:
            self.reopen(paths)
        except BaseException:
            self.close()
            raise

    def reopen(self, path: Any) -> None:
        """Opens another checkpoint in place of this one, such as new weights for the same model, and keeps buffers
        and threads. If it fails, nothing has changed."""
        self._run(_library.safeshuffle_session_open, lambda: _native.texts(
            [os.fsdecode(each) for each in ([path] if isinstance(path, (str, bytes, os.PathLike)) else path)], "a path"
        ))  # fmt: skip
        stored = _native.listed(_library.safeshuffle_session_tensors, self._handle)
        self._stored = {
            each.name.decode(): (
                each.dtype.decode(),
                tuple(each.shape[: each.dims]),
                each.bytes,
                os.fsdecode(each.file),
            )
            for each in stored
        }
        pairs = _native.listed(_library.safeshuffle_session_metadata, self._handle)
        self._metadata = {pair.name.decode(): pair.value.decode() for pair in pairs}
        warned = _native.listed(_library.safeshuffle_session_warnings, self._handle)
        self.warnings = [warning.decode() for warning in warned]
        for warning in self.warnings:
            import logging  # noqa: PLC0415 - takes long, and is seldom needed

            logging.getLogger("safeshuffle").warning("%s", warning)

    def close(self) -> None:
        """Gives up threads, buffers and files. Tensors stay."""
        if not self._handle.is_inherited():  # else a thread of the parent may have had the lock
            with self._lock, self._cancelling:
                self._handle.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def rank(self) -> int:
        """This process in the group."""
        return self._group.rank

    @property
    def size(self) -> int:
        """Ranks of the group."""
        return self._group.size

    def all_gather(self, data: bytes) -> list[bytes]:
        """Every rank's bytes, by rank, over the group. Collective."""
        return self._run(lambda _: self._group.all_gather(data, self._timeout))

    def cancel(self, code: int = 1) -> None:
        """Ends the call in progress, or else the next one, on all ranks, with CancelledError and this code; 0 takes
        that back. Any thread may call it."""
        code = _native.number(code, "a code", -(2**31), 2**31 - 1)
        with self._cancelling:
            if self._handle:
                _library.safeshuffle_session_cancel(self._handle.pointer(), code)

    def end_at_exit(self):
        """Ends what other threads do with it, and leaves no time for more."""
        self.cancel()
        self._lock.acquire(timeout=5)

    # What is stored.

    def keys(self) -> list[str]:
        """Names of the stored tensors, sorted."""
        return sorted(self._catalog)

    def offset_keys(self) -> list[str]:
        """Names of the stored tensors, by file and offset."""
        return list(self._catalog)

    def __len__(self) -> int:
        return len(self._catalog)

    def __contains__(self, name: object) -> bool:
        return name in self._catalog

    def metadata(self) -> dict[str, str] | None:
        """The files' `__metadata__`; None if they have none. Where files differ, that of the first."""
        self._handle.pointer()
        return dict(self._metadata) or None

    def get_dtype(self, name: str) -> str:
        """Stored dtype: safetensors' name, such as "BF16"."""
        return self._described(name)[0]

    def get_shape(self, name: str) -> list[int]:
        """Stored shape, a list."""
        return list(self._described(name)[1])

    def nbytes(self, name: str) -> int:
        """Stored size."""
        return self._described(name)[2]

    @property
    def _catalog(self):
        self._handle.pointer()  # closed sessions tell nothing
        return self._stored

    def _described(self, name):
        try:
            return self._catalog[name]
        except KeyError:
            raise errors.ConfigError(f"the checkpoint has no tensor {name!r}") from None

    # Loads.

    def load(self) -> Tensors:
        """All selected tensors, this rank's parts of them by the rules: Tensors, a dict."""
        loaded = _tensors.LoadedSet(self._make_set(_library.safeshuffle_session_load))
        tensors = Tensors((each.name, self._convert(each)) for each in loaded.tensors())
        tensors.report = loaded.report()
        return tensors

    def get_tensors(self) -> dict[str, Any]:
        """As safetensors': a dict of all stored tensors, without second names that the metadata gives them."""
        return {name: tensor for name, tensor in self.load().items() if name in self._stored}

    def get_tensor(self, name: str) -> Any:
        """A stored tensor, whole."""
        name = _native.text(name, "a name")
        return self._one(lambda handle, tensors: _library.safeshuffle_session_get(handle, name, tensors))

    def get_slice(self, name: str) -> Slice:
        """A stored tensor to take parts of: `get_slice(name)[:, :128]`."""
        if self.size == 1:  # else all ranks shall learn of it, so when they take a part
            self._described(name)
        return Slice(self, name)

    def get_sharded(self, name: str, dim: int) -> Any:
        """Split along a dimension: ceil(extent / ranks) indices for each rank, fewer or none for the last ones."""
        return self.get_columns([name], dim)

    def get_columns(self, names: Sequence[str], dim: int) -> Any:
        """Several, each split along a dimension as by `get_sharded`, and joined along it, as fused projections have
        it."""
        return self._one(_library.safeshuffle_session_get_sharded, lambda: (
            *_native.texts([names] if isinstance(names, str) else list(names)),
            _native.number(dim, "dim", most=2**32 - 1),
        ))  # fmt: skip

    def push_tensor(self, name: str, rank: int) -> Any:
        """A stored tensor, whole, on one rank; None on the others."""
        return self._one(_library.safeshuffle_session_push, lambda: (
            _native.text(name, "a name"), _native.number(rank, "rank", most=2**32 - 1),
        ))  # fmt: skip

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """(name, tensor) of the selected tensors, in the order of the model, in bounded memory; see `stream`."""
        return self.stream()

    def stream(
        self, names: Iterable[str] | None = None, group_bytes: int = 256 << 20, alive: int = 2
    ) -> Iterator[tuple[str, Any]]:
        """(name, tensor) in the order of the model, this rank's parts by the rules.

        names: of these stored tensors only
        group_bytes: memory of the tensors that are loaded at once, at least that of the largest one
        alive: groups of that size that the caller may hold at once; MemoryError if it keeps more

        All ranks iterate to the end, or stop at the same tensor. Meanwhile, the session can load nothing else.
        """
        names = [names] if isinstance(names, str) else names

        def prepare():
            return (
                *_native.texts([escape(name) for name in (() if names is None else names)]),
                _native.number(group_bytes, "group_bytes", 1), _native.number(alive, "alive", 1, 2**32 - 1),
            )  # fmt: skip

        def begin(handle, only, count, *limits):
            if count or names is None:
                _library.safeshuffle_session_stream(handle, only, count, *limits)

        stream = self._make(
            _library.safeshuffle_stream_free, begin, prepare,
            lambda prepared: "list of names" if prepared[1] or names is None else "list of names, which is empty,",
        )  # fmt: skip
        try:
            while stream and (group := self._make_set(
                lambda _, result: _library.safeshuffle_stream_next(stream.pointer(), result)
            )):  # fmt: skip
                # One reference at a time, so that a group goes with its last tensor.
                tensors = _tensors.LoadedSet(group).in_order()[::-1]
                del group
                while tensors:
                    name, tensor = tensors[-1].name, self._convert(tensors.pop())
                    yield name, tensor
                    del tensor
        finally:
            if not stream.is_inherited():
                with self._lock:
                    stream.close()

    def load_into(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Fills tensors of the caller (PyTorch's or NumPy's) with what this rank has, by the rules, of those of
        their names; returns the report. Names may differ between ranks. Each stored byte is read once, and no
        memory is taken for a second copy. Two names of one tensor (tied weights) need only one to be stored.

        tensors: a mapping, such as `model.state_dict()`
        """

        def prepare():
            wanted = self._wanted(tensors)
            numbers = _Numbers()
            rows = [
                (name, each.address, each.dtype.encode(), len(each.shape), numbers(each.shape), numbers(each.strides))
                for name, each in wanted.items()
            ]
            resolved = [(*row[:4], numbers.address(row[4]), numbers.address(row[5])) for row in rows]
            return resolved, list(wanted.values()), numbers

        return self._load_into(_library.safeshuffle_session_load_parameters, _native.Parameter, prepare)

    def load_bindings(self, bindings: Iterable[Binding]) -> dict[str, Any]:
        """Fills any parts of tensors of the caller with any parts of stored ones; returns the report. Bindings may
        differ between ranks, and some ranks may have none."""

        def prepare():
            numbers = _Numbers()
            described = [_describe_binding(each, numbers) for each in bindings]
            resolved = [
                (*row[:3], numbers.address(row[3]), numbers.address(row[4]), *row[5:7], numbers.address(row[7]), row[8])
                for _, row in described
            ]
            return resolved, [each for each, _ in described], numbers

        return self._load_into(_library.safeshuffle_session_load_into, _native.Binding, prepare)

    def _load_into(self, function, kind, prepare):
        def prepare_array():
            rows, memory, numbers = prepare()
            _tensors.settle(memory)
            return (kind * len(rows))(*rows), memory, numbers

        def load(handle, rows, memory, numbers):
            lender = _lend((memory, numbers))
            function(handle, rows, len(rows), ctypes.byref(lender))
            return memory, _tensors.parse_report(_library.safeshuffle_session_report(handle))

        memory, report = self._run(load, prepare_array)
        for each in memory:
            each.note_change()
        return report

    def _wanted(self, tensors):
        """Memory by name, without names that are not stored of memory that also has one that is."""
        if not isinstance(tensors, Mapping):
            kind = type(tensors).__name__
            raise errors.ConfigError(
                f"a mapping of names to tensors, such as model.state_dict(), is needed, not {kind}"
            )
        memory = {_native.text(name, "a name"): _tensors.Memory(name, tensor) for name, tensor in tensors.items()}
        stored = {name.encode() for name in self._stored}
        known = {each.place() for name, each in memory.items() if name in stored}
        return {name: each for name, each in memory.items() if name in stored or each.place() not in known}

    def _slice(self, name, select):
        shape = []

        def prepare():
            begins, lengths, kept = select()
            shape[:] = kept
            numbers = ctypes.c_uint64 * len(begins)
            return _native.text(name), len(begins), numbers(*begins), numbers(*lengths)

        tensor = _tensors.LoadedSet(self._make_set(_library.safeshuffle_session_get_slice, prepare)).tensors()[0]
        tensor.shape = tuple(shape)
        return self._convert(tensor)

    def _one(self, function, prepare=None):
        tensors = _tensors.LoadedSet(self._make_set(function, prepare)).tensors()
        return self._convert(tensors[0]) if tensors else None

    def _make_set(self, function, prepare=None):
        return self._make(_library.safeshuffle_set_free, function, prepare)

    def _make(self, free, function, *prepare):
        """A handle for what the call stores."""
        return self._run(
            lambda handle, *arguments: _native.Handle(_native.new(function, handle, *arguments), free), *prepare
        )

    def _run(self, step, prepare=None, same=lambda prepared: ""):
        """What `step(handle, *prepare())` returns, if `prepare()`, on this thread, raises nothing on any rank. All
        messages are sent within one call, so that a cancel meanwhile ends it on all ranks."""
        prepared = _groups.Prepared(prepare, same) if prepare else None

        def agreed_step(handle):
            return step(handle, *(prepared.agreed(self._group, self._timeout) if prepared else ()))

        def call():
            self._handle.pointer()  # in a forked process, the lock may be taken for ever
            with self._lock:
                handle = self._handle.pointer()
                self._failure = None
                try:
                    return self._group.explain(lambda: agreed_step(handle))
                except errors.CancelledError:
                    if self._failure is None:
                        raise
                    failure, self._failure = self._failure, None
                    try:
                        raise failure from None
                    finally:
                        del failure

        return _calls.run(self, call)

    # Exceptions must not leave a callback.
    def _report_progress(self, _context, done, total):
        try:
            self._user_progress(done, total)
        except BaseException as failure:  # noqa: BLE001
            self._failure = failure
            return 1
        return 0


class Slice:
    """A stored tensor of which parts can be taken, as safetensors has it."""

    def __init__(self, session, name):
        self._session = session
        self._name = name

    def get_shape(self) -> list[int]:
        return self._session.get_shape(self._name)

    def get_dtype(self) -> str:
        return self._session.get_dtype(self._name)

    def __getitem__(self, indices: Any) -> Any:
        """Integers, slices of step 1, an empty list, and one Ellipsis; only what they select is read. Collective."""
        return self._session._slice(self._name, lambda: self._selected(indices))

    def _selected(self, indices):
        """Of each dimension, begin and length; and the extents of those that are kept."""
        shape = self.get_shape()
        parts = _expand(indices, len(shape))
        begins, lengths, kept = [], [], []
        for dim, (part, extent) in enumerate(zip(parts, shape)):
            begin, end = _interval(part, extent, self._name, dim)
            begins.append(begin)
            lengths.append(end - begin)
            if isinstance(part, (slice, list)):
                kept.append(end - begin)
        if len(kept) != len(shape) and not self._session.reshapes:
            raise errors.ConfigError(f"'{self._name}': framework=None has no dimensions to drop: index by slices")
        return begins, lengths, kept


def _expand(indices, dims):
    """One for each dimension."""
    parts = list(indices) if isinstance(indices, tuple) else [indices]
    dots = [i for i, part in enumerate(parts) if part is Ellipsis]
    at = dots[0] if dots else len(parts)
    missing = dims - (len(parts) - len(dots))
    if len(dots) > 1 or missing < 0:
        raise errors.OutOfRange(f"{indices!r} are too many indices for {dims} dimensions")
    return parts[:at] + [slice(None)] * missing + parts[at + len(dots) :]


def _interval(part, extent, name, dim):
    if isinstance(part, slice):
        begin, end, step = part.indices(extent)
        if step != 1:
            raise errors.ConfigError(f"'{name}': slices of step {step} are not possible: take a step of the result")
        return begin, max(begin, end)
    if isinstance(part, list) and not part:
        return 0, 0
    if isinstance(part, bool) or not hasattr(part, "__index__"):
        raise TypeError(f"'{name}' is sliced by integers, slices and an Ellipsis, not by {part!r}")
    index = part.__index__()
    if not -extent <= index < extent:
        raise errors.OutOfRange(f"index {index} is out of range for dimension {dim} of '{name}', of {extent}")
    return index % extent, index % extent + 1


def escape(name: str) -> str:
    """A pattern that only this name matches."""
    return "".join("\\" + letter if letter in "*?[]\\" else letter for letter in name)


def _describe_binding(binding, numbers):
    """Its memory, and what the C interface wants to know."""
    memory = _tensors.Memory(binding.name, binding.destination)
    if len(binding.strides) != len(memory.shape):
        raise errors.ConfigError(
            f"'{binding.name}' has {len(memory.shape)} dimensions, and its binding {len(binding.strides)} strides"
        )
    strides = [_native.number(stride, "a stride") for stride in binding.strides]
    return memory, (
        _native.text(binding.tensor, "a name"), _native.number(binding.offset, "an offset"), len(memory.shape),
        numbers(memory.shape), numbers(strides), memory.address, memory.dtype.encode(), numbers(memory.strides),
        _native.text(binding.name, "a name"),
    )  # fmt: skip


class _Numbers:
    """Many short lists of numbers in one memory. Addresses are valid once all have been added."""

    def __init__(self):
        self._all = array.array("Q")

    def __call__(self, numbers):
        at = len(self._all)
        self._all.extend(numbers)
        return at

    def address(self, at):
        return self._all.buffer_info()[0] + at * self._all.itemsize


# What calls have borrowed, by a number that serves as the address of the context.
_lent = {}
_next_lender = itertools.count(1)


@_native.Release
def _give_back(context):
    _lent.pop(context, None)


def _lend(owner):
    number = next(_next_lender)
    _lent[number] = owner
    return _native.Lender(number, _give_back)
