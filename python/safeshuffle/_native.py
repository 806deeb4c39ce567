"""The C interface (include/safeshuffle/safeshuffle.h) by ctypes."""

import ctypes
import os
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_double, c_int32, c_size_t, c_uint32, c_uint64, c_void_p

from . import _calls as calls
from . import errors

ABI_VERSION = 1


class ErrorRecord(ctypes.Structure):
    _fields_ = (
        ("kind", c_uint32), ("code", c_int32), ("rank", c_int32), ("file", c_char_p), ("tensor", c_char_p),
        ("offset", c_uint64), ("cause", c_char_p), ("message", c_char_p),
    )  # fmt: skip


class Pair(ctypes.Structure):
    _fields_ = (("name", c_char_p), ("value", c_char_p))


class Tensor(ctypes.Structure):
    _fields_ = (
        ("name", c_char_p), ("dtype", c_char_p), ("dims", c_size_t), ("shape", POINTER(c_uint64)),
        ("bytes", c_uint64), ("data", c_void_p), ("file", c_char_p), ("order", c_uint32),
    )  # fmt: skip


AllGather = CFUNCTYPE(None, c_void_p, c_void_p, c_size_t, c_double, c_void_p)
Progress = CFUNCTYPE(c_int32, c_void_p, c_uint64, c_uint64)
Ready = CFUNCTYPE(c_int32, c_void_p, POINTER(Tensor), c_uint64, c_int32)
Release = CFUNCTYPE(None, c_void_p)


class Bootstrap(ctypes.Structure):
    _fields_ = (
        ("rank", c_uint32), ("size", c_uint32), ("local_rank", c_uint32), ("device", c_char_p),
        ("ordinal", c_int32), ("all_gather", AllGather), ("context", c_void_p), ("address", c_char_p),
        ("timeout_seconds", c_double),
    )  # fmt: skip


class Callbacks(ctypes.Structure):
    _fields_ = (("context", c_void_p), ("progress", Progress), ("ready", Ready))


# Arrays of numbers are given by their addresses: see _session.Numbers.
class Binding(ctypes.Structure):
    _fields_ = (
        ("tensor", c_char_p), ("offset", c_uint64), ("dims", c_size_t), ("sizes", c_void_p),
        ("strides", c_void_p), ("data", c_void_p), ("dtype", c_char_p), ("data_strides", c_void_p),
        ("name", c_char_p),
    )  # fmt: skip


class Parameter(ctypes.Structure):
    _fields_ = (
        ("name", c_char_p), ("data", c_void_p), ("dtype", c_char_p), ("dims", c_size_t),
        ("shape", c_void_p), ("strides", c_void_p),
    )  # fmt: skip


class Lender(ctypes.Structure):
    _fields_ = (("context", c_void_p), ("release", Release))


def _raise_error(record, _function, arguments):
    if not record:
        return arguments
    try:
        raise errors.make(record.contents)
    finally:
        library.safeshuffle_error_free(record)


