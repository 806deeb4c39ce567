"""What the page cache has of files: counted page by page, taken out, brought in. As a program, prepares this node for a
run; once it has ended, nothing keeps warm files warm.

usage: python3 -m lib.page_cache cold|warm DTYPE FILE...
"""

import ctypes
import mmap
import os
import pathlib
import sys

BUFFER_BYTES = 8 << 20
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
LIBC.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]


class Unprepared(Exception):
    """Files are not as they should be before a run, which then must not be called cold, or warm."""


def checked(result, what):
    if result in (-1, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), what)
    return result


def check_may_ask(path):
    """Since Linux 5.2, mincore says of the files of others that all pages are cached, whatever is. Root may ask even where
    the filesystem is mounted read-only."""
    user = os.geteuid()
    if user not in (0, os.stat(path).st_uid) and not os.access(path, os.W_OK, effective_ids=True):
        raise Unprepared(f"{path}: the system tells only who owns a file, or may write to it, what of it is cached, so "
                         "neither cold nor warm can be checked: use a copy of your own")


def resident_share(files):
    """The share of the files' pages that is in the page cache."""
    for path in files:
        check_may_ask(path)
    resident = total = 0
    for path in files:
        size = path.stat().st_size
        with open(path, "rb") as file:
            at = checked(LIBC.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0), "mmap")
        pages = -(-size // mmap.PAGESIZE)
        seen = ctypes.create_string_buffer(pages)
        checked(LIBC.mincore(at, size, seen), "mincore")
        checked(LIBC.munmap(at, size), "munmap")
        resident += sum(byte & 1 for byte in seen.raw[:pages])
        total += pages
    return resident / total


def read_plainly(files):
    buffer = bytearray(BUFFER_BYTES)
    for path in files:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def put_out(files):
    for path in files:
        with open(path, "rb") as file:
            os.fsync(file)
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


SHARES = {"cold": 0, "warm": 1}  # of the pages of files in these states that are in the page cache


def touch_memory(size):
    """Writes that much memory and gives it back: the host of a virtual machine takes free memory, and what it has taken
    is slow to use for whoever comes next. It takes whole huge pages, so these are written; whoever uses small pages
    gets parts of them."""
    block = bytes(BUFFER_BYTES)
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        for at in range(0, size, BUFFER_BYTES):
            memory.write(block[:size - at])


def mapped(path):
    """All of its pages, which stay in the page cache as long as there is memory."""
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE, prot=mmap.PROT_READ)


class Preparer:
    """Prepares one run after another.

    Files that it has made warm stay so until the next run is prepared, because they are mapped until then: kernels that
    reclaim memory early (DAMON) drop from the page cache, within seconds, what no process has mapped.
    """

    def __init__(self):
        self.mappings = []

    def prepare(self, files, state, dtype="keep"):
        """Makes the files cold or warm, then writes as much memory as a load of them into `dtype` takes. That comes
        last, because the host takes memory back within seconds."""
        copies = 3 if dtype == "f32" else 2  # one more, where two bytes become four
        for _ in range(5):  # the kernel may drop a few pages meanwhile
            self.make(files, state)
            touch_memory(copies * sum(path.stat().st_size for path in files))
            share = resident_share(files)
            if share == SHARES[state]:
                return
        hint = ": a filesystem in memory, such as tmpfs, keeps all of them" if state == "cold" and share == 1 else ""
        raise Unprepared(f"not {state}: the page cache has {share:.1%} of the files{hint}")

    def release(self):
        """From now on, nothing keeps warm files warm; what is mapped cannot be made cold."""
        self.mappings.clear()

    def make(self, files, state):
        self.release()
        if state == "cold":
            put_out(files)
        else:
            read_plainly(files)
            self.mappings += map(mapped, files)


def main():
    state, dtype, *files = sys.argv[1:]
    try:
        Preparer().prepare(list(map(pathlib.Path, files)), state, dtype)
    except Unprepared as error:
        sys.exit(f"{os.uname().nodename}: {error}")


if __name__ == "__main__":
    main()
