"""Loads again what a weight loader has taken the first time (safeshuffle.capture), into other parameters.

parts = safeshuffle.reload.Parts(session, captured)
...
model.load_weights(parts.stream(session, device, open_alone))
"""

import functools
import logging

import torch
from torch.utils._pytree import tree_leaves, tree_map

from . import _tensors
from ._session import Binding

_log = logging.getLogger("safeshuffle")

# For loaders that keep tensors until a layer is complete: they decide how many.
ANY_NUMBER_OF_GROUPS = 1 << 20


class Parts:
    """What was captured, without the parameters: for engines that transform these after loading, and fill new ones when
    they load again. Keeps no memory of them."""

    def __init__(self, session, captured):
        self._stored = _stored(session)
        self._boxes = {name: {} for name in self._stored}  # of each tensor, by what they are: offset, sizes, strides
        for binding in captured.bindings:
            box = (binding.offset, tuple(binding.destination.shape), tuple(binding.strides))
            self._boxes[binding.tensor][_merged(*box)] = box
        self._whole = set(captured.computed)

    def fit(self, session):
        """Whether it has opened a checkpoint of the same tensors."""
        return self._stored == _stored(session)

    def stream(self, session, device, open_alone, group_bytes=256 << 20):
        """(name, tensor) of all stored tensors, of which only those elements are loaded that were copied on this rank,
        and all of those that were computed with. What a loader takes more than the first time, it gets as well: this
        rank reads such a tensor whole by itself. Collective.

        open_alone: opens the same checkpoint without a group, if need be
        """
        group, size, others = {}, 0, []
        alone = functools.cache(open_alone)
        try:
            for name in self._stored:
                dtype = _tensors.torch_dtype(session.get_dtype(name))
                if dtype is None:
                    others.append(name)
                    continue
                if group and size + session.nbytes(name) > group_bytes:
                    yield from self._load(session, group, alone)
                    group, size = {}, 0
                group[name] = torch.empty(session.get_shape(name), dtype=dtype, device=device)
                size += session.nbytes(name)
            yield from self._load(session, group, alone)
            yield from session.stream(others, alive=ANY_NUMBER_OF_GROUPS)
        finally:
            if alone.cache_info().currsize:
                alone().close()

    def _load(self, session, group, alone):
        boxes = {name: self._boxes_of(name, tensor) for name, tensor in group.items()}
        session.load_bindings([
            Binding(name, offset, strides, tensor.as_strided(sizes, strides, offset), name)
            for name, tensor in group.items()
            for offset, sizes, strides in boxes[name].values()
        ])  # fmt: skip
        while group:
            name = next(iter(group))
            yield name, _Part.of(_Partial(name, group.pop(name), set(boxes.pop(name)), alone))

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

    def __init__(self, name, tensor, boxes, alone):
        self.tensor = tensor
        self._name, self._boxes, self._alone = name, boxes, alone
        self._whole = (_merged(0, tensor.shape, tensor.stride()),)

    def require(self, view):
        """Loads all, unless the elements of the view are there."""
        box = _merged(view.storage_offset(), view.shape, view.stride())
        is_there = view.dtype.itemsize == self.tensor.dtype.itemsize and box in self._boxes
        if is_there or self._boxes.issuperset(self._whole) or view.numel() == 0:
            return
        _log.info("'%s' is read whole: the loader takes more of it than the first time", self._name)
        self.tensor.copy_(self._alone().get_tensor(self._name))
        self._boxes.update(self._whole)


class _Part(torch.Tensor):
    """A view of a partial tensor, of which values can be taken only when they are there."""

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
        results = func._schema.returns
        if results and all(each.alias_info and not each.alias_info.is_write for each in results):
            views = func(*plain[0], **plain[1])
            return tree_map(lambda view: _Part.of(parts[0].partial, view), views)
        if not (func is torch.ops.aten.copy_.default and args[0].is_meta):  # which only counts
            for part in parts:
                part.values()
        return func(*plain[0], **plain[1])

    def values(self):
        """The same as a plain tensor."""
        self.partial.require(self.view_of_partial)
        return self.view_of_partial

    def _all_values(self):
        self.partial.require(self.partial.tensor)
        return self.view_of_partial


# What passes the dispatcher by.
for _name in ("numpy", "tolist", "__array__", "__deepcopy__", "__dlpack__"):
    setattr(_Part, _name, lambda self, *args, _name=_name, **kwargs: getattr(self.values(), _name)(*args, **kwargs))
for _name in ("data_ptr", "untyped_storage", "__reduce_ex__"):
    setattr(_Part, _name, lambda self, *args, _name=_name: getattr(self._all_values(), _name)(*args))


def _end(offset, sizes, strides):
    """Behind the last element of a view that has some."""
    return offset + 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides))


def _merged(offset, sizes, strides):
    """The same for boxes of the same elements in the same order: dimensions that continue each other are one."""
    loops = []
    for size, stride in zip(sizes, strides):
        if size == 1:
            continue
        if loops and loops[-1][1] == size * stride:
            loops[-1] = (loops[-1][0] * size, stride)
        else:
            loops.append((size, stride))
    return offset, tuple(loops)