def _open_library():
    path = os.environ.get("SAFESHUFFLE_LIBRARY") or os.path.join(os.path.dirname(__file__), "libsafeshuffle_c.so")
    opened = ctypes.CDLL(path)
    opened.safeshuffle_abi_version.restype = c_uint32
    if opened.safeshuffle_abi_version() != ABI_VERSION:
        raise ImportError(f"{path} is another version of safeshuffle than this package")
    count, handle, texts = POINTER(c_size_t), POINTER(c_void_p), POINTER(c_char_p)
    for name, result, *arguments in (
        ("version", c_char_p),
        ("error_free", None, POINTER(ErrorRecord)),
        ("gathered_set", None, c_void_p, c_uint32, c_char_p, c_size_t),
        ("gathered_fail", None, c_void_p, c_uint32, c_int32, c_char_p),
        ("group_free", None, c_void_p),
        ("session_free", None, c_void_p),
        ("session_cancel", None, c_void_p, c_int32),
        ("session_tensors", POINTER(Tensor), c_void_p, count),
        ("session_metadata", POINTER(Pair), c_void_p, count),
        ("session_warnings", texts, c_void_p, count),
        ("session_report", c_char_p, c_void_p),
        ("set_free", None, c_void_p),
        ("set_tensors", POINTER(Tensor), c_void_p, count),
        ("set_device", c_int32, c_void_p, POINTER(c_int32)),
        ("set_report", c_char_p, c_void_p),
        ("stream_free", None, c_void_p),
        ("release_capsule", None, c_void_p),
    ):
        function = getattr(opened, "safeshuffle_" + name)
        function.restype, function.argtypes = result, arguments
    for name, *arguments in (
        ("group_open", POINTER(Bootstrap), handle),
        ("session_new", c_void_p, POINTER(Pair), c_size_t, POINTER(Callbacks), handle),
        ("session_open", c_void_p, texts, c_size_t),
        ("session_load", c_void_p, handle),
        ("session_get", c_void_p, c_char_p, handle),
        ("session_get_slice", c_void_p, c_char_p, c_size_t, POINTER(c_uint64), POINTER(c_uint64), handle),
        ("session_get_sharded", c_void_p, texts, c_size_t, c_uint32, handle),
        ("session_push", c_void_p, c_char_p, c_uint32, handle),
        ("session_stream", c_void_p, texts, c_size_t, c_uint64, c_uint32, handle),
        ("stream_next", c_void_p, handle),
        ("session_load_into", c_void_p, POINTER(Binding), c_size_t, POINTER(Lender)),
        ("session_load_parameters", c_void_p, POINTER(Parameter), c_size_t, POINTER(Lender)),
        ("set_to_dlpack", c_void_p, c_size_t, c_int32, c_int32, handle),
    ):
        function = getattr(opened, "safeshuffle_" + name)
        function.restype, function.argtypes, function.errcheck = POINTER(ErrorRecord), arguments, _raise_error
    return opened


library = _open_library()


def new(function, *arguments):
    """What a function that can fail stores in its last argument."""
    result = c_void_p()
    function(*arguments, ctypes.byref(result))
    return result.value


def text(value, what="text"):
    """For the C interface, where a zero ends it."""
    if not isinstance(value, str):
        raise errors.ConfigError(f"{what} must be a str, not {value!r}")
    if "\0" in value:
        raise errors.ConfigError(f"{what} {value!r} has a zero byte")
    return value.encode(errors="surrogateescape")


def number(value, what, least=0, most=2**64 - 1):
    """An integer that the C interface has room for."""
    if not hasattr(value, "__index__") or not least <= value.__index__() <= most:
        raise errors.ConfigError(f"{what} must be an integer from {least} to {most}, not {value!r}")
    return value.__index__()


def listed(function, handle):
    """What a function returns that also stores a count."""
    count = c_size_t()
    first = function(handle.pointer(), ctypes.byref(count))
    return first[: count.value] if count.value else []


def texts(strings, what="a name"):
    """An array of C strings, and its length."""
    return (c_char_p * len(strings))(*(text(each, what) for each in strings)), len(strings)


class Handle:
    """Owns an object of the C interface. A forked process does not free what its parent made, whose threads it
    does not have."""

    def __init__(self, value, free):
        self.value = value
        self._free = free
        self._process = os.getpid()

    def __bool__(self):
        return self.value is not None

    def pointer(self):
        """For functions. Raises ConfigError after close(), RuntimeError in a forked process."""
        if self.value is None:
            raise errors.ConfigError("it is closed")
        if self.is_inherited():
            raise RuntimeError("it belongs to the parent process: open it again in this one")
        return self.value

    def is_inherited(self, _os=os):
        """Whether a parent process made it."""
        return self._process != _os.getpid()

    def close(self):
        self._end(lambda free, value: free(value))

    def __del__(self, _os=os, _free=calls.free):  # modules are gone by the time that the last objects go
        self._end(_free, _os)

    def _end(self, free, _os=os):
        value, self.value = self.value, None
        if value is not None and not self.is_inherited(_os):
            free(self._free, value)
