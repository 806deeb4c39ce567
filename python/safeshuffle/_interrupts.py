"""Ctrl-C during a call into the library.

Python runs its handler of a signal once the main thread is back from the call. Until then, only the C handler runs,
which writes the signal's number to a file descriptor: a thread that reads it cancels the call.
"""

import contextlib
import os
import signal
import threading


class _Watcher:
    def __init__(self):
        self.process = os.getpid()
        self._lock = threading.Lock()
        self._cancel = None
        self._forward_to = -1
        self.interrupted = False
        read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        threading.Thread(target=self._watch, args=(read,), name="safeshuffle-interrupts", daemon=True).start()

    def begin(self, cancel):
        with self._lock:
            self._cancel, self.interrupted = cancel, False
        self._forward_to = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def end(self):
        signal.set_wakeup_fd(self._forward_to)
        with self._lock:
            self._cancel = None

    def _watch(self, read):
        while numbers := os.read(read, 4096):
            with self._lock:
                if self._cancel and signal.SIGINT in numbers:
                    self.interrupted = True
                    self._cancel()
            if self._forward_to >= 0:
                with contextlib.suppress(OSError):
                    os.write(self._forward_to, numbers)


_watcher = None


@contextlib.contextmanager
def cancelling(cancel, withdraw):
    """Ctrl-C calls `cancel`, if it would raise KeyboardInterrupt; if the call has ended without obeying, `withdraw`."""
    global _watcher  # noqa: PLW0603
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    if _watcher is None or _watcher.process != os.getpid():
        _watcher = _Watcher()
    _watcher.begin(cancel)
    try:
        yield
    finally:
        _watcher.end()
        if _watcher.interrupted:
            withdraw()
