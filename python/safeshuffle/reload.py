"""Loads again what a weight loader has taken the first time (safeshuffle.capture), into other parameters.

parts = safeshuffle.reload.Parts(session, captured)
...
model.load_weights(parts.stream(session, device, open_alone))
"""

import logging
import threading

import torch
from torch.utils._pytree import tree_leaves, tree_map

from . import _tensors, errors
from ._session import Binding

_log = logging.getLogger("safeshuffle")

# For loaders that keep tensors until a layer is complete: they decide how many.
ANY_NUMBER_OF_GROUPS = 1 << 20


class Parts:
    """What was captured, without the parameters: for engines that transform these after loading, and fill new ones when
    they load again. Keeps no memory of them."""

    def __init__(self, session, captured):
        self._stored = _stored(session)
        self._boxes = {name: {} for name in captured.names}  # of each tensor, by what they are: offset, sizes, strides
        for name, *box in captured.taken:
            self._boxes[name][_merged(*box)] = box
        self._whole = set(captured.computed)

    def fit(self, session):
        """Whether it has opened a checkpoint of the same tensors."""
        return self._stored == _stored(session)

    def stream(self, session, device, open_alone, group_bytes=256 << 20):
        """(name, tensor) of the stored tensors, of which only those elements are loaded that were copied on this rank,
        and all of those that were computed with. What a loader takes more than the first time, it gets as well: this
        rank reads such a tensor whole by itself. Only what passes PyTorch's dispatcher by is not noticed, such as
        `torch.tensor([part[0], part[1]])`. Collective.

        open_alone: opens the same checkpoint without a group
        """

        def read_alone(name):
            with open_alone() as alone:
                if not self.fit(alone):
                    raise errors.ConfigError("the checkpoint has changed while it was loaded")
                return alone.get_tensor(name)

        group, size, others = {}, 0, []
        for name in self._boxes:
            dtype = _tensors.torch_dtype(session.get_dtype(name))
            if dtype is None:
                others.append(name)
                continue
            if group and size + session.nbytes(name) > group_bytes:
                yield from self._load(session, group, read_alone)
                group, size = {}, 0
            group[name] = torch.empty(session.get_shape(name), dtype=dtype, device=device)
            size += session.nbytes(name)
        yield from self._load(session, group, read_alone)
        yield from session.stream(others, alive=ANY_NUMBER_OF_GROUPS)

    def _load(self, session, group, read_alone):
        boxes = {name: self._boxes_of(name, tensor) for name, tensor in group.items()}
        session.load_bindings([
            Binding(name, offset, strides, tensor.as_strided(sizes, strides, offset), name)
            for name, tensor in group.items()
            for offset, sizes, strides in boxes[name].values()
        ])  # fmt: skip
        while group:
            name = next(iter(group))
            partial = _Partial(name, group.pop(name), set(boxes.pop(name)), read_alone)
            yield name, partial.tensor if partial.is_whole() else _Part.of(partial)

    def _boxes_of(self, name, tensor):
        """That do not overlap."""
        boxes = sorted(self._boxes[name].values())
        ends = [_end(*box) for box in boxes]
        if name in self._whole or any(end > box[0] for end, box in zip(ends, boxes[1:])):
            whole = (0, tuple(tensor.shape), tensor.stride())
            return {_merged(*whole): whole} if tensor.numel() else {}
        return self._boxes[name]


def _stored(session):
    return {name: (session.get_dtype(name), session.get_shape(name)) for name in session.offset_keys()}


