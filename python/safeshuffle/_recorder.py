"""What a weight loader does with tensors without data, as PyTorch tells of it."""

import contextlib
import functools
import gc
import threading

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from . import _tensors
from ._session import Binding
from ._views import as_stored, extent, overlapping, repeats

_COPIES = {torch.ops.aten.clone.default, torch.ops.aten._to_copy.default}
_TAKE_VALUES = {"numpy", "tolist", "apply_", "map_", "__array__", "__dlpack__", "__reduce_ex__"}
_OVERWRITES = {torch.ops.aten.copy_.default, torch.ops.aten.fill_.Scalar, torch.ops.aten.zero_.default}


class Watch:
    """Shows operations to a recorder: those of this thread, and of threads that it, or one of these, starts meanwhile.
    They are watched to their end, also in later calls."""

    _of_thread = threading.local()
    _lock = threading.Lock()
    _patched = 0
    _start = None  # that of Thread

    def __init__(self):
        self.recorder = None

    @contextlib.contextmanager
    def showing(self, recorder):
        self.recorder = recorder
        self._patch(1)
        try:
            with self._watching():
                yield
        finally:
            self._patch(-1)
            self.recorder = None

    @contextlib.contextmanager
    def _watching(self):
        before = getattr(self._of_thread, "watch", None)
        self._of_thread.watch = self
        try:
            with _Bypass(self), _Operations(self):
                yield
        finally:
            self._of_thread.watch = before

    def _run(self, run):
        with self._watching():
            run()

    @classmethod
    def _patch(cls, change):
        """While anything is watched, new threads look for who does it."""
        with cls._lock:
            if cls._patched == 0:
                cls._start = threading.Thread.start
            cls._patched += change
            threading.Thread.start = cls.start if cls._patched else cls._start

    @staticmethod
    def start(thread):
        """As Thread.start."""
        watch = getattr(Watch._of_thread, "watch", None)
        if watch is not None:
            thread.run = functools.partial(watch._run, thread.run)
        Watch._start(thread)


class _Operations(TorchDispatchMode):
    """Of a thread."""

    def __init__(self, watch):
        super().__init__()
        self._watch = watch

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        recorder = self._watch.recorder
        return recorder.run(func, args, kwargs or {}) if recorder else func(*args, **(kwargs or {}))


class _Bypass(TorchFunctionMode):
    """Notices values that are taken past the dispatcher."""

    def __init__(self, watch):
        super().__init__()
        self._watch = watch

    def __torch_function__(self, func, types, args=(), kwargs=None):
        recorder = self._watch.recorder
        if recorder and getattr(func, "__name__", "") in _TAKE_VALUES:
            for each in args:
                if isinstance(each, torch.Tensor):
                    recorder.note_values_of(each)
        return func(*args, **(kwargs or {}))


