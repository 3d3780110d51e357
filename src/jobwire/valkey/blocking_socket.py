"""A blocking socket for threads: no event loop, one command at a time.

Used where work must continue while the event loop is blocked, such as lease renewal. It connects
on first use and again after an error; it never sends a command twice. One thread uses it;
`close` may be called from any thread.
"""

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, cast

import hiredis

from jobwire.valkey.config import Config
from jobwire.valkey.dial import check_greeting, check_name, greeting, refusal
from jobwire.valkey.dialer import find_primary
from jobwire.valkey.errors import ConnectionLost, NotSent, ServerError, Unavailable
from jobwire.valkey.resp_socket import INCOMPLETE, NOT_PRIMARY, Arg, Reply, new_reader, pack
from jobwire.valkey.scripts import Script

_CHUNK: Final = 65_536


class BlockingSocket:
    def __init__(self, config: Config, name: str, *, timeout_s: float) -> None:
        """`timeout_s` limits a whole call, including connecting."""
        self._config = config
        self._name = check_name(name)
        self._timeout_s = timeout_s
        self._sock: socket.socket | None = None
        self._reader = new_reader()
        self._closed = False

    def call(self, *args: Arg) -> Reply:
        """Send a command and wait for its reply.

        Raises Unavailable if no connection can be made, ConnectionLost if the reply is lost,
        ServerError if the reply is an error.
        """
        deadline_s = time.monotonic() + self._timeout_s
        packed = pack(args)
        if self._sock is None:
            self._dial(deadline_s)
        try:
            reply = self._exchange(packed, deadline_s)
        except (OSError, hiredis.ProtocolError) as error:
            self._drop()
            raise ConnectionLost(
                f"connection to {self._config.address} lost ({error}); the command may have run"
            ) from error
        if isinstance(reply, ServerError):
            if reply.code in NOT_PRIMARY:
                self._drop()
            raise reply
        return reply

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
        sock = self._sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _dial(self, deadline_s: float) -> None:
        if self._closed:
            raise NotSent("the connection was closed")
        config = self._find(deadline_s)
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
            raise Unavailable(f"cannot connect to {config.address}: {error}") from error
        except BaseException:
            self._drop()
            raise

    def _find(self, deadline_s: float) -> Config:
        """How to reach the server; with Sentinel, the server that is the primary now."""
        config = self._config
        if not config.sentinels:
            return config
        left_s = max(0.001, deadline_s - time.monotonic())
        return asyncio.run(find_primary(replace(config, dial_timeout_s=left_s)))

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
