"""Checks of the Valkey server: version, persistence, eviction, memory, clock, access.

Uses the permissions of the product; what they do not allow to read is a note, not a fault.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import Final

from jobwire.doctor.finding import Finding
from jobwire.net import is_loopback
from jobwire.valkey import Config, Connection, HealthChecker, ServerError, ValkeyError
from jobwire.valkey.dial import is_without_lua
from jobwire.valkey.dialer import find_server
from jobwire.valkey.health import Health, ReplicationFault

_SLOW_MS: Final = 20.0
_PINGS: Final = 10
_CLOCK_S: Final = 2.0
_FULL: Final = 0.8
_SMALL_NODES: Final = 1024
_DISK_READINGS: Final = 10
_DISK_PAUSE_S: Final = 0.03


async def examine(
    config: Config, *, fix: str, probe: str = "", lease_s: float = float("inf")
) -> AsyncIterator[Finding]:
    """Check the server, or every primary of a Cluster; `fix` is for an unreachable server. A write
    of the key `probe` is tried."""
    if config.topology is None:
        async for finding in _examine_server(config, fix=fix, probe=probe, lease_s=lease_s):
            yield finding
        return
    try:
        await config.topology.refresh(config)
    except ValkeyError as error:
        yield Finding("valkey", "unreachable", str(error), "nothing works without it", fix)
        return
    for number, node in enumerate(config.topology.primaries):
        at = config.of_node(node.address)
        examining = _examine_server(at, fix=fix, probe=probe, lease_s=lease_s, in_cluster=True)
        async for finding in examining:
            if not number or is_worth_showing(finding):
                yield named(finding, node.address)


def is_worth_showing(finding: Finding) -> bool:
    """Of the first of several servers all findings are shown, of the others those that differ from
    a healthy one."""
    return finding.check == "valkey" or finding.verdict != "ok"


def named(finding: Finding, place: str) -> Finding:
    """The same finding with the name of the server, or of the shard, that it is about."""
    return replace(
        finding, found=finding.found if place in finding.found else f"{place}: {finding.found}"
    )


async def _examine_server(
    config: Config, *, fix: str, probe: str, lease_s: float, in_cluster: bool = False
) -> AsyncIterator[Finding]:
    by_sentinels = bool(config.sentinels)
    try:
        config = await find_server(config)
        async with Connection.open(config, name="jobwire-doctor") as connection:
            checker = HealthChecker(connection)
            # The fastest round trip tells the distance; the others show that a machine is busy.
            pings = [(await checker.ping()).latency_s for _ in range(_PINGS)]
            health = replace(await checker.summary(), latency_s=min(pings))
            for finding in judge(config, health):
                yield finding
            yield await _lua(connection)
            yield await writes(checker, probe)
            if health.persistence == "aof":
                yield await _disk(connection)
            if by_sentinels:
                for finding in _failover(await checker.replication_faults()):
                    yield finding
            if in_cluster:
                for finding in _failover(await checker.cluster_faults(node_timeout_s(lease_s))):
                    yield finding
            yield await _clock(connection)
            yield await _nodes(connection)
            yield await _access(config)
    except ValkeyError as error:
        yield Finding("valkey", "unreachable", str(error), "nothing works without it", fix)


async def examine_queue(config: Config, queue: str) -> AsyncIterator[Finding]:
    """Check the stream of a job queue; nothing for an unreachable server, which `examine`
    reports."""
    with contextlib.suppress(ValkeyError):
        async with Connection.open(config, name="jobwire-doctor") as connection:
            yield await _clock_history(connection, queue)


def judge(config: Config, health: Health) -> Iterator[Finding]:
    """Judge the server's own report. Pure."""
    latency_ms = health.latency_s * 1000
    found = f"{health.server} {health.version} at {config.address}, {latency_ms:.1f} ms away"
    if latency_ms > _SLOW_MS:
        why = "every step of a job needs a round trip"
        yield Finding("valkey", "note", found, why, "run the server closer to the workers")
    else:
        yield Finding("valkey", "ok", found)
    yield _persistence(health)
    yield _eviction(health)
    yield _memory(health)


async def writes(checker: HealthChecker, probe: str) -> Finding:
    """Whether the server accepts a write, tried."""
    refusal = await checker.write_refusal(probe)
    if refusal is None:
        return Finding("valkey writes", "ok", "a write is accepted")
    why = "jobs cannot be submitted, and their ends cannot be stored"
    return Finding("valkey writes", "fault", refusal.found, why, refusal.fix)


def _persistence(health: Health) -> Finding:
    match health.persistence:
        case "aof":
            return Finding("valkey persistence", "ok", "append-only file is on")
        case None:
            return Finding("valkey persistence", "note", "no permission to read its settings")
        case "rdb" | "none":
            return Finding(
                "valkey persistence",
                "fault",
                "the append-only file is off",
                "accepted jobs are lost when the server restarts",
                "CONFIG SET appendonly yes, and `appendonly yes` in its configuration",
            )


def _eviction(health: Health) -> Finding:
    if health.eviction == "noeviction":
        return Finding("valkey eviction", "ok", "never evicts")
    return Finding(
        "valkey eviction",
        "fault",
        f"maxmemory-policy is {health.eviction}",
        "when memory is full the server deletes jobs silently",
        "CONFIG SET maxmemory-policy noeviction",
    )


