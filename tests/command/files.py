"""What tests must know of the files of a model."""

import contextlib
import mmap
import os


def reads_directly(directory):
    """Whether the filesystem supports O_DIRECT."""
    file = min(directory.glob("*.safetensors"))
    try:
        os.close(os.open(file, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    return True


@contextlib.contextmanager
def kept_in_page_cache(directory):
    """All files of the model are read into the page cache and stay there. By themselves they might not: kernels that
    reclaim memory early (DAMON) drop, within seconds, what no process has mapped."""
    with contextlib.ExitStack() as mappings:
        for path in directory.glob("*.safetensors"):
            with open(path, "rb") as file:
                mappings.enter_context(mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE,
                                                 prot=mmap.PROT_READ))  # fmt: skip
        yield
