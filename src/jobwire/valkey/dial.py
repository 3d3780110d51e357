"""Connects a socket to one address, sends HELLO and checks what answers.

Called by the dialer and for sentinels. One attempt per call: retries are the caller's task. Every
failure is AuthFailed, Unavailable or Unsupported.
"""

import asyncio
import random
import re
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Final

import hiredis

from jobwire.valkey.config import Config
from jobwire.valkey.errors import (
    AuthFailed,
    ConfigError,
    ConnectionLost,
    ServerError,
    Unavailable,
    Unsupported,
    ValkeyError,
)
from jobwire.valkey.resp_socket import Arg, Push, Reply, RespSocket
from jobwire.valkey.write_refusal import answered

OLDEST_VERSION: Final = 7
_REFUSED: Final = frozenset({"WRONGPASS", "NOAUTH", "NOPERM"})
_NAME: Final = re.compile(r"[!-~]{1,512}")
_IDLE_S: Final = 15
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0


class Loading(Unavailable):
    """The server is loading its data from disk."""


def backoff_s(attempts: int) -> float:
    """The delay before the next attempt: exponential, with full jitter."""
    return random.uniform(0, min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(attempts, 10)))  # noqa: S311


def check_name(name: str) -> str:
    """Reject a client name that CLIENT SETNAME would refuse."""
    if not _NAME.fullmatch(name):
        raise ConfigError("name", f"must be 1-512 printable characters without spaces: {name!r}")
    return name


def greeting(config: Config, name: str) -> tuple[Arg, ...]:
    """The HELLO command with protocol, credentials and client name."""
    auth = (
        () if config.password is None else ("AUTH", config.username or "default", config.password)
    )
    return ("HELLO", 3, *auth, "SETNAME", name)


def check_greeting(config: Config, reply: Reply, *, sentinel: bool = False) -> int:
    """Reject a server that is too old or not the one that is meant; returns the client id."""
    if not isinstance(reply, dict):
        raise Unsupported(f"{config.address} answers, but not as a Valkey or Redis server")
    if (reply.get("mode") == "sentinel") != sentinel:
        raise Unsupported(
            f"{config.address} is not a sentinel; name the sentinels in valkey+sentinel://"
            if sentinel
            else f"{config.address} is a sentinel; use valkey+sentinel://{config.address}/<name>"
        )
    if config.primary and reply.get("role") != "master":
        raise Unavailable(f"{config.address} is not the primary {config.primary!r}")
    version = str(reply.get("version", ""))
    major = version.partition(".")[0]
    if not major.isdigit() or int(major) < OLDEST_VERSION:
        raise Unsupported(
            f"{config.address} is {reply.get('server')} {version};"
            f" jobwire needs Valkey or Redis {OLDEST_VERSION} or newer"
        )
    client_id = reply.get("id")
    if not isinstance(client_id, int):
        raise Unsupported(f"{config.address} answers HELLO without a client id")
    return client_id


def refusal(config: Config, error: ServerError) -> ValkeyError:
    """The exception for an error reply to HELLO or to a setup command."""
    where = config.address
    if error.code in _REFUSED:
        if config.password is None:
            return AuthFailed(f"{where} requires a password, and none is set")
        username = config.username or "default"
        return AuthFailed(f"{where} refuses user {username!r}: wrong name or password")
    if error.code == "LOADING":
        return Loading(f"{where} is still loading its data")
    if is_without_lua(error):
        return without_lua(config)
    if error.code == "NOPROTO" or "unknown command" in str(error):
        return Unsupported(
            f"{where} is too old for protocol 3; jobwire needs Valkey or Redis"
            f" {OLDEST_VERSION} or newer"
        )
    return Unavailable(f"{where} refused the connection: {error}")


def is_without_lua(error: ServerError) -> bool:
    """Valkey has Lua as a module from 9.1 on, which can be left out."""
    return "scripting engine" in str(error)


def without_lua(config: Config) -> Unsupported:
    return Unsupported(
        f"{config.address} has no Lua, in which every step of a job is written;"
        " load its module `lua`"
    )


async def dial(
    config: Config,
    name: str,
    setup: Sequence[tuple[Arg, ...]] = (),
    on_push: Callable[[Push], None] | None = None,
    *,
    sentinel: bool = False,
) -> tuple[RespSocket, int]:
    """Connect to the server at `config.address`, run the `setup` commands; returns the socket and
    its client id. The name is resolved anew each time: behind it may be another server."""
    sock: RespSocket | None = None
    try:
        async with asyncio.timeout(config.dial_timeout_s):
            sock = await _connect(config)
            if on_push is not None:
                sock.on_push = on_push
            hello = await sock.call(*greeting(config, name))
            client_id = check_greeting(config, hello, sentinel=sentinel)
            select = [("SELECT", config.db)] if config.db else []
            # A server that is loading answers HELLO and refuses PING.
            ping = answered(sock.call("PING"))
            await asyncio.gather(ping, *(sock.call(*command) for command in (*select, *setup)))
    except BaseException as error:
        if sock is not None:
            await sock.close("HELLO failed")
        if isinstance(error, ServerError):
            raise refusal(config, error) from error
        if isinstance(error, ConnectionLost):
            raise _no_server(config, error.__cause__) from error
        if isinstance(error, TimeoutError):
            raise Unavailable(
                f"no answer from {config.address} within {config.dial_timeout_s:g} s"
            ) from error
        if isinstance(error, OSError):
            raise Unavailable(f"cannot connect to {config.address}: {reason(error)}") from error
        raise
    return sock, client_id


async def _connect(config: Config) -> RespSocket:
    loop = asyncio.get_running_loop()
    sock = RespSocket(config.address, config.read_timeout_s, config.write_timeout_s)
    sock.max_reply_bytes = config.max_reply_bytes
    context = (config.tls_context or ssl.create_default_context()) if config.tls else None
    endpoint = config.endpoint
    if isinstance(endpoint, str):
        await loop.create_unix_connection(lambda: sock, endpoint)
        return sock
    host, port = endpoint
    transport, _ = await loop.create_connection(lambda: sock, host, port, ssl=context)
    _keep_alive(transport.get_extra_info("socket"))
    return sock


def _keep_alive(sock: socket.socket) -> None:
    """Let the kernel detect a dead peer while no command waits for a reply."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", _IDLE_S), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _no_server(config: Config, cause: BaseException | None) -> Unavailable:
    if isinstance(cause, hiredis.ProtocolError):
        return Unsupported(f"{config.address} answers, but not as a Valkey or Redis server")
    return Unavailable(f"{config.address} closed the connection during HELLO: {cause}")


def reason(error: Exception) -> str:
    """Why a connection failed, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if isinstance(error, ConnectionRefusedError):  # asyncio's own words have the address again
        return "Connection refused"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