def _memory(health: Health) -> Finding:
    used, limit = health.memory_used, health.memory_limit
    if limit is None or used <= _FULL * limit:
        return Finding("valkey memory", "ok", f"{used >> 20} MiB used")
    return Finding(
        "valkey memory",
        "fault",
        f"{used >> 20} of {limit >> 20} MiB used",
        "new jobs are refused when the memory is full",
        "raise maxmemory, or shorten jobs.job_ttl_s",
    )


async def _disk(connection: Connection) -> Finding:
    """While an fsync runs, the server holds answered writes in memory (docs/durability.md). With a
    fast disk, hardly any reading finds one."""
    running = 0
    for _ in range(_DISK_READINGS):
        info = str(await connection.call("INFO", "persistence"))
        running += "aof_pending_bio_fsync:0" not in info
        await asyncio.sleep(_DISK_PAUSE_S)
    if 2 * running <= _DISK_READINGS:
        return Finding("valkey disk", "ok", "its syncs are short")
    return Finding(
        "valkey disk",
        "fault",
        f"an fsync was running in {running} of {_DISK_READINGS} readings",
        "with appendfsync everysec, a killed server loses the jobs accepted meanwhile",
        "use a disk with faster syncs, or appendfsync always; see docs/durability.md",
    )


def node_timeout_s(lease_s: float) -> float:
    """The longest `cluster-node-timeout` at which workers keep their leases over a failover."""
    return lease_s / 6


def _failover(faults: Sequence[ReplicationFault]) -> list[Finding]:
    if not faults:
        return [Finding("valkey replication", "ok", "fit for a failover")]
    return [
        Finding("valkey replication", "fault", each.found, each.why, each.fix) for each in faults
    ]


async def _lua(connection: Connection) -> Finding:
    try:
        await connection.call("SCRIPT", "LOAD", "return 1")
    except ServerError as error:
        found, fix = str(error), "allow the user of valkey.url SCRIPT LOAD and EVALSHA"
        if is_without_lua(error):
            found, fix = "it has no Lua", "load its module `lua`"
        return Finding("valkey scripts", "fault", found, "every step of a job is a script", fix)
    return Finding("valkey scripts", "ok", "it runs Lua")


async def _clock(connection: Connection) -> Finding:
    before_s = time.time()
    ahead_s = clock_ahead_s(await _server_s(connection), before_s, time.time())
    if abs(ahead_s) > _CLOCK_S:
        return Finding(
            "clock",
            "fault",
            f"the server's clock differs from ours by {ahead_s:+.0f} s",
            "times of jobs are the server's; tokens and signatures are checked against ours",
            "run a time service (chrony, systemd-timesyncd) on both machines",
        )
    return Finding("clock", "ok", "agrees with the server's")


def clock_ahead_s(server_s: float, before_s: float, after_s: float) -> float:
    """How far the server's clock is ahead of ours, if it was read between two times of ours: what
    the answer took is no difference. Pure."""
    return server_s - min(max(server_s, before_s), after_s)


async def _clock_history(connection: Connection, queue: str) -> Finding:
    """Entry ids start with the server's time and never decrease: the last one shows a set-back."""
    try:
        reply = await connection.call("XINFO", "STREAM", queue)
    except ServerError:
        return Finding("clock history", "ok", "no jobs were submitted yet")
    last = str(reply["last-generated-id"]) if isinstance(reply, dict) else "0-0"
    back_s = int(last.partition("-")[0]) / 1000 - await _server_s(connection)
    if back_s > _CLOCK_S:
        return Finding(
            "clock history",
            "fault",
            f"the server's clock was set back by {back_s:.0f} s or more",
            "delayed jobs and expiries wait until it has caught up",
            "let a time service slew the clock instead of setting it; see docs/durability.md",
        )
    return Finding("clock history", "ok", "the server's clock was not set back")


async def _server_s(connection: Connection) -> float:
    reply = await connection.call("TIME")
    assert isinstance(reply, list)
    return int(str(reply[0])) + int(str(reply[1])) / 1e6


async def _nodes(connection: Connection) -> Finding:
    try:
        reply = await connection.call("CONFIG", "GET", "stream-node-max-bytes")
    except ServerError:
        return Finding("valkey streams", "note", "no permission to read its settings")
    size = int(str(reply.get("stream-node-max-bytes", 0))) if isinstance(reply, dict) else 0
    if size > _SMALL_NODES:
        return Finding(
            "valkey streams",
            "note",
            f"stream-node-max-bytes is {size}",
            "each finished job uses about 4 KB more than with 512",
            "CONFIG SET stream-node-max-bytes 512",
        )
    return Finding("valkey streams", "ok", "small nodes")


async def _access(config: Config) -> Finding:
    if not await _allows_anonymous(config):
        return Finding("valkey access", "ok", "requires a password")
    if isinstance(config.endpoint, str) or is_loopback(config.endpoint[0]):
        return Finding("valkey access", "ok", "no password, but reachable from this machine only")
    return Finding(
        "valkey access",
        "fault",
        f"{config.address} accepts connections without a password",
        "any program that can connect can read and change every job",
        "set a password (requirepass, or an ACL file) and set VALKEY_PASSWORD",
    )


async def _allows_anonymous(config: Config) -> bool:
    anonymous = replace(config, username=None, password=None)
    try:
        async with Connection.open(anonymous, name="jobwire-doctor") as connection:
            await connection.ping()
    except ValkeyError:
        return False
    return True
