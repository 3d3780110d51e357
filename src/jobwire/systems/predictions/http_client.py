"""One bounded HTTP exchange over the standard library: size cap, time cap, no redirects.

Called by the providers, the Bot API and `fetch.py`. Blocking; callers use `in_background` or
`asyncio.to_thread`. The standard library because a cloud function imports this at every cold start.
No proxy of the environment is used, and nothing is repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import mmap
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import SplitResult, urlsplit

_CHUNK: Final = 64 * 1024
_UNKNOWN_LENGTH: Final = 1024 * 1024  # of a body without one, until it grows larger
_CONNECT_S: Final = 5.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """No usable answer: the request may have been carried out, unless `not_done`."""

    reason: str
    too_large: bool = False
    """The body grew above the limit and was cut off."""
    not_done: bool = False
    """The request was not carried out: there was no connection, or the server said so."""


_BROKEN: Final = NoAnswer("the connection broke inside the body")


@dataclass(frozen=True, slots=True)
class Response:
    """Header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Download:
    """A body in one buffer of its own; of an answer other than 200 it is empty."""

    status: int
    headers: Mapping[str, str]
    body: memoryview


@dataclass(frozen=True, slots=True)
class NoRoom:
    """So many bytes must be reserved before the body is read."""

    size: int


def exchange(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes | Sequence[bytes | memoryview] | None = None,
    timeout_s: float,
    max_bytes: int,
) -> Response | NoAnswer:
    """Send one request and read the answer whole. A body in parts is sent part by part."""
    sent = dict(headers or {})
    if body is not None and not isinstance(body, bytes):
        sent["content-length"] = str(sum(map(len, body)))

    def read(response: http.client.HTTPResponse, deadline: float) -> Response | NoAnswer:
        chunks: list[bytes] = []
        size = 0
        while chunk := response.read1(_CHUNK):
            size += len(chunk)
            if size > max_bytes:
                return _too_large(max_bytes)
            if time.monotonic() > deadline:
                return NoAnswer(f"no whole answer within {timeout_s:g} s")
            chunks.append(chunk)
        if response.length:
            return _BROKEN
        return Response(response.status, _headers(response), b"".join(chunks))

    return _send(method, url, sent, body, timeout_s, None, read)


def download(
    url: str,
    *,
    timeout_s: float,
    max_bytes: int,
    grow: Callable[[int], bool] = lambda _size: True,
    address: str | None = None,
) -> Download | NoRoom | NoAnswer:
    """Get a body into one buffer, whose memory is returned as soon as nobody has it.

    `grow` reserves memory and returns whether it could. `address` is where to connect in place of
    the URL's host, whose name stays in the Host header and in the TLS handshake.
    """

    def read(response: http.client.HTTPResponse, deadline: float) -> Download | NoRoom | NoAnswer:
        headers, length = _headers(response), response.length
        if response.status != 200:
            return Download(response.status, headers, memoryview(b""))
        if length is not None and length > max_bytes:
            return _too_large(max_bytes)
        allowed = _UNKNOWN_LENGTH if length is None else length
        if not grow(allowed):
            return NoRoom(allowed)
        # A mapping, not the heap: parts of a heap stay with the process when they are free again.
        buffer = memoryview(mmap.mmap(-1, max(max_bytes if length is None else length, 1)))
        size = 0
        while chunk := response.read1(_CHUNK):
            end = size + len(chunk)
            if end > max_bytes:
                return _too_large(max_bytes)
            if end > allowed:
                allowed = max_bytes
                if not grow(allowed):
                    return NoRoom(allowed)
            if time.monotonic() > deadline:
                return NoAnswer(f"no whole answer within {timeout_s:g} s")
            buffer[size:end] = chunk
            size = end
        return _BROKEN if response.length else Download(200, headers, buffer[:size])

    return _send("GET", url, {}, None, timeout_s, address, read)


def _send(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes | Sequence[bytes | memoryview] | None,
    timeout_s: float,
    address: str | None,
    read: Callable[[http.client.HTTPResponse, float], T],
) -> T | NoAnswer:
    parts = urlsplit(url)
    connection = _connection(parts, address, timeout_s)
    deadline = time.monotonic() + timeout_s
    # A socket timeout bounds one read; a server that sends single bytes would stay below it
    # forever.
    watchdog = threading.Timer(timeout_s, _abort, (connection,))
    watchdog.daemon = True
    watchdog.start()
    try:
        try:
            connection.connect()
        except (OSError, http.client.HTTPException, ValueError) as error:
            return NoAnswer(type(error).__name__, not_done=True)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        sent = {"accept-encoding": "identity", **headers}
        connection.request(method, target, body=body, headers=sent)
        return read(connection.getresponse(), deadline)
    except (OSError, http.client.HTTPException, ValueError) as error:
        # Only the kind of error: the text of some holds the URL, which may hold a token.
        return NoAnswer(type(error).__name__)
    finally:
        watchdog.cancel()
        connection.close()


def _headers(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


def _too_large(max_bytes: int) -> NoAnswer:
    return NoAnswer(f"the body has more than {max_bytes} bytes", too_large=True)


async def in_background(work: Callable[[], T]) -> T:
    """Run an exchange in a thread that a canceled caller leaves behind: it may take long.

    The loop's own threads are waited for when a program ends; this one is not.
    """
    result: Future[T] = Future()
    result.set_running_or_notify_cancel()  # a canceled caller does not cancel the thread's result

    def run() -> None:
        try:
            answer = work()
        except Exception as error:  # noqa: BLE001 - handed to the caller
            result.set_exception(error)
        else:
            result.set_result(answer)

    threading.Thread(target=run, name="predictions-http", daemon=True).start()
    return await asyncio.wrap_future(result)


def _connection(
    parts: SplitResult, address: str | None, timeout_s: float
) -> http.client.HTTPConnection:
    host = parts.hostname or ""
    if parts.scheme == "http":
        connection = http.client.HTTPConnection(host, parts.port, timeout=timeout_s)
    else:
        connection = http.client.HTTPSConnection(
            host, parts.port, timeout=timeout_s, context=ssl.create_default_context()
        )

    def connect(
        target: tuple[str, int], timeout: float | None, source: tuple[str, int] | None
    ) -> socket.socket:
        opened = socket.create_connection(
            (address or target[0], target[1]), min(timeout_s, _CONNECT_S), source
        )
        opened.settimeout(timeout)
        return opened

    # http.client opens its socket by this; TLS and the Host header keep the name of the URL.
    connection._create_connection = connect  # pyright: ignore[reportAttributeAccessIssue]  # noqa: SLF001
    return connection


def _abort(connection: http.client.HTTPConnection) -> None:
    if connection.sock is not None:
        with contextlib.suppress(OSError):  # already closed
            connection.sock.shutdown(socket.SHUT_RDWR)
