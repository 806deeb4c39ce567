"""Memory of this machine's GPUs that is in use, by whatever process, as NVML counts it."""

import contextlib
import ctypes
import threading

INTERVAL_SECONDS = 0.005


class Memory(ctypes.Structure):
    """nvmlMemory_t (nvml.h), in bytes."""

    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Gpus:
    """All of the machine; none if NVML cannot tell. It ignores CUDA_VISIBLE_DEVICES."""

    def __init__(self):
        self.handles, count = [], ctypes.c_uint()
        with contextlib.suppress(OSError, AttributeError):  # it may be missing, older, or without a driver
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
            self.call("nvmlInit_v2")
            self.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
            handles = [ctypes.c_void_p() for _ in range(count.value)]
            for index, handle in enumerate(handles):
                self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
                self.used_by(handle)
            self.handles = handles

    def call(self, name, *arguments):
        status = getattr(self.nvml, name)(*arguments)
        if status != 0:
            raise OSError(f"{name}: error {status}")

    def used_by(self, handle):
        memory = Memory()
        self.call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
        return memory.used

    def used_bytes(self):
        return sum(map(self.used_by, self.handles))


class Peak:
    """As a context: how much more was in use, at most, than at its beginning: `bytes`, of all GPUs together; None if
    that is not known. It is looked at every few milliseconds."""

    def __init__(self, gpus):
        self.gpus = gpus
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.watch)

    @property
    def bytes(self):
        return self.most - self.before if self.gpus.handles else None

    def __enter__(self):
        self.before = self.most = self.gpus.used_bytes()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def watch(self):
        while self.gpus.handles and not self.over.wait(INTERVAL_SECONDS):
            self.most = max(self.most, self.gpus.used_bytes())
