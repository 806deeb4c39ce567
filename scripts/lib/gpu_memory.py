"""Memory of this machine's GPUs that is in use, by whatever process, as NVML counts it."""

import contextlib
import ctypes
import threading

LIBRARY = "libnvidia-ml.so.1"
INTERVAL_SECONDS = 0.005


class Memory(ctypes.Structure):
    """nvmlMemory_t (nvml.h), in bytes."""

    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Gpus:
    """All of the machine; none without the library. NVML ignores CUDA_VISIBLE_DEVICES."""

    def __init__(self, library=LIBRARY):
        self.handles = []
        with contextlib.suppress(OSError, AttributeError):  # it may be missing, older, or without a driver
            self.nvml = ctypes.CDLL(library)
            self.call("nvmlInit_v2")
            count = ctypes.c_uint()
            self.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
            self.handles = [self.handle(index) for index in range(count.value)]

    def call(self, name, *arguments):
        status = getattr(self.nvml, name)(*arguments)
        if status != 0:
            raise OSError(f"{name}: error {status}")

    def handle(self, index):
        handle = ctypes.c_void_p()
        self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        return handle

    def used_bytes(self):
        """None if that is not known."""
        memory, used = Memory(), 0
        try:
            for handle in self.handles:
                self.call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
                used += memory.used
        except OSError:
            return None
        return used if self.handles else None


class Peak:
    """As a context: how much more was in use, at most, than at its beginning: `bytes`, of all GPUs together; None if
    that is not known. It is looked at every few milliseconds."""

    def __init__(self, gpus):
        self.gpus = gpus
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.watch)

    @property
    def bytes(self):
        return None if self.most is None else self.most - self.before

    def __enter__(self):
        self.before = self.most = self.gpus.used_bytes()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def watch(self):
        while self.most is not None and not self.over.wait(INTERVAL_SECONDS):
            used = self.gpus.used_bytes()
            self.most = None if used is None else max(self.most, used)
