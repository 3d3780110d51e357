"""An HTTP proxy before an S3 server that loses answers on purpose.

A test plans faults of the next writes; all other requests pass. Host and signature pass
unchanged, so the real server behind checks and decides as always.

    with S3Proxy(config) as proxy:
        proxy.plan(stored_but_dropped)
        await Bucket(proxy.config).create(...)
"""

from __future__ import annotations

import http.client
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Self, cast
from urllib.parse import urlsplit

from jobwire.objects import BucketConfig


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer to the client."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


Forward = Callable[[], Reply]
# The result of one write: its answer, or None for a broken connection.
Mishap = Callable[[Forward], Reply | None]


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as it arrived; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]


_HOP_BY_HOP: Final = frozenset({"connection", "transfer-encoding", "content-length"})


def stored_but_dropped(forward: Forward) -> Reply | None:
    """The server stores it; the connection breaks before the answer."""
    forward()
    return None


def stored_but_500(forward: Forward) -> Reply | None:
    """The server stores it; a proxy answers that it failed."""
    forward()
    return Reply(500, body=b"<Error><Code>InternalError</Code></Error>")


def sent_twice(forward: Forward) -> Reply | None:
    """A proxy sends the request twice and passes on the second answer."""
    forward()
    return forward()


def dropped(_forward: Forward) -> Reply | None:
    """The request never reaches the server."""
    return None


def slow_down(_forward: Forward) -> Reply | None:
    """The server answers that it is busy."""
    return Reply(503, body=b"<Error><Code>SlowDown</Code></Error>")


def conflict(_forward: Forward) -> Reply | None:
    """The server answers that two writes conflicted; neither is stored."""
    return Reply(409, body=b"<Error><Code>ConditionalRequestConflict</Code></Error>")


class S3Proxy:
    """Listens on a free port of loopback and forwards to the server of `upstream`."""

    def __init__(self, upstream: BucketConfig) -> None:
        self._server = _Server(upstream.endpoint)
        self._thread = threading.Thread(
            target=lambda: self._server.serve_forever(poll_interval=0.02), daemon=True
        )
        endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self.config = replace(upstream, endpoint=endpoint)

    def plan(self, *mishaps: Mishap) -> None:
        """Set what happens to the next writes, one after the other."""
        self._server.mishaps.extend(mishaps)

    def always(self, choose: Callable[[int], Mishap | None]) -> None:
        """Set what happens to each write, by its number."""
        self._server.choose = choose

    def every(self, choose: Callable[[Seen], Mishap | None]) -> None:
        """Set what happens to each request, including reads, that has no other plan."""
        self._server.choose_any = choose

    @property
    def requests(self) -> list[Seen]:
        """Every request that has arrived."""
        return self._server.requests

    @property
    def writes(self) -> int:
        """How many writes have arrived."""
        return self._server.writes

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(30)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = urlsplit(upstream).netloc
        self.mishaps: deque[Mishap] = deque()
        self.choose: Callable[[int], Mishap | None] = lambda _number: None
        self.choose_any: Callable[[Seen], Mishap | None] = lambda _seen: None
        self.requests: list[Seen] = []
        self.writes = 0
        self._lock = threading.Lock()

    def next_mishap(self) -> Mishap | None:
        with self._lock:
            self.writes += 1
            return self.mishaps.popleft() if self.mishaps else self.choose(self.writes)

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # disconnected clients are expected in these tests


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        server = cast("_Server", self.server)
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size)

        def forward() -> Reply:
            upstream = http.client.HTTPConnection(server.upstream, timeout=60)
            try:
                upstream.request(self.command, self.path, body, dict(self.headers.items()))
                answer = upstream.getresponse()
                headers = tuple(answer.getheaders())
                return Reply(answer.status, headers, answer.read())
            finally:
                upstream.close()

        seen = Seen(self.command, self.path, {name.lower(): v for name, v in self.headers.items()})
        server.requests.append(seen)
        mishap = server.next_mishap() if self.command == "PUT" else None
        mishap = mishap or server.choose_any(seen)
        reply = mishap(forward) if mishap else forward()
        if reply is None:
            self.close_connection = True
            return
        self.send_response_only(reply.status)
        for name, value in reply.headers:
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass
