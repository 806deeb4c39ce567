"""Views of tensors: where their elements are, and which have some in common."""

import torch

_CONVERTIBLE = {torch.float16, torch.bfloat16, torch.float32}


def overlapping(bindings):
    """Names of the tensors of those that fill elements that another one fills."""
    names, reaching = set(), []
    for binding in sorted(bindings, key=lambda each: each.destination.data_ptr()):
        begin = binding.destination.data_ptr()
        reaching = [each for each in reaching if each.destination.data_ptr() + _bytes_of(each.destination) > begin]
        for other in reaching:
            if _overlap(binding.destination, other.destination):
                names |= {binding.tensor, other.tensor}
        reaching.append(binding)
    return names


def _overlap(a, b):
    """Whether views of one storage may have elements in common. If both count elements along the same dimensions, they
    have some where they meet in each of these."""
    loops = [
        {stride * each.itemsize: size for stride, size in zip(each.stride(), each.shape) if size > 1 and stride}
        for each in (a, b)
    ]
    offsets = [each.data_ptr() - min(a.data_ptr(), b.data_ptr()) for each in (a, b)]
    for stride in sorted(set().union(*loops), reverse=True):
        begins, offsets = zip(*(divmod(offset, stride) for offset in offsets))
        for loop, offset in zip(loops, offsets):
            inner = a.itemsize + sum(each * (size - 1) for each, size in loop.items() if each < stride)
            if offset + inner > stride:
                return True  # not the same dimensions
        ends = [begin + loop.get(stride, 1) for begin, loop in zip(begins, loops)]
        if begins[0] >= ends[1] or begins[1] >= ends[0]:
            return False
    return abs(offsets[0] - offsets[1]) < a.itemsize


def _bytes_of(tensor):
    begin, end = extent(tensor)
    return end - begin


def extent(tensor):
    """Where its elements lie in its storage, first and beyond the last one, in bytes."""
    begin = tensor.storage_offset() * tensor.itemsize
    if tensor.numel() == 0:
        return begin, begin
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return begin, begin + (last + 1) * tensor.itemsize


def repeats(sizes, strides):
    """Whether a box may have an element twice, as those of `unfold` have."""
    reached = 0
    for stride, size in sorted(zip(strides, sizes)):
        if size > 1:
            if stride <= reached:
                return True
            reached += stride * (size - 1)
    return False


def as_stored(destination, view, stored):
    """The destination, of the stored dtype if both are read as another one of the same width; None if a copy to it
    is more than a load can do."""
    view = view.expand(destination.shape)
    if any(stride == 0 and size > 1 for size, stride in zip(view.shape, view.stride())):
        return None
    if view.dtype == stored:
        convertible = destination.dtype in _CONVERTIBLE and stored in _CONVERTIBLE
        return destination if destination.dtype == stored or convertible else None
    if destination.dtype == view.dtype and view.dtype.itemsize == stored.itemsize:
        return destination.view(stored)
    return None