class Recorder:
    """Notes what happens to tensors without data."""

    def __init__(self):
        self.touched = set()  # names of tensors that the loader has done anything with
        self.taken = []  # names, and boxes: offset, sizes, strides
        self.computed = set()  # names of tensors of which the values matter
        self.last = None  # name of the last tensor that the loader has taken
        self._sources = {}  # by storage: what is in it
        self._derived = {}  # by storage: names of the tensors that it was computed from, and what keeps it
        self._copies = []  # (destination, view of a stored tensor)
        self._filled = {}  # by storage of the destinations: extents, and names of what is copied there
        self._given = {}  # by storage of tensors with values: name
        self._read = set()  # storages that something was computed from
        self._created = set()  # storages that nobody had before
        self._before = {}  # by storage that was there before: that, and what was in it
        self._made = []  # weak references to storages, and names
        self._lock = threading.RLock()  # not held while anything is computed: that may wait for other threads

    def stand_ins(self, session, names):
        for name in names:
            self.last = name
            if _tensors.torch_dtype(session.get_dtype(name)) is None:
                self.computed.add(name)
                continue
            yield self.stand_in(session, name)

    def given(self, name, tensor):
        with self._lock:
            self._given[_storage(tensor)] = name
            self._created.add(_storage(tensor))
        return name, tensor

    def undo(self):
        for storage, before in self._before.values():
            storage.copy_(before)

    def stand_in(self, session, name):
        dtype = _tensors.torch_dtype(session.get_dtype(name))
        tensor = torch.empty(session.get_shape(name), dtype=dtype, device="meta")
        with self._lock:
            self._sources[_storage(tensor)] = _Source(name, tensor)
            self._note_made(tensor, {name})
        return name, tensor

    def release(self):
        """Forgets the tensors without data; returns weak references to their storages, and names."""
        self._sources.clear()
        self._derived.clear()
        self._copies.clear()
        return self._made

    def run(self, func, args, kwargs):
        with self._lock:
            names = set().union(*(self.names_of(leaf) for leaf in tree_leaves((args, kwargs))))
            self.touched |= names
            if names:
                return self._with_stand_ins(func, args, kwargs, names)
        return self._with_data(func, args, kwargs)

    def _with_stand_ins(self, func, args, kwargs, names):
        if func is torch.ops.aten.copy_.default and self._note_copy(args[0], args[1]):
            return args[0]
        if torch.Tag.inplace_view in func.tags:
            return func(*args, **kwargs)
        if func._schema.is_mutable:  # of a tensor of the model, by values that are not there
            self.computed |= names
            return args[0]
        return self._without_data(func, args, kwargs, names)

    def copies_into(self, model):
        """Bindings of the copies whose destinations are of the model; others are noted as computed."""
        alive = {tensor.untyped_storage().data_ptr() for tensor in held_by(model) if not tensor.is_meta}
        labels = {tensor.untyped_storage().data_ptr(): name for name, tensor in model.named_parameters()}
        last = {}  # of several copies to one place, the last counts
        for destination, view in self._copies:
            source = self._sources[_storage(view)]
            if source.name in self.computed:
                continue
            place = destination.untyped_storage().data_ptr()
            bound = as_stored(destination, view, source.dtype) if place in alive else None
            box = source.locate(view.expand(destination.shape)) if bound is not None else None
            if box is None or None in box[1] or repeats(bound.shape, box[1]):
                self.computed.add(source.name)
            elif bound.numel() != 0:
                key = (bound.data_ptr(), tuple(bound.shape), bound.stride())
                last[key] = Binding(source.name, *box, bound, labels.get(place, ""))
        self.computed |= overlapping(last.values())
        return list(last.values())

    def _note_copy(self, destination, source):
        if destination.is_meta or _storage(source) not in self._sources or _tensors.is_lazy(source):
            return False
        source.expand(destination.shape)  # raises what the copy would
        self._copies.append((destination, source))
        stored = self._sources[_storage(source)]
        if stored.is_whole:
            self.taken.append((stored.name, source.storage_offset(), tuple(source.shape), source.stride()))
        filled = self._filled.setdefault(_storage(destination), [])
        filled += [(*extent(destination), name) for name in self.names_of(source)]
        return True

    def _with_data(self, func, args, kwargs):
        """An operation of the model's own. If it takes values that are still to be copied, as when a loader goes on to
        transform what it has filled, or fills another by it, they matter; what it would change is changed when they
        are there."""
        touched = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        storages = {_storage(leaf) for leaf in touched}
        with self._lock:
            self.touched |= {self._given[storage] for storage in storages & self._given.keys()}
            names = set().union(*(self.filled_within(leaf) for leaf in touched))
            if names and func._schema.is_mutable:
                self.computed |= names
                return args[0]
            if func._schema.is_mutable:
                self._keep_before(func, args, kwargs)
        result = func(*args, **kwargs)
        leaves = tree_leaves(result)
        new = {_storage(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)} - storages
        with self._lock:
            self._created |= new
            if new or not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
                self.computed |= names
                self._read |= storages
        return result

    def _keep_before(self, func, args, kwargs):
        """What the operation will change that was there before, unless it leaves the same if it is done twice."""
        arguments = {each.name: value for each, value in zip(func._schema.arguments, args)} | kwargs
        written = [each.name for each in func._schema.arguments if each.alias_info and each.alias_info.is_write]
        for tensor in tree_leaves([arguments.get(name) for name in written]):
            if not isinstance(tensor, torch.Tensor) or tensor.is_meta or not _has_storage(tensor):
                continue
            storage = _storage(tensor)
            is_idempotent = func in _OVERWRITES and storage not in self._read
            if storage not in self._created and storage not in self._before and not is_idempotent:
                self._before[storage] = tensor.untyped_storage(), tensor.untyped_storage().clone()

    def note_values_of(self, tensor):
        with self._lock:
            self.computed |= self.names_of(tensor) | self.filled_within(tensor)
            self.touched |= self.names_of(tensor) | {self._given.get(_storage(tensor))} - {None}

    def filled_within(self, tensor):
        """Names of what is copied to where the tensor lies."""
        begin, end = extent(tensor)
        filled = self._filled.get(_storage(tensor), ())
        return {name for first, last, name in filled if first < end and begin < last}

    def names_of(self, value):
        if not isinstance(value, torch.Tensor) or not value.is_meta:
            return frozenset()
        storage = _storage(value)
        if storage in self._sources:
            return {self._sources[storage].name}
        return self._derived.get(storage, (frozenset(),))[0]

    def _without_data(self, func, args, kwargs, names):
        """What the operation returns: a view, or something computed."""
        if "device" in kwargs:
            kwargs = {**kwargs, "device": "meta"}
        args, kwargs = tree_map(_to_meta, (args, kwargs))
        try:
            result = func(*args, **kwargs)
        except Exception:
            self.computed |= names
            raise
        if func in _COPIES and self._note_duplicate(args[0], result):
            return result
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and not self.names_of(leaf):
                self.computed |= names
                self._derived[_storage(leaf)] = (names, leaf)
                self._note_made(leaf, names)
        return result

    def _note_made(self, tensor, names):
        self._made.append((StorageWeakRef(tensor.untyped_storage()), names))

    def _note_duplicate(self, tensor, result):
        """A copy of a view is as good as the view."""
        source = None if _tensors.is_lazy(tensor) else self._sources.get(_storage(tensor))
        box = source.locate(tensor) if source and tensor.dtype == result.dtype == source.dtype else None
        if box is None or None in box[1] or self.names_of(result):
            return False
        self._sources[_storage(result)] = _Source(source.name, result, box)
        self._note_made(result, {source.name})
        if source.is_whole:
            self.taken.append((source.name, tensor.storage_offset(), tuple(tensor.shape), tensor.stride()))
        return True


