"""The ten ports of the local S3 server, chosen once and stored with its data; its sockets.

Used by `s3.py`. The server also creates sockets in the system's temporary directory, regardless of
its flags, and leaves them there when it is killed.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
from pathlib import Path
from typing import Final

from jobwire.local.ports import free_ports, port_is_free
from jobwire.private_files import read_private, write_private

PORTS_FILE: Final = "ports.json"

# The names of the server's own flags.
S3: Final = "s3.port"
_ADMIN: Final = "admin.port"
_OTHERS: Final = (
    "s3.port.grpc",
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
    _ADMIN,
)
# The server's worker, which runs the lifecycle rules, expects the admin gRPC port at this offset
# from the admin port, regardless of its flag.
_ADMIN_GRPC_DISTANCE: Final = 10_000
_HIGHEST: Final = 32_767
_SOCKET: Final = re.compile(r"listening on Unix socket (\S+\.sock)")


def kept_ports(folder: Path) -> dict[str, int]:
    """The ports of the last start, or none."""
    try:
        kept = json.loads(read_private(folder / PORTS_FILE))
        return {name: int(kept[name]) for name in (S3, *_OTHERS, f"{_ADMIN}.grpc")}
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return {}


def all_free(ports: dict[str, int]) -> bool:
    """Whether all of them are free now."""
    return all(port_is_free(port) for port in ports.values())


def choose_ports(folder: Path, s3_port: int = 0) -> dict[str, int]:
    """Choose free ports and store them; `s3_port` is the public one, if given."""
    while True:
        s3, *others = free_ports(1 + len(_OTHERS))
        ports = {S3: s3_port or s3, **dict(zip(_OTHERS, others, strict=True))}
        ports[f"{_ADMIN}.grpc"] = ports[_ADMIN] + _ADMIN_GRPC_DISTANCE
        different = len(set(ports.values())) == len(ports)
        if different and ports[f"{_ADMIN}.grpc"] <= _HIGHEST and all_free(ports):
            break
    write_private(folder / PORTS_FILE, json.dumps(ports, indent=1))
    return ports


def remove_stale_sockets(log: Path) -> None:
    """Remove sockets that an ended server left, as listed in its log."""
    for name in set(_SOCKET.findall(log.read_text(errors="replace") if log.exists() else "")):
        path = log.parent / name  # the server's working directory
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as peer:
            try:
                peer.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
