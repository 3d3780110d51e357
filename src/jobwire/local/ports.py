"""Ports on loopback that nobody listens on, for servers that cannot choose their own.

Called by the servers of this room and by tests. A port may be lost between the choice and the
server's own bind, so callers start again with another one when their server exits for it.

The ports lie below the range from which the system picks local ports of outgoing connections:
no client can sit on a server's port while it restarts, and no client that dials a dead server
can end up connected to itself.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
from typing import Final

LOOPBACK: Final = "127.0.0.1"
_LOWEST: Final = 10_240
_HIGHEST: Final = 32_767


def port_is_free(port: int) -> bool:
    """Say whether a server could listen on this port now."""
    with socket.socket() as probe:
        return _bound(probe, port)


def free_port() -> int:
    """Choose one free port."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Choose several different free ports, holding each until all are chosen."""
    with contextlib.ExitStack() as held:
        ports: list[int] = []
        while len(ports) < count:
            # Not `random`: programs that seed it alike would all choose alike.
            port = _LOWEST + secrets.randbelow(_HIGHEST - _LOWEST + 1)
            if _bound(held.enter_context(socket.socket()), port):
                ports.append(port)
        return ports


def _bound(probe: socket.socket, port: int) -> bool:
    # As servers do: a port whose last connections merely linger in TIME_WAIT is free.
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind((LOOPBACK, port))
    except OSError:
        return False
    return True
