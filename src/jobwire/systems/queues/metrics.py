"""Figures of queues, and metrics made of them for /metrics, read from the server for each scrape.

Every gateway returns the same values: scrape one, or use the maximum of all. What happens in a
worker (rates, durations, lost locks) is counted by the worker itself.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, cast

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from jobwire.systems.queues.announcement import seen_workers
from jobwire.systems.queues.clock import NowMs, system_now_ms
from jobwire.systems.queues.codec import read_counts
from jobwire.systems.queues.contract import BullState, Keys
from jobwire.systems.queues.known_queues import KnownQueues
from jobwire.systems.queues.replies import raises_unavailable
from jobwire.systems.queues.scripts import run_read
from jobwire.valkey import Connection

_BATCH: Final = 50
"""Queues that are measured in one round trip."""


class QueueFigures(NamedTuple):
    jobs: Mapping[BullState, int]
    paused: bool
    next_age_s: float | None
    """How long the next job has waited; None where none waits."""
    stalled: int
    """Active jobs without a lock, which the next stalled checks requeue."""
    ended: Mapping[BullState, int]
    """Since they are counted; empty where no worker of the queue counts."""


async def measure(
    connection: Connection, prefix: str, queues: Iterable[str], now_ms: NowMs = system_now_ms
) -> dict[str, QueueFigures]:
    """The figures of each queue; ValkeyError where the server does not answer."""
    names = list(queues)
    found: dict[str, QueueFigures] = {}
    for at in range(0, len(names), _BATCH):
        batch = names[at : at + _BATCH]
        calls = [run_read("measure", connection, Keys(each, prefix), now_ms()) for each in batch]
        replies = await asyncio.gather(*calls)
        for name, reply in zip(batch, replies, strict=True):
            found[name] = _figures(cast("list[int]", reply))
    return found


def _figures(numbers: Sequence[int]) -> QueueFigures:
    paused, age_ms, unlocked, *ended = numbers[8:]
    return QueueFigures(
        jobs=read_counts(numbers[:8]),
        paused=bool(paused),
        next_age_s=None if age_ms < 0 else age_ms / 1000,
        stalled=unlocked,
        ended={
            state: count
            for state, count in zip((BullState.COMPLETED, BullState.FAILED), ended, strict=True)
            if count >= 0
        },
    )


class BullMetrics:
    """The metrics of the known queues."""

    def __init__(self, connection: Connection, prefix: str, known_queues: KnownQueues) -> None:
        self._connection = connection
        self._prefix = prefix
        self._known_queues = known_queues

    async def read(self) -> Sequence[Metric]:
        """All metrics; BackendUnavailable if the server does not answer."""
        queues = self._known_queues.names
        with raises_unavailable():
            figures = await measure(self._connection, self._prefix, queues)
            workers = await seen_workers(self._connection, self._prefix, queues)
        return [*_families(figures), _workers(workers or {})]


def _families(figures: Mapping[str, QueueFigures]) -> list[Metric]:
    jobs = GaugeMetricFamily(
        "jobwire_queue_jobs", "Jobs of a queue by state", labels=["queue", "state"]
    )
    oldest = _gauge("jobwire_queue_oldest_waiting_seconds", "Waiting time of the next job")
    paused = _gauge("jobwire_queue_paused", "1 while a queue is paused")
    stalled = _gauge("jobwire_queue_stalled", "Active jobs without a lock")
    ended = CounterMetricFamily(
        "jobwire_queue_ended", "Ended jobs, where they are counted", labels=["queue", "state"]
    )
    for queue, found in figures.items():
        for state, count in found.jobs.items():
            jobs.add_metric([queue, state], count)
        oldest.add_metric([queue], found.next_age_s or 0)
        paused.add_metric([queue], int(found.paused))
        stalled.add_metric([queue], found.stalled)
        for state, count in found.ended.items():
            ended.add_metric([queue, state], count)
    return [jobs, oldest, paused, stalled, ended]


def _workers(workers: Mapping[str, int]) -> Metric:
    family = _gauge(
        "jobwire_queue_workers", "Workers that getWorkers of the official packages lists"
    )
    for queue, count in workers.items():
        family.add_metric([queue], count)
    return family


def _gauge(name: str, help_text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, help_text, labels=["queue"])
