"""A blocking socket for threads: no event loop, one command at a time.

Used where work must continue while the event loop is blocked, such as lease renewal. It connects
on first use and again after an error; it sends no command twice, except one that a node of a
Cluster has refused because another node has the slot. One thread at a time uses it; `close` may be
called from any thread.
"""

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, cast

import hiredis

from jobwire.valkey.config import Config
from jobwire.valkey.dial import backoff_s, check_greeting, check_name, greeting, reason, refusal
from jobwire.valkey.dialer import find_server
from jobwire.valkey.errors import ConnectionLost, NotSent, ServerError, Unavailable
from jobwire.valkey.resp_socket import (
    INCOMPLETE,
    NOT_PRIMARY,
    REDIRECTS,
    Arg,
    Reply,
    new_reader,
    pack,
)
from jobwire.valkey.scripts import Script

_CHUNK: Final = 65_536
_NOT_PRIMARY: Final = NOT_PRIMARY | {"NOREPLICAS"}
"""A primary that was replaced while it was paused has lost its replicas, and may not know for
seconds that it is one itself."""


class BlockingSocket:
    def __init__(self, config: Config, name: str, *, timeout_s: float) -> None:
        """`timeout_s` limits a whole call, including connecting."""
        self._config = config
        self._topology = config.topology if config.nodes else None
        self._name = check_name(name)
        self._timeout_s = timeout_s
        self._sock: socket.socket | None = None
        self._at = config.address
        """The server of the last dial."""
        self._reader = new_reader()
        self._in_use = threading.Lock()
        self._closed = False

    def call(self, *args: Arg) -> Reply:
        """Send a command and wait for its reply.

        Raises Unavailable if no connection can be made, ConnectionLost if the reply is lost,
        ServerError if the reply is an error.
        """
        try:
            with self._in_use:
                return self._call(args)
        finally:
            if self._closed:
                self.close()

    def _call(self, args: tuple[Arg, ...]) -> Reply:
        deadline_s = time.monotonic() + self._timeout_s
        packed, attempts = pack(args), 0
        while True:
            try:
                reply = self._send(packed, deadline_s)
            except Unavailable:
                if not self._may_repeat(attempts, deadline_s):
                    raise
            else:
                if not isinstance(reply, ServerError):
                    return reply
                if reply.code in (REDIRECTS if self._topology else _NOT_PRIMARY):
                    self._drop()
                if reply.code not in REDIRECTS or not self._may_repeat(attempts, deadline_s, reply):
                    raise reply
            attempts += 1

    def _send(self, packed: bytes, deadline_s: float) -> Reply:
        if self._sock is None:
            self._dial(deadline_s)
        try:
            return self._exchange(packed, deadline_s)
        except (OSError, hiredis.ProtocolError) as error:
            self._drop()
            self._suspect()
            raise ConnectionLost(
                f"connection to {self._config.address} lost ({error}); the command may have run"
            ) from error

    def _may_repeat(
        self, attempts: int, deadline_s: float, error: ServerError | None = None
    ) -> bool:
        """On a Cluster, wait for another map; nothing ran. False if there is no time left."""
        if self._topology is None or self._closed:
            return False
        self._suspect(error)
        pause_s = backoff_s(attempts) if attempts else 0.0
        if time.monotonic() + pause_s >= deadline_s:
            return False
        time.sleep(pause_s)
        return True

    def _suspect(self, error: ServerError | None = None) -> None:
        if self._topology is not None:
            self._topology.suspect(self._config.slot, self._at, error)

    def run(self, script: Script, keys: Sequence[Arg] = (), args: Sequence[Arg] = ()) -> Reply:
        """Run a script by its hash; by its source if the server does not have it loaded."""
        try:
            return self.call("EVALSHA", script.sha, len(keys), *keys, *args)
        except ServerError as error:
            if error.code != "NOSCRIPT":
                raise
        return self.call("EVAL", script.source, len(keys), *keys, *args)

    def close(self) -> None:
        """Close for good; a call that is waiting in its thread ends with ConnectionLost."""
        self._closed = True
        if self._in_use.acquire(blocking=False):
            self._drop()
            self._in_use.release()
        elif (sock := self._sock) is not None:
            # It is closed at the end of that call. Else its number could be given to another file,
            # from which the thread, which has not noticed yet, would read.
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _dial(self, deadline_s: float) -> None:
        if self._closed:
            raise NotSent("the connection was closed")
        config = self._find(deadline_s)
        self._at = config.address
        self._reader = new_reader()
        try:
            self._sock = _connect(config, max(0.001, deadline_s - time.monotonic()))
            hello = self._exchange(pack(greeting(config, self._name)), deadline_s)
            if isinstance(hello, ServerError):
                raise refusal(config, hello)
            check_greeting(config, hello)
            if config.db:
                selected = self._exchange(pack(("SELECT", config.db)), deadline_s)
                if isinstance(selected, ServerError):
                    raise refusal(config, selected)
        except (OSError, hiredis.ProtocolError) as error:
            self._drop()
            raise Unavailable(f"cannot connect to {config.address}: {reason(error)}") from error
        except BaseException:
            self._drop()
            raise

    def _find(self, deadline_s: float) -> Config:
        """How to reach the server; with Sentinel or on a Cluster, the right one of now."""
        config = self._config
        if not config.sentinels and not config.nodes:
            return config
        left_s = max(0.001, deadline_s - time.monotonic())
        return asyncio.run(find_server(replace(config, dial_timeout_s=left_s)))

    def _exchange(self, packed: bytes, deadline_s: float) -> Reply:
        sock = self._sock
        assert sock is not None
        sock.settimeout(max(0.001, deadline_s - time.monotonic()))
        sock.sendall(packed)
        while (reply := cast(object, self._reader.gets())) is INCOMPLETE:
            sock.settimeout(max(0.001, deadline_s - time.monotonic()))
            data = sock.recv(_CHUNK)
            if not data:
                raise ConnectionResetError("the server closed the connection")
            self._reader.feed(data)
        return cast(Reply, reply)

    def _drop(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()


def _connect(config: Config, timeout_s: float) -> socket.socket:
    endpoint = config.endpoint
    if isinstance(endpoint, str):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(timeout_s)
        try:
            sock.connect(endpoint)
        except OSError:
            sock.close()
            raise
        return sock
    sock = socket.create_connection(endpoint, timeout=timeout_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not config.tls:
        return sock
    context = config.tls_context or ssl.create_default_context()
    try:
        return context.wrap_socket(sock, server_hostname=endpoint[0])
    except OSError:
        sock.close()
        raise
