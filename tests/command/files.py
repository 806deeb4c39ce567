"""What tests must know of the files of a model."""

import os


def reads_directly(directory):
    """Whether the filesystem supports O_DIRECT."""
    file = min(directory.glob("*.safetensors"))
    try:
        os.close(os.open(file, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    return True
