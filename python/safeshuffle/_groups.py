"""Groups of ranks: process groups of PyTorch, communicators of mpi4py, or anything that can all-gather bytes."""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import os
import sys
import time
from typing import Any

from . import _native, errors

_library = _native.library


class Prepared:
    """What a rank brings to a collective call: what `prepare()` returns, or raises; and a text, `same` of it."""

    def __init__(self, prepare, same=lambda result: ""):
        self._result = self._failure = None
        try:
            self._result = prepare()
            self._text = _GOOD + same(self._result)
        except Exception as error:  # noqa: BLE001
            self._failure = error
            self._text = _BAD + (str(error) or repr(error))

    def agreed(self, group, timeout):
        """The result, if nothing was raised on any rank, and if the text is the same on all. Collective."""
        failure, self._failure = self._failure, None
        if group.size > 1:
            gathered = group.all_gather(self._text.encode(errors="replace"), timeout)
            told = [text.decode(errors="replace") for text in gathered]
            for rank, text in enumerate(told):
                failure = failure or _objection(rank, text)
            for rank, text in enumerate(told):
                if failure is None and text != told[0]:
                    failure = errors.ConfigError(f"rank {rank} was given another {text[len(_GOOD) : 80]} than rank 0")
        try:
            if failure is not None:
                raise failure
        finally:
            del failure  # as in _calls.run
        return self._result


_GOOD, _BAD = "good: ", "bad: "


def _objection(rank, text):
    if text.startswith(_BAD):
        return errors.ConfigError(f"rank {rank}: {text[len(_BAD) :]}")
    if not text.startswith(_GOOD):  # but a message of the library
        return errors.TransportError(f"rank {rank} is in another collective call than this one")
    return None


class Group:
    """The ranks that load together, each with one device. For many loads by one group: it connects once. Its messages
    are sent by the threads that load: where the main thread loads, by another one.

    group: a process group of torch.distributed (of any ranks, in any order), a communicator of mpi4py, or an
        object with `rank`, `size` and `all_gather(data, timeout)`, which takes bytes and seconds and returns every
        rank's bytes by rank; None: this process alone
    device: "cpu", "cuda" (this process' current one in PyTorch, else by the rank's position on its node),
        "cuda:1", "auto" (a GPU if every rank can have its own), or a torch.device
    timeout: seconds for all ranks to join

    Collective. Raises ConfigError, TimeoutError, TransportError.
    """

    def __init__(self, group: Any = None, device: Any = "cpu", timeout: float = 300.0) -> None:
        self._gather = gather_of(group, timeout)
        self._useless = False
        self.size = _native.number(self._gather.size, "the size of a group", 1, 2**32 - 1)
        self.rank = _native.number(self._gather.rank, "a rank of the group", 0, self.size - 1)
        kind, ordinal = Prepared(lambda: self._find_device(device)).agreed(self, timeout)
        self.failure = None
        self._callback = _native.AllGather(self._all_gather)
        local_rank = self._local_rank(timeout) if kind != "host" and ordinal < 0 else 0
        bootstrap = _native.Bootstrap(
            rank=self.rank, size=self.size, local_rank=local_rank, device=kind.encode(), ordinal=ordinal,
            all_gather=self._callback, timeout_seconds=timeout,
        )  # fmt: skip
        handle = self.explain(lambda: _native.new(_library.safeshuffle_group_open, ctypes.byref(bootstrap)))
        self.handle = _native.Handle(handle, _library.safeshuffle_group_free)

    def all_gather(self, data: bytes, timeout: float = 300.0) -> list[bytes]:
        """Every rank's bytes, by rank. Collective."""
        try:
            return self._gathered(data, timeout)
        except Exception as failure:
            kind, reason = _explained(failure)
            raise kind(f"the group's all-gather: {reason}") from failure

    def _gathered(self, data, timeout):
        if self._useless:
            raise errors.TransportError("an earlier one failed, so ranks may be at different ones")
        try:
            gathered = [bytes(each) for each in self._gather.all_gather(data, timeout)]
            if len(gathered) != self.size:
                raise errors.TransportError(f"{len(gathered)} texts came from {self.size} ranks")
        except BaseException:
            self._useless = True
            raise
        return gathered

    def explain(self, call):
        """Runs a collective call; what the group's own communication raised is the cause of its error."""
        self.failure = None
        try:
            return call()
        except errors.Error as error:
            if self.failure is None:
                raise
            raise error from self.failure

    def _find_device(self, device):
        kind, ordinal = parse_device(device)
        if kind != "host" and self.size > 1:
            _load_nccl()
        return kind, ordinal

    def _local_rank(self, timeout):
        import socket  # noqa: PLC0415

        hosts = self.all_gather(socket.gethostname().encode(), timeout)
        return hosts[: self.rank].count(hosts[self.rank])

    # Exceptions must not leave a callback.
    def _all_gather(self, _context, mine, size, timeout, gathered):
        try:
            for rank, data in enumerate(self._gathered(ctypes.string_at(mine, size), timeout)):
                _library.safeshuffle_gathered_set(gathered, rank, data, len(data))
        except BaseException as failure:  # noqa: BLE001
            self.failure = failure
            kind, reason = _explained(failure)
            _library.safeshuffle_gathered_fail(gathered, _KINDS[kind], -1, reason.encode(errors="replace"))


