"""Connections to one HTTP server that are used again; for threads. Used by `signed.py`.

The standard library's client, because cloud functions import this at each cold start. A server may
close an idle connection at any time, also while a request is on its way to it: a request that a
used connection loses is sent again on a new one, so every request must be safe to repeat.
"""

from __future__ import annotations

import http.client
import select
import ssl
import time
import weakref
from collections import deque
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

_MAX_IDLE: Final = 8
_MAX_IDLE_S: Final = 20.0

Idle = deque[tuple[http.client.HTTPConnection, float]]


class ConnectionPool:
    """Opens as many connections as there are calls at a time, and keeps a few of them."""

    def __init__(self, endpoint: str, timeout_s: float) -> None:
        parts = urlsplit(endpoint)
        self._host = parts.netloc
        self._tls = parts.scheme == "https"
        self._context: ssl.SSLContext | None = None
        self._timeout_s = timeout_s
        # With the time of its last use; the latest one is last. A deque needs no lock.
        self._idle: Idle = deque()
        weakref.finalize(self, _close_all, self._idle)

    def exchange(
        self, method: str, target: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """Send a request; its response, and the content of it. Blocks."""
        used = self._take()
        if used is not None:
            try:
                return self._send(used, method, target, body, headers)
            except (OSError, http.client.HTTPException) as error:
                # The others are likely to have ended with it.
                _close_all(self._idle)
                if isinstance(error, TimeoutError):
                    raise
        return self._send(self._connect(), method, target, body, headers)

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        body: bytes,
        headers: Mapping[str, str],
    ) -> tuple[http.client.HTTPResponse, bytes]:
        kept = False
        try:
            connection.request(method, target, body=body or None, headers=dict(headers))
            response = connection.getresponse()
            content = response.read()
            kept = not response.will_close and len(self._idle) < _MAX_IDLE
        finally:
            if kept:
                self._idle.append((connection, time.monotonic()))
            else:
                connection.close()
        return response, content

    def _take(self) -> http.client.HTTPConnection | None:
        """An idle connection that the server has not closed, if there is one."""
        while self._idle:
            try:
                connection, since_s = self._idle.pop()
            except IndexError:  # another thread was faster
                return None
            if time.monotonic() - since_s < _MAX_IDLE_S and not _has_input(connection):
                return connection
            connection.close()
        return None

    def _connect(self) -> http.client.HTTPConnection:
        if not self._tls:
            return http.client.HTTPConnection(self._host, timeout=self._timeout_s)
        # Once: it reads all certificates of the system.
        self._context = self._context or ssl.create_default_context()
        return http.client.HTTPSConnection(
            self._host, timeout=self._timeout_s, context=self._context
        )


def _has_input(connection: http.client.HTTPConnection) -> bool:
    """Whether an idle connection has ended, or has bytes that belong to no request."""
    if connection.sock is None:
        return True
    waiting = select.poll()
    waiting.register(connection.sock, select.POLLIN)
    return bool(waiting.poll(0))


def _close_all(idle: Idle) -> None:
    while idle:
        try:
            idle.pop()[0].close()
        except IndexError:  # another thread was faster
            return
