"""A small HTTP server on loopback whose calls have names, so that a test can plan their faults.

A fault is a function around the call: it may execute the call and lose the answer, or answer
itself. The kinds of `tests.support.s3_proxy` serve here too.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self, cast
from urllib.parse import parse_qsl, urlsplit

from tests.support.s3_proxy import Forward, Mishap, Reply


@dataclass(frozen=True, slots=True)
class Request:
    """Header names in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> dict[str, object]:
        return cast("dict[str, object]", json.loads(self.body))


# The name of the call, for plans and gates, and what answers it.
Call = tuple[str, Callable[[], Reply]]


def json_reply(status: int, body: object) -> Reply:
    return Reply(status, (("Content-Type", "application/json"),), json.dumps(body).encode())


def answers(status: int, body: object = None, **headers: str) -> Mishap:
    """A fault: the call does not happen, and this is the answer."""
    more = tuple((name.replace("_", "-"), value) for name, value in headers.items())

    def answer(_forward: Forward) -> Reply | None:
        reply = json_reply(status, body or {})
        return Reply(status, (*reply.headers, *more), reply.body)

    return answer


class Standin:
    """Listens on a free port of loopback; a subclass defines the calls."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._faults: dict[str, deque[Mishap]] = defaultdict(deque)
        self.gate: Callable[[str], bool] = lambda _name: False
        """Called after each call; True drops its answer."""
        self.calls: list[str] = []
        self._server = _Server(self._serve)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=lambda: self._server.serve_forever(poll_interval=0.02), daemon=True
        )

    def call(self, request: Request) -> Call:
        raise NotImplementedError

    def plan(self, name: str, *faults: Mishap) -> None:
        """Set the fate of the next calls of that name, one after the other."""
        self._faults[name].extend(faults)

    def _serve(self, request: Request) -> Reply | None:
        name, answer = self.call(request)
        self.calls.append(name)
        faults = self._faults[name]
        reply = faults.popleft()(answer) if faults else answer()
        return None if self.gate(name) else reply

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

    def __init__(self, serve: Callable[[Request], Reply | None]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.serve = serve

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # disconnected clients are expected in these tests


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        reply = cast("_Server", self.server).serve(
            Request(
                self.command,
                parts.path,
                dict(parse_qsl(parts.query)),
                {name.lower(): value for name, value in self.headers.items()},
                self.rfile.read(int(self.headers.get("Content-Length") or 0)),
            )
        )
        if reply is None:
            self.close_connection = True
            return
        self.send_response_only(reply.status)
        for name, value in reply.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)

    do_GET = do_PUT = do_POST = _serve

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass
