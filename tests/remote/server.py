"""A web server of a directory, with ranges and entity tags, that fails as it is told to.

A fault is a function of a `Request` that returns None, to serve it as it should be, or one of the faults below, such as
`Answer(503)`. All requests are noted.
"""

import hashlib
import http.server
import random
import re
import socket
import ssl
import struct
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Request:
    method: str
    path: str  # within the directory, without the leading slash
    range: tuple  # first, last; None if it has none
    headers: dict  # names in lower case
    number: int  # of all, from 0


@dataclass(frozen=True)
class Answer:
    """This status instead."""

    status: int
    headers: dict = field(default_factory=dict)
    body: bytes = b"no"


@dataclass(frozen=True)
class Cut:
    """The connection ends after so much of the body."""

    share: float = 0.5
    reset: bool = False


@dataclass(frozen=True)
class Slow:
    """The body comes after so long."""

    seconds: float


@dataclass(frozen=True)
class Trickle:
    """The body comes byte by byte, 50 in a second."""


@dataclass(frozen=True)
class Changed:
    """As served, but with these headers (without those that are None), and other bytes at the end."""

    headers: dict = field(default_factory=dict)
    extra: bytes = b""


WHOLE = object()  # ignores the range


def free_port(beside=0):
    """One that no connection gets by chance; with the one so much higher, if that is asked for."""
    while True:
        port = random.randrange(15_000, 22_000)
        try:
            for each in {port, port + beside}:
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", each))
        except OSError:
            continue
        return port


class WebServer:
    """`with WebServer(directory) as server:` serves at `server.url`; whatever server a proxy's client asks for, too.

    certificate: file with that and its key, for TLS
    """

    def __init__(self, directory, fault=lambda request: None, port=0, certificate=None):
        self.directory = Path(directory)
        self.fault = fault
        self.requests = []
        self.lock = threading.Lock()
        handler = type("Bound", (_Handler,), {"owner": self})
        self._server = _Server(("127.0.0.1", port), handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self.port}"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def note(self, request):
        with self.lock:
            self.requests.append(request)

    def ranges_of(self, name):
        """The requests for an object, without those for its beginning."""
        return [each for each in self.requests if each.path == name and each.range and each.range[0] > 0]


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        """Clients may hang up."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_GET(self):  # noqa: N802
        path = re.sub("^http://[^/]*", "", self.path).split("?")[0].lstrip("/")
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, path, wanted and (int(wanted[1]), int(wanted[2])), headers,
                          len(self.owner.requests))  # fmt: skip
        self.owner.note(request)
        fault = self.owner.fault(request)
        if isinstance(fault, Answer):
            return self._send(fault.status, fault.headers, fault.body)
        file = self.owner.directory / path
        if not file.is_file():
            return self._send(404, {}, b"not found")
        self._serve(file, None if fault is WHOLE else request.range, fault)

    do_HEAD = do_PUT = do_GET  # noqa: N815

    def do_POST(self):  # noqa: N802
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()

    def _serve(self, file, wanted, fault):
        size = file.stat().st_size
        tag = '"' + hashlib.md5(f"{file.resolve()}{file.stat().st_mtime_ns}{size}".encode()).hexdigest() + '"'
        headers = {"ETag": tag, "Accept-Ranges": "bytes"}
        if self.headers.get("If-Match", tag) != tag:
            return self._send(412, {}, b"")
        first, last = wanted or (0, size - 1)
        if wanted and first >= size:
            return self._send(416, {"Content-Range": f"bytes */{size}"}, b"")
        last = min(last, size - 1)
        with open(file, "rb") as stream:
            stream.seek(first)
            body = stream.read(last - first + 1)
        if wanted:
            headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        if isinstance(fault, Slow):
            time.sleep(fault.seconds)
        if isinstance(fault, Changed):
            headers.update(fault.headers)
            body += fault.extra
        self._send(206 if wanted else 200, headers, body, fault)

    def _send(self, status, headers, body, fault=None):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if isinstance(fault, Cut):
            body = body[: int(len(body) * fault.share)]
        try:
            for byte in body if isinstance(fault, Trickle) else ():
                self.wfile.write(bytes([byte]))
                time.sleep(0.02)
            self.wfile.write(body)
        except OSError:
            return
        if isinstance(fault, Cut):
            self._hang_up(fault.reset)

    def _hang_up(self, reset):
        self.close_connection = True
        if reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()


def sometimes(share, fault, seed=0):
    """The fault in so large a share of the requests."""
    dice = random.Random(seed)
    return lambda request: fault if dice.random() < share else None
