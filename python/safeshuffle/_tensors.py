"""Loaded tensors as NumPy, PyTorch and DLPack have them, and theirs as safetensors has them."""

import ctypes
import importlib
import sys

from . import _native, errors

_library = _native.library

# Names of dtypes in NumPy and PyTorch. Those that NumPy lacks come from ml_dtypes, if that is installed.
_NUMPY = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32",
    "I32": "int32", "U64": "uint64", "I64": "int64", "F16": "float16", "F32": "float32", "F64": "float64",
    "C64": "complex64",
}  # fmt: skip
_ML_DTYPES = {
    "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
}  # fmt: skip
_TORCH = {**_NUMPY, **_ML_DTYPES, "F4": "float4_e2m1fn_x2"}
# Those that all of PyTorch's versions take by DLPack.
_TAKEN = {"U8", "I8", "I16", "I32", "I64", "F16", "BF16", "F32", "F64"}
_STORED = {name: dtype for dtype, name in _TORCH.items()}

# Policies of conversion by what users call them.
_POLICIES = {"keep": "keep", "f16": "f16", "bf16": "bf16", "f32": "f32",
             "float16": "f16", "half": "f16", "bfloat16": "bf16", "float32": "f32", "float": "f32"}  # fmt: skip


def torch_dtype(stored):
    """None if PyTorch has none, or one of several elements."""
    import torch  # noqa: PLC0415 - optional

    return None if stored == "F4" else getattr(torch, _TORCH.get(stored, ""), None)


def policy(dtype):
    """The option `dtype` for None, a name, or a dtype of NumPy or PyTorch."""
    if dtype is None:
        return "keep"
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", None) or str(dtype)
    name = "" if dtype is float else name  # that of Python has 64 bits
    try:
        return _POLICIES[name.rpartition(".")[2].lower()]
    except KeyError:
        raise errors.ConfigError(f"dtype must be one of {', '.join(_POLICIES)}, not {dtype!r}") from None


def is_lazy(tensor):
    """Whether the values of a tensor of PyTorch are others than those in its memory."""
    return tensor.is_conj() or tensor.is_neg()


