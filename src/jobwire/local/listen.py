"""A listening socket, or an error that names the port's holder and a free port.

Bound before anything is started and passed to the gateway: a port in use is reported at once, and
clients wait instead of being refused while a gateway restarts.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from pathlib import Path
from typing import Final

from jobwire.local.errors import LocalError, PortInUse
from jobwire.net import listening_sockets

_BACKLOG: Final = 2048


def listen(host: str, port: int, setting: str = "") -> socket.socket:
    """Listen on host and port; `port` 0 means any free one. Errors begin with the `setting`."""
    try:
        return _bound(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(
                port, holder=_listener(port), free=_next_free(host, port), setting=setting
            ) from None
        place = f"{setting}: " if setting else ""
        raise LocalError(
            f"{place}cannot listen on {host}:{port} ({error.strerror or error}); "
            "choose another address or port"
        ) from error


def url_of(listening: socket.socket) -> str:
    """The HTTP address of a listening socket; an IPv6 address is in brackets."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _bound(host: str, port: int) -> socket.socket:
    name = "127.0.0.1" if host == "localhost" else host.strip("[]")
    listening = socket.socket(socket.AF_INET6 if ":" in name else socket.AF_INET)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((name, port))
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def _next_free(host: str, port: int) -> int | None:
    for candidate in range(port + 1, min(port + 50, 65536)):
        with contextlib.suppress(OSError):
            _bound(host, candidate).close()
            return candidate
    return None


def _listener(port: int) -> str:
    """`name (process 123)`, or empty if unknown."""
    inodes = {f"socket:[{each.inode}]" for each in listening_sockets(port)}
    if inodes:
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                for fd in (folder / "fd").iterdir():
                    if str(fd.readlink()) in inodes:
                        name = (folder / "comm").read_text().strip()
                        return f"{name} (process {folder.name})"
    return ""
