"""A worker's own HTTP port (`worker.metrics_port`): /livez, /readyz and /metrics.

Started by `programs` with a listening socket. It answers from threads, so that a worker whose event
loop is blocked is still seen; it only reads, and needs no key.
"""

import contextlib
import json
import socket
import threading
from collections.abc import Generator, Iterable
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from jobwire.worker.worker import Worker

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_REQUEST_TIMEOUT_S: Final = 10.0


def not_alive(worker: Worker, max_stall_s: float) -> str:
    """Why the worker is not alive; empty if it is. It is while its event loop runs."""
    stalled_s = worker.stalled_s
    return (
        f"the event loop has been blocked for {stalled_s:.0f} s" if stalled_s > max_stall_s else ""
    )


def health_app(
    worker: Worker, metrics: "WSGIApplication", *, max_stall_s: float
) -> "WSGIApplication":
    """Answers the three paths; 404 elsewhere."""

    def app(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        fault = not_alive(worker, max_stall_s)
        match environ["PATH_INFO"]:
            case "/metrics":
                return metrics(environ, start_response)
            case "/livez":
                return _reply(start_response, "alive", fault)
            case "/readyz":
                return _reply(start_response, "ready", fault or worker.not_ready())
            case _:
                return _send(start_response, HTTPStatus.NOT_FOUND, {"status": "not_found"})

    return app


def _reply(start_response: "StartResponse", state: str, fault: str) -> Iterable[bytes]:
    if fault:
        body = {"status": f"not_{state}", "detail": fault}
        return _send(start_response, HTTPStatus.SERVICE_UNAVAILABLE, body)
    return _send(start_response, HTTPStatus.OK, {"status": state})


def _send(
    start_response: "StartResponse", status: HTTPStatus, body: dict[str, str]
) -> Iterable[bytes]:
    text = json.dumps(body).encode()
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(text)))]
    start_response(f"{status.value} {status.phrase}", headers)
    return [text]


class _Handler(WSGIRequestHandler):
    timeout = _REQUEST_TIMEOUT_S  # a client that sends nothing does not hold a thread

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base class
        """No line per request."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, listening: socket.socket, app: "WSGIApplication") -> None:
        host, port = listening.getsockname()[:2]
        super().__init__((host, port), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        # What `server_bind` sets, without its look-up of the host's name.
        self.server_name, self.server_port = host, port
        self.setup_environ()
        self.set_app(app)


@contextlib.contextmanager
def serving(listening: socket.socket, app: "WSGIApplication") -> Generator[None]:
    """Answer requests until the context ends; then the socket is closed."""
    server = _Server(listening, app)
    thread = threading.Thread(target=server.serve_forever, name="health", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