_KINDS = {errors.TransportError: 6, errors.TimeoutError: 9}


def _explained(failure):
    """The class of the library's error for what a group's own communication raised, and its reason."""
    kind = errors.TimeoutError if isinstance(failure, builtins.TimeoutError) else errors.TransportError
    return kind, str(failure) or repr(failure)


def parse_device(device):
    text = f"cuda:{device}" if isinstance(device, int) else str(device)
    kind, _, ordinal = text.partition(":")
    if kind in ("cpu", "host") and (ordinal.isdecimal() or text == kind):
        return "host", -1
    if kind == "auto" and not ordinal:
        return "auto", -1
    if kind != "cuda" or not (ordinal.isdecimal() or text == "cuda"):
        raise errors.ConfigError(f"device must be 'cpu', 'cuda', 'cuda:N' or 'auto', not {device!r}")
    return "cuda", int(ordinal) if ordinal else _current_gpu()


def _load_nccl():
    """Of the package nvidia-nccl-cu*, unless the process has one: the library takes what is loaded, or the system's."""
    import importlib.util  # noqa: PLC0415 - `import safeshuffle` shall be quick

    name = "libnccl.so.2"
    try:
        ctypes.CDLL(name, mode=os.RTLD_NOLOAD)
    except OSError:
        packages = importlib.util.find_spec("nvidia")
        for directory in (packages and packages.submodule_search_locations) or ():
            with contextlib.suppress(OSError):  # then it is the system's
                ctypes.CDLL(os.path.join(directory, "nccl", "lib", name))


def _current_gpu():
    torch = sys.modules.get("torch")
    return torch.cuda.current_device() if torch and torch.cuda.is_initialized() else -1


def gather_of(group, timeout):
    if group is None:
        return _Alone()
    distributed = sys.modules.get("torch.distributed")
    if distributed and isinstance(group, distributed.ProcessGroup):
        return _TorchGroup(group)
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi and isinstance(group, mpi.Comm):
        return _MpiGroup(group, timeout)
    if all(hasattr(group, name) for name in ("rank", "size", "all_gather")):
        return group
    raise errors.ConfigError(f"{group!r} is no group: see safeshuffle.Group")


class _Alone:
    rank, size = 0, 1

    def all_gather(self, data, _timeout):
        return [data]