class _Source:
    """A storage with elements of a stored tensor: all of them, or, dense, those of a box."""

    def __init__(self, name, tensor, box=None):
        self.name, self.dtype = name, tensor.dtype
        self._tensor = tensor  # keeps the storage
        self._box = box
        self.is_whole = box is None

    def locate(self, view):
        """Offset and strides of the view in the stored tensor; None if it is no box of that."""
        offset, strides = view.storage_offset(), view.stride()
        if self._box is None:
            return offset, strides
        if view.dtype != self.dtype:
            return None
        # Of each dimension of the storage, the largest stride first: how far the view reaches, none beyond its end.
        dims = sorted(zip(self._tensor.stride(), self._tensor.shape, self._box[1]), reverse=True)
        located, reached = self._box[0], []
        for stride, _, stored in dims:
            index, offset = divmod(offset, stride) if stride else (0, offset)
            reached.append(index)
            located += index * stored
        return located, [self._along(dims, reached, size, stride) for size, stride in zip(view.shape, strides)]

    @staticmethod
    def _along(dims, reached, size, stride):
        """The stride in the stored tensor of a dimension of a view."""
        if size <= 1:
            return 0
        for i, (step, count, stored) in enumerate(dims):
            times = stride // step if step else 0
            if times and stride % step == 0 and reached[i] + times * (size - 1) < count:
                reached[i] += times * (size - 1)
                return times * stored
        return None


def held_by(model):
    return [*model.parameters(), *model.buffers()]


def still_there(made):
    """Names of those of which the storage lives."""
    if not all(storage.expired() for storage, _ in made):
        gc.collect()
    return set().union(*(names for storage, names in made if not storage.expired()))


def _has_storage(tensor):
    """Not so are tensors that are made of others."""
    try:
        return tensor.untyped_storage().data_ptr() != 0
    except RuntimeError:
        return False


def _storage(tensor):
    return tensor.untyped_storage()._cdata


def _to_meta(value):
    if not isinstance(value, torch.Tensor) or value.is_meta:
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
