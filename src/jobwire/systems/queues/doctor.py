"""Checks of the queues for `jobwire doctor`: their server, their workers, stalled jobs."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Final

from jobwire.doctor import Finding, valkey
from jobwire.settings import Loaded
from jobwire.systems.backends import known_valkey
from jobwire.systems.queues.announcement import seen_workers
from jobwire.systems.queues.contract import BullState
from jobwire.systems.queues.known_queues import KnownQueues
from jobwire.systems.queues.metrics import QueueFigures, measure
from jobwire.systems.queues.scripts import SCRIPTS
from jobwire.systems.queues.server import queues_config
from jobwire.text import plural
from jobwire.valkey import ConfigError, Connection, HealthChecker, ValkeyError

_OLDEST_VERSION: Final = (7, 0)
_SHOWN: Final = 5
_STEPS: Final = 20
"""Steps of the scan for queues; a larger server is examined in part."""


async def examine(loaded: Loaded) -> AsyncIterator[Finding]:
    """All checks; nothing is changed. Nothing without a known server."""
    settings = loaded.settings.queues
    known = known_valkey(loaded)
    config, fix = (known.config, known.fix) if known is not None else (None, "")
    if settings.url:
        try:
            config, fix = queues_config(settings), "start it, or correct queues.url"
        except ConfigError as error:
            yield Finding("queues server", "fault", f"queues.url: {error}", fix="correct it")
            return
        lock_s, probe = settings.lock.total_seconds(), f"{settings.prefix}:jobwire-doctor:writable"
        async for finding in valkey.examine(config, fix=fix, probe=probe, lease_s=lock_s):
            yield replace(finding, check=finding.check.replace("valkey", "queues server"))
    if config is None:
        return
    try:
        config = config.for_keys(settings.prefix)
        async with Connection.open(config, name="jobwire-doctor") as connection:
            for finding in await _queues(connection, settings.prefix, settings.names):
                yield finding
    except ValkeyError:
        return  # reported by the checks of the server


async def _queues(connection: Connection, prefix: str, names: tuple[str, ...]) -> list[Finding]:
    version = (await HealthChecker(connection).summary()).version
    if _parsed(version) < _OLDEST_VERSION:
        found = f"version {version}; queues need {'.'.join(map(str, _OLDEST_VERSION))}"
        why = "the scripts of the queues use features of newer servers"
        return [Finding("queues", "fault", found, why, "use a newer server")]
    await connection.load_scripts(SCRIPTS.values())
    known_queues = KnownQueues(connection, prefix, names)
    for _ in range(_STEPS):
        if not (await known_queues.scan()).more:
            break
    figures = await measure(connection, prefix, known_queues.names)
    if not figures:
        return [Finding("queues", "ok", "none yet")]
    workers = await seen_workers(connection, prefix, figures)
    judged = [
        finding
        for queue, found in figures.items()
        for finding in _judge(queue, found, None if workers is None else workers[queue])
    ]
    jobs = sum(sum(found.jobs.values()) for found in figures.values())
    return [
        Finding("queues", "ok", f"{plural(len(figures), 'queue')} with {plural(jobs, 'job')}"),
        *_cut(judged),
    ]


def _judge(queue: str, found: QueueFigures, workers: int | None) -> Iterator[Finding]:
    """Judge the figures of one queue. Pure."""
    waiting = found.jobs[BullState.WAITING] + found.jobs[BullState.PRIORITIZED]
    if found.paused:
        fix = "resume it when it may run again"
        yield Finding("paused queue", "note", f"{queue}: {plural(waiting, 'job')} waiting", fix=fix)
    elif waiting and workers == 0:
        yield Finding(
            "queue workers",
            "note",
            f"{queue}: {plural(waiting, 'job')} waiting, and no worker is announced",
            "workers with queues.announce = false are not seen",
            "start a worker that serves the queue",
        )
    if found.stalled:
        yield Finding(
            "stalled jobs",
            "note",
            f"{queue}: {plural(found.stalled, 'active job')} without a lock",
            "their workers died or block for longer than the lock time",
            "a worker requeues them at its next checks; see queues.lock and its log",
        )


def _cut(findings: list[Finding]) -> list[Finding]:
    """The first of each kind, and how many there are besides."""
    shown: list[Finding] = []
    for check in dict.fromkeys(finding.check for finding in findings):
        same = [finding for finding in findings if finding.check == check]
        shown += same[:_SHOWN]
        if len(same) > _SHOWN:
            shown.append(Finding(check, "note", f"and {len(same) - _SHOWN} further queues"))
    return shown


def _parsed(version: str) -> tuple[int, ...]:
    parts = version.split(".")[:2]
    return tuple(int(part) for part in parts if part.isdecimal())
