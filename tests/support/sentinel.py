"""A primary with two replicas and three sentinels, as real processes.

with Trio(folder) as trio:
    connect(trio.url)
    trio.primary.kill()        # the sentinels promote a replica
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Self, cast

from redis import Redis, RedisError

from jobwire.local import LocalValkey, free_port
from jobwire.local.ports import LOOPBACK
from jobwire.local.valkey import ADMIN, PASSWORD_FILE, USER, bundled_program
from jobwire.spawn import ChildProcess, spawn
from tests.support.servers import plain_client
from tests.support.wait import wait_until_sync

NAME: Final = "main"
PATIENT_MS: Final = 5000
"""A server that stands still is taken for dead after this time: longer than a test process or a
server is stopped by `make flaky`, or late on a busy machine."""
IMPATIENT_MS: Final = 1000
"""The same from the moment at which a test kills or pauses one of them."""
PASSWORD: Final = "of-the-programs"
SENTINEL_PASSWORD: Final = "of-the-sentinels"
ADMIN_PASSWORD: Final = "of-the-admin"
_START_S: Final = 90.0


class Replicated(LocalValkey):
    """A server that may be the primary or a replica: all have the same users."""

    def __init__(self, folder: Path, extra: Sequence[str]) -> None:
        folder.mkdir(parents=True)
        (folder / PASSWORD_FILE).write_text(PASSWORD)
        (folder / PASSWORD_FILE).chmod(0o600)
        login = (f"masteruser {ADMIN}", f"masterauth {ADMIN_PASSWORD}")
        super().__init__(folder, port=free_port(), admin=True, extra=[*login, *extra])
        self._admin_password = ADMIN_PASSWORD
        self._is_paused = False
        self.before_fault: Callable[[], None] = lambda: None
        """Called before the server is killed or paused."""

    @property
    def is_serving(self) -> bool:
        return self.alive and not self._is_paused

    def start(self) -> Self:
        self._is_paused = False
        return super().start()

    def follow(self, primary: LocalValkey) -> None:
        """Be a replica of another server at the next start."""
        self.extra = [line for line in self.extra if not line.startswith("replicaof")]
        if primary is not self:
            self.extra.append(f"replicaof {LOOPBACK} {primary.port}")

    def kill(self) -> None:
        self.before_fault()
        super().kill()

    def pause(self) -> None:
        """Suspend the process; its connections stay open."""
        self.before_fault()
        os.kill(self.pid, signal.SIGSTOP)
        self._is_paused = True

    def resume(self) -> None:
        """Let it run again."""
        os.kill(self.pid, signal.SIGCONT)
        self._is_paused = False


class Trio:
    """The servers have the settings of G-21; `extra` are further lines of their configuration."""

    def __init__(self, folder: Path, extra: Sequence[str] = ()) -> None:
        settings = (
            *("min-replicas-to-write 1", "min-replicas-max-lag 2", "repl-diskless-sync-delay 0"),
            *("repl-ping-replica-period 1", *extra),
        )
        self.servers = [Replicated(folder / f"valkey{number}", settings) for number in range(3)]
        for server in self.servers:
            server.before_fault = partial(self._down_after, IMPATIENT_MS)
        self._sentinels = [folder / f"sentinel{number}" for number in range(3)]
        self.ports = [free_port() for _ in self._sentinels]
        self._children: list[ChildProcess] = []

    @property
    def url(self) -> str:
        """For programs: the servers by their sentinels."""
        return sentinel_url(self.ports)

    @property
    def primary(self) -> Replicated:
        """The server that most of the sentinels call the primary."""
        ports = sorted(self._names(port) for port in self.ports)
        return next(server for server in self.servers if server.port == ports[1])

    @property
    def replicas(self) -> list[Replicated]:
        primary = self.primary
        return [server for server in self.servers if server is not primary]

    @property
    def failovers(self) -> int:
        """How many there were, also those that nobody caused: on a busy machine the sentinels may
        take a primary that is late for a dead one."""
        return max(int(self._knows(port)["config-epoch"]) for port in self.ports)

    def start(self) -> Self:
        """Start everything; returns when the sentinels know each other and the replicas."""
        first, *others = self.servers
        first.start()
        for server in others:
            server.follow(first)
            server.start()
        for folder, port in zip(self._sentinels, self.ports, strict=True):
            self._children.append(start_sentinel(folder, port, first))
        self.wait_complete()
        self._down_after(PATIENT_MS)
        return self

    def wait_complete(self) -> None:
        """Wait until all servers run in step, and every sentinel knows so."""
        wait_until_sync(self._is_complete, "the sentinels to know all servers", timeout_s=_START_S)

    def restart(self, server: Replicated) -> None:
        """Start a killed or paused server as a replica of the present primary."""
        if server.alive:
            server.kill()
        wait_until_sync(self._is_agreed, "the end of a failover", timeout_s=_START_S)
        server.follow(self.primary)
        server.start()

    def wait_failover(self, former: LocalValkey) -> Replicated:
        """Wait until another server is the primary."""

        def switched() -> Replicated | None:
            primary = self.primary
            return None if primary is former else primary

        found = wait_until_sync(switched, "a failover", timeout_s=_START_S)
        assert found is not None
        return found

    def heal(self) -> None:
        """Start what was killed or paused, and remove all keys."""
        for server in self.servers:
            if not server.is_serving:
                self.restart(server)
        self.wait_complete()
        self._down_after(PATIENT_MS)
        with plain_client(self.primary) as plain:
            plain.flushall()

    def _down_after(self, time_ms: int) -> None:
        for port in self.ports:
            with _client(port) as sentinel:
                sentinel.execute_command(
                    "SENTINEL", "SET", NAME, "down-after-milliseconds", time_ms
                )

    def stop(self) -> None:
        for child in self._children:
            child.kill()
        for server in self.servers:
            server.stop()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _is_agreed(self) -> bool:
        return len({self._knows(port)["port"] for port in self.ports}) == 1

    def _is_complete(self) -> bool:
        try:
            known = [self._knows(port) for port in self.ports]
            primary = self.primary
            with plain_client(primary) as plain:
                replication = cast("dict[str, object]", plain.info("replication"))
        except (RedisError, OSError):
            return False
        figures = ("num-slaves", "num-other-sentinels")
        in_step = [replication.get("connected_slaves"), replication.get("min_slaves_good_slaves")]
        return in_step == [2, 2] and all(
            int(each["port"]) == primary.port
            and each["flags"] == "master"
            and [int(each[name]) for name in figures] == [2, 2]
            for each in known
        )

    def _knows(self, port: int) -> dict[str, str]:
        with _client(port) as sentinel:
            return cast("dict[str, str]", sentinel.sentinel_master(NAME))

    def _names(self, port: int) -> int:
        """The port of the primary, by the sentinel at a port."""
        with _client(port) as sentinel:
            return cast("tuple[str, int]", sentinel.sentinel_get_master_addr_by_name(NAME))[1]


def _client(port: int) -> Redis:
    return Redis(port=port, password=SENTINEL_PASSWORD, decode_responses=True, socket_timeout=60)


def start_sentinel(
    folder: Path, port: int, primary: LocalValkey, *, epoch: int = 1
) -> ChildProcess:
    """A sentinel that is told that a server is the primary since the failover of this number."""
    folder.mkdir()
    (folder / "sentinel.conf").write_text(_sentinel_config(port, primary.port, epoch))
    with (folder / "sentinel.log").open("wb") as log:
        command = [bundled_program(), "sentinel.conf", "--sentinel"]
        return spawn(command, cwd=folder, stdout=log, stderr=log)


def sentinel_url(
    ports: Sequence[int], query: str = f"sentinel_password={SENTINEL_PASSWORD}"
) -> str:
    """The URL of the servers that sentinels at these ports know."""
    hosts = ",".join(f"{LOOPBACK}:{port}" for port in ports)
    return f"valkey+sentinel://{USER}:{PASSWORD}@{hosts}/{NAME}/0?{query}"


def _sentinel_config(port: int, primary: int, epoch: int) -> str:
    lines = (
        f"port {port}",
        f"bind {LOOPBACK}",
        "dir .",
        f"requirepass {SENTINEL_PASSWORD}",
        f"sentinel sentinel-pass {SENTINEL_PASSWORD}",
        f"sentinel monitor {NAME} {LOOPBACK} {primary} 2",
        f"sentinel config-epoch {NAME} {epoch}",
        f"sentinel auth-user {NAME} {ADMIN}",
        f"sentinel auth-pass {NAME} {ADMIN_PASSWORD}",
        f"sentinel down-after-milliseconds {NAME} {IMPATIENT_MS}",
        f"sentinel failover-timeout {NAME} 3000",
        f"sentinel parallel-syncs {NAME} 2",
    )
    return "\n".join((*lines, ""))
