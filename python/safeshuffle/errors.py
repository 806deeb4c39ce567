"""What safeshuffle raises. Each class is also the builtin exception that fits, so callers need not know it."""

import builtins
import errno
import os


class Error(Exception):
    """Base of all errors. `str()` is one line with all that is known.

    kind: number of the class, which is the exit code of the command
    code: errno, FormatErrc, or the native code of a library; 0 if there is none
    rank: first failing rank of a collective call; None outside of one
    file, tensor: at fault; None if unknown
    offset: of the byte in the file at fault; None if unknown
    cause: one sentence without the above
    """

    kind = 0
    code = 0
    rank = None
    file = None
    tensor = None
    offset = None
    cause = ""

    def __str__(self):
        return str(self.args[0])


class InternalError(Error, RuntimeError):
    """An unexpected exception within the library."""


class ConfigError(Error, ValueError):
    """An argument, an option or a rule file is wrong."""


class OutOfRange(ConfigError, IndexError):
    """An index of a slice is not one of the tensor."""


class IoError(Error, OSError):
    """A file cannot be opened, read or written; a checkpoint is incomplete. Has `errno` and `filename`."""

    def __reduce__(self):
        return type(self), self.args, self.__dict__ | {"errno": self.errno, "filename": self.filename}


class FileNotFound(IoError, FileNotFoundError):
    """There is no such file."""


class FileNotPermitted(IoError, PermissionError):
    """The file may not be read."""


class FormatError(Error, ValueError):
    """A file is not valid safetensors."""


class PlanError(Error, ValueError):
    """A tensor cannot be placed as asked."""


class TransportError(Error, ConnectionError):
    """CUDA, NCCL, MPI, or the group's own communication failed."""


class MemoryError(Error, builtins.MemoryError):  # noqa: A001
    """The budget cannot hold the load, or an allocation failed."""


class VerificationError(Error, RuntimeError):
    """Loaded bytes differ from the files."""


class TimeoutError(Error, builtins.TimeoutError):  # noqa: A001
    """A peer was lost or made no progress."""


class FallbackError(Error, RuntimeError):
    """A fallback was needed with strict=True."""


class CancelledError(Error):
    """Somebody cancelled the call, on any rank."""


_BY_KIND = (
    Error, InternalError, ConfigError, IoError, FormatError, PlanError, TransportError, MemoryError,
    VerificationError, TimeoutError, FallbackError, CancelledError,
)  # fmt: skip
_BY_ERRNO = {errno.ENOENT: FileNotFound, errno.EACCES: FileNotPermitted, errno.EPERM: FileNotPermitted}


def make(record):
    """The exception for an error of the C interface."""
    kind = _BY_KIND[record.kind] if record.kind < len(_BY_KIND) else Error
    if kind is IoError:
        kind = _BY_ERRNO.get(record.code, IoError)
    error = kind(record.message.decode(errors="replace"))
    error.kind, error.code, error.cause = record.kind, record.code, record.cause.decode(errors="replace")
    error.rank = None if record.rank < 0 else record.rank
    error.file = os.fsdecode(record.file) or None
    error.tensor = record.tensor.decode(errors="replace") or None
    error.offset = None if record.offset == 2**64 - 1 else record.offset
    if isinstance(error, OSError) and kind is not TimeoutError and kind is not TransportError:
        error.errno, error.filename = record.code or None, error.file
    return error
