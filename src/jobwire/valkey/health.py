"""The server's state for readiness probes and diagnostics.

Reads only. A value that the server does not disclose is None.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Final, Literal, cast

from jobwire.valkey.checks import check_client
from jobwire.valkey.connection import Connection
from jobwire.valkey.errors import ConfigError, Moved, ServerError
from jobwire.valkey.operations import Client
from jobwire.valkey.resp_socket import Reply
from jobwire.valkey.scripts import load_scripts
from jobwire.valkey.write_refusal import PAUSED, WriteRefusal, answered, explain

_SCRIPTS: Final = load_scripts("jobwire.valkey.lua")
_LAG: Final = _SCRIPTS["lag"]
_WRITABLE: Final = _SCRIPTS["writable"]
_WRITE_S: Final = 1.0
"""How long a write may take on a server that answers."""
_MAX_LAG: Final = 1000
_REPLICAS: Final = 2
_MAX_REPLICA_LAG_S: Final = 2


@dataclass(frozen=True, slots=True)
class Ping:
    """The server answered."""

    latency_s: float


@dataclass(frozen=True, slots=True)
class Health:
    """The result of `HealthChecker.summary`."""

    latency_s: float
    server: Literal["valkey", "redis"]
    version: str
    role: str
    """`master` accepts writes; `slave` is a replica."""
    replicas: int
    memory_used: int
    memory_limit: int | None
    """None: not limited."""
    eviction: str
    """Any policy but `noeviction` means that the server may delete entries when memory is full."""
    persistence: Literal["aof", "rdb", "none"] | None
    """None: the server does not disclose it."""
    lag: int | None
    """Entries not yet delivered to the group, counted up to 1000; None: no such group, or none
    given."""


@dataclass(frozen=True, slots=True)
class ReplicationFault:
    """A setting or a state with which a failover loses more than it has to, or leaves a server that
    refuses writes (G-21)."""

    found: str
    why: str
    fix: str


class HealthChecker:
    """`HealthChecker(connection)`. With another client, only `ping` and `group_exists`."""

    def __init__(self, connection: Client) -> None:
        check_client(connection, "ping", "group_exists")
        self._client = connection

    @property
    def _connection(self) -> Connection:
        if not isinstance(self._client, Connection):
            raise ConfigError("connection", f"{type(self._client).__name__} is not a Connection")
        return self._client

    async def ping(self) -> Ping:
        """Measure a round trip; raises Unavailable or ConnectionLost on failure."""
        start = time.perf_counter()
        await answered(self._client.ping())
        return Ping(time.perf_counter() - start)

    async def write_refusal(self, key: str = "") -> WriteRefusal | None:
        """Why the server refuses a write now; None if it accepts it. A key that nothing else uses
        is written and removed: only so missing permissions and a Cluster that is down are
        found."""
        keys = (key,) if key else ()
        try:
            # On a socket of its own: where writes are paused, the shared one stands still.
            async with self._connection.socket() as own:
                await answered(own.call("PING"))
                async with asyncio.timeout(_WRITE_S):
                    await own.call("EVAL", _WRITABLE.source, len(keys), *keys)
        except Moved:  # the key is another node's
            return await self.write_refusal()
        except ServerError as error:
            return explain(error)
        except TimeoutError:
            return PAUSED
        return None

    async def group_exists(self, stream: str, group: str) -> bool:
        """False for a missing stream, too."""
        return await self._client.group_exists(stream, group)

    async def summary(self, stream: str | None = None, group: str | None = None) -> Health:
        """All values; with a stream and a group, also the group's lag."""
        ping = await self.ping()
        text = await self._connection.call("INFO", "server", "memory", "persistence", "replication")
        info = _parsed(text)
        lag = await self._lag(stream, group) if stream and group else None
        return Health(
            latency_s=ping.latency_s,
            server="valkey" if "valkey_version" in info else "redis",
            version=info.get("valkey_version") or info["redis_version"],
            role=info["role"],
            replicas=int(info.get("connected_slaves", 0)),
            memory_used=int(info["used_memory"]),
            memory_limit=int(info["maxmemory"]) or None,
            eviction=info["maxmemory_policy"],
            persistence=await self._persistence(info),
            lag=lag,
        )

    async def replication_faults(self) -> list[ReplicationFault]:
        """What is wrong with a primary that is to fail over; nothing where it cannot be read."""
        found = _parsed(await self._connection.call("INFO", "replication"))
        faults: list[ReplicationFault] = []
        replicas = int(found.get("connected_slaves", 0))
        if found["role"] == "master" and replicas < _REPLICAS:
            has = f"{replicas} of {_REPLICAS} replicas are connected"
            why = "a promoted replica needs another one, or it refuses writes"
            faults.append(ReplicationFault(has, why, "start the missing replica"))
        try:
            reply = await self._connection.call("CONFIG", "GET", "min-replicas-*")
        except ServerError:
            return faults  # hosted servers do not allow CONFIG
        settings = {name: int(value) for name, value in cast("dict[str, str]", reply).items()}
        if settings["min-replicas-to-write"] < 1:
            has = "min-replicas-to-write is 0"
            why = "a primary that was cut off accepts writes, and all of them are lost"
            faults.append(ReplicationFault(has, why, "CONFIG SET min-replicas-to-write 1"))
        elif not 0 < settings["min-replicas-max-lag"] <= _MAX_REPLICA_LAG_S:
            has = f"min-replicas-max-lag is {settings['min-replicas-max-lag']}"
            why = "a primary that was cut off accepts writes for that many seconds"
            faults.append(
                ReplicationFault(has, why, f"CONFIG SET min-replicas-max-lag {_MAX_REPLICA_LAG_S}")
            )
        return faults

    async def cluster_faults(self, max_node_timeout_s: float) -> list[ReplicationFault]:
        """What is wrong with a primary of a Cluster, for a failover or for a slot that moves."""
        info = _parsed(await self._connection.call("INFO", "replication"))
        faults: list[ReplicationFault] = []
        if info["role"] == "master" and not int(info.get("connected_slaves", 0)):
            has, why = "it has no replica", "nothing takes over its slots when it fails"
            faults.append(ReplicationFault(has, why, "start a replica: CLUSTER REPLICATE"))
        if moving := await self._half_moved_slots():
            has = f"slots that are moved key by key: {moving}"
            why = "scripts find only a part of a job: it may be done without its last event"
            fix = "end it: CLUSTER SETSLOT <slot> STABLE, or move the rest; use MIGRATESLOTS"
            faults.append(ReplicationFault(has, why, fix))
        try:
            reply = await self._connection.call("CONFIG", "GET", "cluster-*")
        except ServerError:
            return faults  # hosted servers do not allow CONFIG
        settings = cast("dict[str, str]", reply)
        if settings["cluster-require-full-coverage"] == "yes":
            has = "cluster-require-full-coverage is yes"
            why = "when one primary is gone, all others refuse commands too"
            faults.append(ReplicationFault(has, why, "CONFIG SET cluster-require-full-coverage no"))
        timeout_s = int(settings["cluster-node-timeout"]) / 1000
        if timeout_s > max_node_timeout_s:
            has = f"cluster-node-timeout is {timeout_s:g} s, above {max_node_timeout_s:g} s"
            why = "leases expire before a replica takes over"
            fix = f"CONFIG SET cluster-node-timeout {max_node_timeout_s * 1000:.0f}"
            faults.append(ReplicationFault(has, why, fix))
        return faults

    async def _half_moved_slots(self) -> str:
        """The slots of the node that asked that are open, in the words of CLUSTER NODES."""
        try:
            text = str(await self._connection.call("CLUSTER", "NODES"))
        except ServerError:
            return ""
        words = text.split()
        return ", ".join(word.strip("[]").split("-")[0] for word in words if word[0] == "[")

    async def _lag(self, stream: str, group: str) -> int | None:
        lag = cast(int, await self._connection.run(_LAG, [stream], [group, _MAX_LAG]))
        return lag if lag >= 0 else None

    async def _persistence(self, info: dict[str, str]) -> Literal["aof", "rdb", "none"] | None:
        if info.get("aof_enabled") == "1":
            return "aof"
        try:
            points = cast("dict[str, str]", await self._connection.call("CONFIG", "GET", "save"))
        except ServerError:
            return None  # hosted servers do not allow CONFIG
        return "rdb" if points.get("save") else "none"


def _parsed(info: Reply) -> dict[str, str]:
    return dict(line.split(":", 1) for line in str(info).splitlines() if ":" in line)
