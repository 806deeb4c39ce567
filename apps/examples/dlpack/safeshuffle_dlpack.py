"""Loads a checkpoint and hands its tensors to NumPy, PyTorch or CuPy without a copy.

    model = safeshuffle_dlpack.Model("libexample_dlpack.so", "path/to/checkpoint", device="cuda")
    weight = torch.from_dlpack(model["model.norm.weight"])
"""

import ctypes
from collections.abc import Mapping


def _open_library(path):
    """Functions that make Python objects keep the interpreter's lock, all others let go of it."""
    library = ctypes.CDLL(path)
    for name, result, arguments in (
        ("model_load", ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_char_p]),
        ("model_free", None, [ctypes.c_void_p]),
        ("model_size", ctypes.c_size_t, [ctypes.c_void_p]),
        ("model_name", ctypes.c_void_p,
         [ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t)]),
        ("model_device", ctypes.c_int, [ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]),
        ("model_error", ctypes.c_char_p, []),
    ):  # fmt: skip
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    library.model_export = ctypes.PyDLL(path).model_export
    library.model_export.restype = ctypes.py_object
    library.model_export.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return library


class Model(Mapping):
    """A loaded checkpoint: {name: Tensor}."""

    def __init__(self, library, path, device="host"):
        self._library = _open_library(str(library))
        self._handle = self._library.model_load(str(path).encode(), device.encode())
        if not self._handle:
            raise RuntimeError(self._library.model_error().decode(errors="replace"))
        self._index = {self._name(i): i for i in range(self._library.model_size(self._handle))}

    def __del__(self):
        if getattr(self, "_handle", None):
            self._library.model_free(self._handle)

    def __len__(self):
        return len(self._index)

    def __iter__(self):
        return iter(self._index)

    def __getitem__(self, name):
        return Tensor(self, self._index[name])

    def device(self):
        """The type of device, in DLPack's numbers, and which one."""
        number = ctypes.c_int()
        return self._library.model_device(self._handle, ctypes.byref(number)), number.value

    def export(self, index):
        """A capsule that owns the tensor until a framework takes it. Raises BufferError."""
        return self._library.model_export(self._handle, index)

    def _name(self, index):
        length = ctypes.c_size_t()
        start = self._library.model_name(self._handle, index, ctypes.byref(length))
        return ctypes.string_at(start, length.value).decode()


class Tensor:
    """What the `from_dlpack` of a framework takes, any number of times. The memory lives as long as any
    array made of it, or the model."""

    def __init__(self, model, index):
        self._model = model
        self._index = index

    def __dlpack_device__(self):
        return self._model.device()

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """The data is there on every stream; DLPack before 1.0 is what all consumers take."""
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("the tensor is exported where it is, without a copy")
        return self._model.export(self._index)
