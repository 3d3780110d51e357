"""Free ports on loopback, for servers that cannot choose their own.

A port may be taken between the choice and the server's bind: callers retry with another one.

The ports are below the range of ephemeral ports: no outgoing connection can occupy a server's port
while it restarts, and no client of a stopped server can connect to itself.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections import deque
from typing import Final

LOOPBACK: Final = "127.0.0.1"
LOWEST = 10_240
HIGHEST = 32_767
"""Several test processes share the range."""
_recent: Final = deque[int](maxlen=256)
"""The last ports that were chosen: their servers may not listen yet."""


def port_is_free(port: int) -> bool:
    """Whether a server could listen on this port now."""
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
            # Not `random`: programs with the same seed would choose the same ports.
            port = LOWEST + secrets.randbelow(HIGHEST - LOWEST + 1)
            if port not in _recent and _bound(held.enter_context(socket.socket()), port):
                _recent.append(port)
                ports.append(port)
        return ports


def _bound(probe: socket.socket, port: int) -> bool:
    # As servers do: a port with connections in TIME_WAIT is free.
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind((LOOPBACK, port))
    except OSError:
        return False
    return True
