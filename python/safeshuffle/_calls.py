"""Calls into the library that may take long.

The main thread leaves them to a thread of their own and waits: so Python's signal handlers run at once, and never in a
callback of the library, where what they raise would be lost.
"""

import atexit
import functools
import os
import queue
import threading
import weakref

_worker = None
_running = weakref.WeakSet()  # sessions with a call in progress
_at_exit = False
os.register_at_fork(after_in_child=_running.clear)


class _Worker:
    def __init__(self):
        self.process = os.getpid()
        self._tasks = queue.SimpleQueue()
        threading.Thread(target=self._work, name="safeshuffle", daemon=True).start()

    def run(self, task):
        done = threading.Event()
        self._tasks.put((task, done))
        return done

    def free(self, function, value):
        self._tasks.put((functools.partial(function, value), threading.Event()))

    def _work(self):
        while True:
            task, done = self._tasks.get()
            task()
            del task
            done.set()
            del done


def run(session, call):
    """What `call()` returns or raises. What is raised meanwhile in the main thread, such as KeyboardInterrupt, cancels
    the call; what is raised again while it ends leaves it behind."""
    if _at_exit:
        raise RuntimeError("the interpreter is exiting")
    if not _in_main_thread():
        _running.add(session)
        return call()
    outcome = []

    def task():
        try:
            outcome.append((call(), None))
        except BaseException as failure:  # noqa: BLE001
            outcome.append((None, failure))

    global _worker  # noqa: PLW0603
    if _worker is None or _worker.process != os.getpid():
        _worker = _Worker()
    done = _worker.run(task)
    try:
        while not done.wait(0.5):
            pass  # a signal that came just before the wait does not end it
    except BaseException:
        session.cancel()
        try:
            done.wait()
        except BaseException:
            _worker = None  # this one is still at work
            raise
        session.cancel(0)  # if the call ended without it
        raise
    value, failure = outcome.pop()
    try:
        if failure is not None:
            raise failure
    finally:
        del failure  # whose traceback has this frame: the caller's variables would live on
    return value


def free(function, value):
    """For destructors, in which a signal's exception is lost: the main thread must be quick."""
    worker = _worker
    if worker is None or _at_exit or worker.process != os.getpid() or not _in_main_thread():
        function(value)
    else:
        worker.free(function, value)


def _in_main_thread():
    return threading.current_thread() is threading.main_thread()


@atexit.register
def _end_calls():
    """Other threads end with the interpreter, but must not do so within a callback of the library."""
    global _at_exit  # noqa: PLW0603
    _at_exit = True
    for session in list(_running):
        session.end_at_exit()