class Tensor:
    """A loaded tensor for any framework that knows DLPack: `jax.numpy.from_dlpack(tensor)`. Its memory is shared
    with all that is made of it, and outlives the session.

    name, shape (a tuple; of this rank's part), dtype (safetensors' name), nbytes
    """

    def __init__(self, owner, index, described):
        self._owner = owner
        self._index = index
        self._data = described.data
        self.name = described.name.decode()
        self.dtype = described.dtype.decode()
        self.shape = tuple(described.shape[: described.dims])
        self.nbytes = described.bytes

    def __repr__(self):
        return f"Tensor({self.name!r}, {self.dtype}, {list(self.shape)})"

    def __dlpack_device__(self):
        return self._owner.dlpack_device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """The data is there on every stream."""
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("the tensor is exported where it is, without a copy")
        return self.capsule(versioned=max_version is not None and max_version[0] >= 1)

    def capsule(self, versioned=False, as_bytes=False):
        """A capsule of DLPack, which owns the tensor until a framework takes it."""
        try:
            managed = _native.new(
                _library.safeshuffle_set_to_dlpack, self._owner.handle.pointer(), self._index, versioned, as_bytes
            )
        except errors.ConfigError as error:
            raise BufferError(str(error)) from None
        return _capsule(managed, _VERSIONED if versioned else _UNVERSIONED)

    def numpy(self):
        """A numpy.ndarray of the same memory. BF16 and F8 need the package ml_dtypes."""
        self._require_whole_bytes()
        numpy = self._module("numpy")
        if self._owner.dlpack_device[0] != _CPU:
            raise errors.ConfigError(f"'{self.name}' is on a GPU: NumPy's arrays are not")
        if self.dtype in _NUMPY:
            dtype = numpy.dtype(_NUMPY[self.dtype])
        else:
            dtype = numpy.dtype(getattr(self._module("ml_dtypes"), _ML_DTYPES[self.dtype]))
        if self.nbytes == 0:
            return numpy.empty(self.shape, dtype)
        memory = (ctypes.c_byte * self.nbytes).from_address(self._data)
        memory.owner = self._owner
        return numpy.frombuffer(memory, dtype).reshape(self.shape)

    def torch(self):
        """A torch.Tensor of the same memory. F4 is float4_e2m1fn_x2: two elements in each of its own."""
        torch = self._module("torch")
        name = _TORCH.get(self.dtype)
        if name is None or not hasattr(torch, name):
            raise errors.ConfigError(f"'{self.name}' is {self.dtype}, which PyTorch {torch.__version__} does not have")
        dtype = getattr(torch, name)
        shape = self.shape
        if self.dtype == "F4":
            if not shape or shape[-1] % 2:
                raise errors.ConfigError(
                    f"'{self.name}' is F4 {list(shape)}: PyTorch has pairs along the last dimension"
                )
            shape = (*shape[:-1], shape[-1] // 2)
        if self.nbytes == 0:
            return torch.empty(shape, dtype=dtype, device=self._owner.torch_device)
        # Views take as long as all else.
        taken = self.dtype in _TAKEN
        tensor = torch.utils.dlpack.from_dlpack(self.capsule(as_bytes=not taken))
        tensor = tensor if taken else tensor.view(dtype)
        return tensor if tensor.shape == shape else tensor.view(shape)

    def _module(self, name):
        try:
            return sys.modules.get(name) or importlib.import_module(name)
        except ImportError:
            raise errors.ConfigError(f"'{self.name}' is {self.dtype}: the package {name} is needed for it") from None

    def _require_whole_bytes(self):
        if self.dtype not in _NUMPY and self.dtype not in _ML_DTYPES:
            raise errors.ConfigError(f"'{self.name}' is {self.dtype}, which NumPy does not have")


class LoadedSet:
    """Owns a set of the C interface."""

    def __init__(self, handle):
        self.handle = handle
        ordinal = ctypes.c_int32()
        kind = _library.safeshuffle_set_device(self.handle.pointer(), ctypes.byref(ordinal))
        self.dlpack_device = (kind, ordinal.value)
        self.torch_device = "cpu" if kind == _CPU else f"cuda:{ordinal.value}"

    def tensors(self):
        """By name."""
        described = _native.listed(_library.safeshuffle_set_tensors, self.handle)
        return [Tensor(self, i, each) for i, each in enumerate(described)]

    def in_order(self):
        """In the order of the model."""
        described = _native.listed(_library.safeshuffle_set_tensors, self.handle)
        order = sorted(range(len(described)), key=lambda i: described[i].order)
        return [Tensor(self, i, described[i]) for i in order]

    def report(self):
        return parse_report(_library.safeshuffle_set_report(self.handle.pointer()))


def parse_report(text):
    import json  # noqa: PLC0415 - `import safeshuffle` shall be quick

    return json.loads(text)


CONVERSIONS = {"pt": Tensor.torch, "np": Tensor.numpy, None: lambda tensor: tensor}


def conversion(framework):
    """What makes tensors of the framework."""
    aliases = {"torch": "pt", "pytorch": "pt", "numpy": "np"}
    try:
        return CONVERSIONS[aliases.get(framework, framework)]
    except (KeyError, TypeError):
        raise errors.ConfigError(f"framework must be 'pt', 'np' or None (DLPack), not {framework!r}") from None


class Memory:
    """Where a tensor of NumPy or PyTorch lies: address, safetensors' dtype, shape and strides in elements."""

    def __init__(self, name, tensor):
        self.tensor = tensor  # which keeps the memory
        describe = (
            self._numpy if _is(tensor, "numpy", "ndarray") else self._torch if _is(tensor, "torch", "Tensor") else None
        )
        if describe is None:
            raise errors.ConfigError(
                f"'{name}' must be a tensor of PyTorch or an array of NumPy, not {type(tensor).__name__}"
            )
        reason, dtype = describe(tensor)
        self.dtype = _STORED.get(dtype)
        if reason is None and self.dtype is None:
            reason = f"{dtype} is no dtype to load into"
        if reason is None and any(stride < 0 for stride in self.strides):
            reason = "it has negative strides"
        if reason is not None:
            raise errors.ConfigError(f"'{name}' cannot be filled: {reason}")

    def _numpy(self, array):
        self.address, self.shape = array.ctypes.data, array.shape
        self.strides = [stride // max(array.itemsize, 1) for stride in array.strides]
        reason = None
        if not array.flags.writeable:
            reason = "it is read-only"
        elif not array.dtype.isnative:
            reason = "its bytes are in another order"
        elif any(stride % max(array.itemsize, 1) for stride in array.strides):
            reason = "its strides are not whole elements"
        return reason, array.dtype.name

    def _torch(self, tensor):
        dtype = str(tensor.dtype).rpartition(".")[2]
        if hasattr(tensor, "to_local"):
            return "it is distributed: pass its to_local()", dtype
        if tensor.is_nested or tensor.layout != _torch().strided:
            return "it is not dense", dtype
        if is_lazy(tensor):
            return "it is a lazy view of other values: pass its resolve_conj().resolve_neg()", dtype
        self.address, self.shape, self.strides = tensor.data_ptr(), tuple(tensor.shape), tensor.stride()
        if _STORED.get(dtype) == "F4":  # pairs along the last dimension
            if not self.shape or (self.strides[-1] != 1 and self.shape[-1] > 1):
                return "its last dimension is not dense", dtype
            self.shape = (*self.shape[:-1], 2 * self.shape[-1])
            self.strides = (*(2 * stride for stride in self.strides[:-1]), 1)
        return None, dtype

    def note_change(self):
        """Tells PyTorch's autograd that the values have changed."""
        if hasattr(self.tensor, "data_ptr") and not self.tensor.is_inference():
            _torch().autograd.graph.increment_version(self.tensor)

    def place(self):
        return self.address, self.shape, self.dtype, tuple(self.strides)


def settle(memory):
    """Waits for what PyTorch does with memory of GPUs on its current streams: a load has a stream of its own."""
    for device in {each.tensor.device for each in memory if getattr(each.tensor, "is_cuda", False)}:
        _torch().cuda.current_stream(device).synchronize()


def _is(value, module, kind):
    module = sys.modules.get(module)
    return module is not None and isinstance(value, getattr(module, kind))


def _torch():
    return sys.modules["torch"]


# DLPack's number of that type of device.
_CPU = 1

_VERSIONED, _UNVERSIONED = b"dltensor_versioned", b"dltensor"


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
# In C: it may run while an exception is on its way.
_release_capsule = ctypes.cast(_library.safeshuffle_release_capsule, ctypes.c_void_p)


def _capsule(managed, name):
    return _new_capsule(managed, name, _release_capsule)
