"""Runs the command as plain processes that find each other by themselves, as torchrun starts them.

Environment, beyond that of job.py: RANK_WRAPPER, a program that becomes the command; optional.
"""

import os
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager

import job

TIMEOUT_SECONDS = 100


@contextmanager
def tcp_address():
    """Where ranks can meet. The port is reserved: bound, so that nobody else is given it, and not
    listened at, so that rank 0 can."""
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        yield f"tcp://127.0.0.1:{reserved.getsockname()[1]}"


def run(ranks, address, *arguments, faults=(), absent=(), lost=(), environment=None, own=None):
    """{rank: Result} of all ranks but those `absent`, which are not started. Ranks that get `lost`
    are not waited for, but killed when the others have ended. `environment` overrides what all
    ranks are told; `own`, by rank, what one of them is told."""
    own = own or {}
    command = [*os.environ.get("RANK_WRAPPER", "").split(), os.environ["SAFESHUFFLE"]]
    command += map(str, arguments)
    common = job.environment_with(faults) | {"WORLD_SIZE": str(ranks)}
    common |= {"SAFESHUFFLE_RENDEZVOUS": address} | (environment or {})
    with ExitStack() as stack:
        started = {
            rank: stack.enter_context(Rank(command, place(rank) | common | own.get(rank, {})))
            for rank in range(ranks)
            if rank not in absent
        }
        for rank, process in started.items():
            if rank not in lost:
                process.wait()
        return {rank: process.end() for rank, process in started.items()}


def place(rank):
    return {"RANK": str(rank), "LOCAL_RANK": str(rank)}


class Rank:
    """One process; killed in the end, if it is still there."""

    def __init__(self, command, environment):
        self.output, self.errors = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        self.begin = time.monotonic()
        self.process = subprocess.Popen(
            command, env=os.environ | environment, stdout=self.output, stderr=self.errors
        )
        self.seconds = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()
        self.output.close()
        self.errors.close()

    def wait(self):
        self.process.wait(TIMEOUT_SECONDS)
        self.seconds = time.monotonic() - self.begin

    def end(self):
        self.process.kill()
        code = self.process.wait()
        return job.Result(code, text_of(self.output), text_of(self.errors), self.seconds)


def text_of(file):
    file.seek(0)
    return file.read()
