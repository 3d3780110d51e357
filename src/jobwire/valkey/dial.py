"""Opens a socket and greets the server, so that what comes out is ready for commands.

Called by the connection and by the sockets that block. One attempt a call: whether and when to
try again is the caller's affair. Every failure is one of three errors with one clear line.
"""

import asyncio
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

OLDEST_VERSION: Final = 7
_REFUSED: Final = frozenset({"WRONGPASS", "NOAUTH", "NOPERM"})
_NAME: Final = re.compile(r"[!-~]{1,100}")
_IDLE_S: Final = 15


class Loading(Unavailable):
    """The server is reading its data from disk; it will be there soon."""


def check_name(name: str) -> str:
    """A client name as CLIENT LIST can show it."""
    if not _NAME.fullmatch(name):
        raise ConfigError("name", f"must be 1-100 printable characters without spaces: {name!r}")
    return name


def greeting(config: Config, name: str) -> tuple[Arg, ...]:
    """The HELLO that names the protocol, the user and the client in one command."""
    auth = (
        () if config.password is None else ("AUTH", config.username or "default", config.password)
    )
    return ("HELLO", 3, *auth, "SETNAME", name)


def check_greeting(config: Config, reply: Reply) -> int:
    """Refuse a server that is too old; the connection's id on the server otherwise."""
    if not isinstance(reply, dict):
        raise Unsupported(f"{config.address} answers, but not as a Valkey or Redis server")
    version = str(reply.get("version", ""))
    major = version.partition(".")[0]
    if not major.isdigit() or int(major) < OLDEST_VERSION:
        raise Unsupported(
            f"{config.address} is {reply.get('server')} {version};"
            f" jobwire needs Valkey or Redis {OLDEST_VERSION} or newer"
        )
    client_id = reply.get("id")
    assert isinstance(client_id, int)
    return client_id


def refusal(config: Config, error: ServerError) -> ValkeyError:
    """What the server's error during the greeting means for us."""
    where = config.address
    if error.code in _REFUSED:
        if config.password is None:
            return AuthFailed(f"{where} wants a password, and none is set")
        who = config.username or "default"
        return AuthFailed(f"{where} refuses user {who!r}: wrong name or password")
    if error.code == "LOADING":
        return Loading(f"{where} is still loading its data")
    if error.code == "NOPROTO" or "unknown command" in str(error):
        return Unsupported(
            f"{where} is too old for protocol 3; jobwire needs Valkey or Redis"
            f" {OLDEST_VERSION} or newer"
        )
    return Unavailable(f"{where} refused the connection: {error}")


async def dial(
    config: Config,
    name: str,
    setup: Sequence[tuple[Arg, ...]] = (),
    on_push: Callable[[Push], None] | None = None,
) -> tuple[RespSocket, int]:
    """A greeted socket, after the `setup` commands have all succeeded, and its id on the server."""
    wire: RespSocket | None = None
    try:
        async with asyncio.timeout(config.dial_timeout_s):
            wire = await _connect(config)
            if on_push is not None:
                wire.on_push = on_push
            client_id = check_greeting(config, await wire.call(*greeting(config, name)))
            select = [("SELECT", config.db)] if config.db else []
            # PING is here for its error: a server that is loading greets, then refuses.
            waiters = [wire.call(*command) for command in (("PING",), *select, *setup)]
            await asyncio.gather(*waiters)
    except BaseException as error:
        if wire is not None:
            await wire.close("the greeting failed")
        if isinstance(error, ServerError):
            raise refusal(config, error) from error
        if isinstance(error, ConnectionLost):
            raise _no_server(config, error.__cause__) from error
        if isinstance(error, TimeoutError):
            raise Unavailable(
                f"no answer from {config.address} within {config.dial_timeout_s:g} s"
            ) from error
        if isinstance(error, OSError):
            raise Unavailable(f"cannot connect to {config.address}: {_reason(error)}") from error
        raise
    return wire, client_id


async def _connect(config: Config) -> RespSocket:
    loop = asyncio.get_running_loop()
    wire = RespSocket(config.address, config.read_timeout_s, config.write_timeout_s)
    context = (config.tls_context or ssl.create_default_context()) if config.tls else None
    endpoint = config.endpoint
    if isinstance(endpoint, str):
        await loop.create_unix_connection(lambda: wire, endpoint)
        return wire
    host, port = endpoint
    transport, _ = await loop.create_connection(lambda: wire, host, port, ssl=context)
    _keep_alive(transport.get_extra_info("socket"))
    return wire


def _keep_alive(sock: socket.socket) -> None:
    """Let the kernel notice a silent peer where no command waits for a reply."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", _IDLE_S), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _no_server(config: Config, cause: BaseException | None) -> Unavailable:
    if isinstance(cause, hiredis.ProtocolError):
        return Unsupported(f"{config.address} answers, but not as a Valkey or Redis server")
    return Unavailable(f"{config.address} broke off the greeting: {cause}")


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    return error.strerror or str(error)