class _Partial:
    """A stored tensor, of which some boxes are loaded."""

    def __init__(self, name, tensor, boxes, read_alone):
        self.tensor = tensor
        self._name, self._boxes, self._read_alone = name, boxes, read_alone
        self._whole = _merged(0, tensor.shape, tensor.stride())
        self._lock = threading.Lock()

    @classmethod
    def of_whole(cls, tensor):
        return cls("", tensor, {_merged(0, tensor.shape, tensor.stride())}, None)

    def is_whole(self):
        return self._whole in self._boxes

    def require(self, view):
        """Loads all, unless the elements of the view are there."""
        box = _merged(view.storage_offset(), view.shape, view.stride())
        if view.dtype.itemsize == self.tensor.dtype.itemsize and box in self._boxes:
            return
        with self._lock:
            if self.is_whole() or view.numel() == 0:
                return
            _log.info("'%s' is read whole: the loader takes more of it than the first time", self._name)
            self.tensor.copy_(self._read_alone(self._name))
            self._boxes.add(self._whole)


class _Part(torch.Tensor):
    """A view of a partial tensor, of which values can be taken only when they are there."""

    __dlpack_c_exchange_api__ = None

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def of(partial, view=None):
        view = partial.tensor if view is None else view
        part = torch.Tensor._make_subclass(_Part, view)
        part.partial, part.view_of_partial = partial, view
        return part

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        parts = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, _Part)]
        plain = tree_map(lambda leaf: leaf.view_of_partial if isinstance(leaf, _Part) else leaf, (args, kwargs or {}))
        if torch.Tag.inplace_view in func.tags:
            part = parts[0]
            func(*plain[0], **plain[1])
            torch.Tensor.data.__set__(part, part.view_of_partial)
            return part
        results = func._schema.returns
        if results and all(each.alias_info and not each.alias_info.is_write for each in results):
            views, partial = func(*plain[0], **plain[1]), parts[0].partial
            if all(_storage(view) == _storage(partial.tensor) for view in tree_leaves(views)):
                return tree_map(lambda view: _Part.of(partial, view), views)
        if not _goes_to_meta(func, args, kwargs or {}):  # which only counts
            for part in parts:
                part.all_values() if func._schema.is_mutable and part is args[0] else part.values()
        return func(*plain[0], **plain[1])

    def values(self):
        """The same as a plain tensor."""
        self.partial.require(self.view_of_partial)
        return self.view_of_partial

    def all_values(self):
        """The same, of a tensor that is there as a whole."""
        self.partial.require(self.partial.tensor)
        return self.view_of_partial

    @property
    def data(self):
        return torch.Tensor.data.__get__(self)

    @data.setter
    def data(self, value):
        if isinstance(value, _Part):
            self.partial, self.view_of_partial = value.partial, value.view_of_partial
        else:
            self.partial, self.view_of_partial = _Partial.of_whole(value), value
        torch.Tensor.data.__set__(self, self.view_of_partial)


# What passes the dispatcher by.
for _name in ("numpy", "tolist", "apply_", "map_", "__array__", "__deepcopy__", "__dlpack__", "__format__"):
    setattr(_Part, _name, lambda self, *args, _name=_name, **kwargs: getattr(self.values(), _name)(*args, **kwargs))
for _name in ("data_ptr", "untyped_storage", "__reduce_ex__"):
    setattr(_Part, _name, lambda self, *args, _name=_name: getattr(self.all_values(), _name)(*args))


def _goes_to_meta(func, args, kwargs):
    if func is torch.ops.aten.copy_.default:
        return args[0].is_meta
    return func is torch.ops.aten._to_copy.default and kwargs.get("device") == torch.device("meta")


def _storage(tensor):
    return tensor.untyped_storage()._cdata


def _end(offset, sizes, strides):
    """Behind the last element of a view that has some."""
    return offset + 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides))


def _merged(offset, sizes, strides):
    """The same for boxes of the same elements, whatever the order of their dimensions; those that continue each other
    are one."""
    loops = []
    for stride, size in sorted(zip(strides, sizes), reverse=True):
        if size == 1:
            continue
        if loops and loops[-1][1] == size * stride:
            loops[-1] = (loops[-1][0] * size, stride)
        else:
            loops.append((size, stride))
    return offset, tuple(loops)