class _TorchGroup:
    """Sends sizes, then texts of the longest one's size, by the group's own all-gather."""

    def __init__(self, group):
        from datetime import timedelta  # noqa: PLC0415

        import torch  # noqa: PLC0415 - only those who have a group have it
        import torch.distributed as distributed  # noqa: PLC0415

        self._torch, self._distributed, self._group, self._seconds = torch, distributed, group, timedelta
        self.rank, self.size = distributed.get_rank(group), distributed.get_world_size(group)
        if self.rank < 0:
            raise errors.ConfigError("this process is not a member of the group")
        backend = distributed.get_backend_config(group)
        self._device = "cpu" if "cpu" in str(backend) else torch.device("cuda", torch.cuda.current_device())

    def all_gather(self, data, timeout):
        end = time.monotonic() + timeout
        sizes = [int(size[0]) for size in self._gather(self._torch.tensor([len(data)]), end)]
        mine = self._torch.frombuffer(bytearray(data.ljust(max(*sizes, 1), b"\0")), dtype=self._torch.uint8)
        return [
            text[:size].cpu().numpy().tobytes() if size else b"" for text, size in zip(self._gather(mine, end), sizes)
        ]

    def _gather(self, mine, end):
        mine = mine.to(self._device)
        all_ranks = [self._torch.empty_like(mine) for _ in range(self.size)]
        try:
            work = self._distributed.all_gather(all_ranks, mine, group=self._group, async_op=True)
            work.wait(self._seconds(seconds=max(end - time.monotonic(), 0.001)))
        except RuntimeError as error:  # a peer was lost, or did not come in time
            raise builtins.TimeoutError(str(error)) from error
        return all_ranks


class _MpiGroup:
    """Likewise, by MPI, on a duplicate of the communicator; tests for completion, so that a lost rank is noticed.

    Duplicates can only be freed by all ranks together, but groups end at any time. So they are kept, and a later group
    of the communicator takes the first one that no rank uses any more."""

    _unfinished = _free = None

    def __init__(self, comm, timeout):
        from mpi4py import MPI  # noqa: PLC0415

        if comm == MPI.COMM_NULL:
            raise errors.ConfigError("this process is not a member of the communicator")
        self._mpi = MPI
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        try:
            self._take(comm, timeout)
        except builtins.TimeoutError as failure:
            raise errors.TimeoutError(str(failure)) from None

    def _take(self, comm, timeout):
        end = time.monotonic() + timeout
        kept, free = _duplicates(comm)
        self._comm = comm
        free_everywhere = [all(each) for each in zip(*self.all_gather(bytes(free), timeout))]
        if True not in free_everywhere:
            duplicate, request = comm.Idup()
            kept.append(duplicate)
            free.append(0)
            free_everywhere.append(True)
            self._wait(request, end)
        at = free_everywhere.index(True)
        free[at] = 0
        self._comm, self._free, self._at = kept[at], free, at

    def __del__(self):
        if self._unfinished is not None:
            _abandoned.append(self._unfinished)
        elif self._free is not None:
            self._free[self._at] = 1

    def all_gather(self, data, timeout):
        end = time.monotonic() + timeout
        sizes_out = bytearray(8 * self.size)
        self._wait(
            self._comm.Iallgather([len(data).to_bytes(8, "little"), self._mpi.BYTE], [sizes_out, 8, self._mpi.BYTE]),
            end,
        )
        sizes = [int.from_bytes(sizes_out[8 * i : 8 * i + 8], "little") for i in range(self.size)]
        width = max(sizes)
        texts = bytearray(width * self.size)
        self._wait(
            self._comm.Iallgather([data.ljust(width, b"\0"), self._mpi.BYTE], [texts, width, self._mpi.BYTE]), end
        )
        return [bytes(texts[i * width : i * width + sizes[i]]) for i in range(self.size)]

    def _wait(self, request, end):
        pause = 1e-6
        self._unfinished = request
        while not request.Test():
            if time.monotonic() > end:
                raise builtins.TimeoutError("a rank of the communicator did not come in time")
            time.sleep(pause)
            pause = min(2 * pause, 1e-3)
        self._unfinished = None


_abandoned = []  # requests: MPI may still write to what they keep


def _duplicates(comm):
    """Those of the communicator, and of each whether it is free: 1 or 0. Kept with it, by MPI."""
    global _key  # noqa: PLW0603
    if _key is None:
        _key = comm.Create_keyval()
    duplicates = comm.Get_attr(_key)
    if duplicates is None:
        duplicates = [], bytearray()
        comm.Set_attr(_key, duplicates)
    return duplicates


_key = None
