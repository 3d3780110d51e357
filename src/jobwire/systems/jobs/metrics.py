"""Metrics of the fleet for /metrics, read from the server for each scrape (O-5).

Every gateway returns the same values: scrape one, or use the maximum of all. Workers and gateways
count their own runs and requests themselves.
"""

from collections.abc import Mapping, Sequence, Set
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from jobwire.job import time_buckets
from jobwire.job.states import State
from jobwire.systems.jobs.any_shards import AnyAdmin, AnyFollower, AnyReader, check_complete
from jobwire.systems.jobs.contract import Counter, EventType, Extra, Status
from jobwire.systems.jobs.depth import Depth
from jobwire.systems.jobs.registry import RegisteredWorker, WorkerRegistry
from jobwire.systems.jobs.stats import MinuteStats

_QUANTILES: Final = (0.5, 0.9, 0.99)
_QUEUE: Final = Extra.QUEUE.value
"""The label that has the name of a queue."""
_MAX_QUEUES: Final = 1_000
_EVENTS: Final[Mapping[str, Status | Counter]] = {
    "submitted": Counter.SUBMISSIONS,
    State.DONE: Status.DONE,
    State.FAILED: Status.ERROR,
    State.CANCELED: Status.CANCELED,
    Counter.RETRIED: Counter.RETRIED,
    Counter.RELEASED: Counter.RELEASED,
    Counter.RECLAIMED: Counter.RECLAIMED,
    Counter.RECONCILED: Counter.RECONCILED,
}
"""The last two are 0 in normal operation: expired leases, and jobs without a queue entry."""


class StreamsMetrics:
    """The metrics of the Streams wire."""

    def __init__(
        self,
        reader: AnyReader,
        registry: WorkerRegistry,
        admin: AnyAdmin,
        follower: AnyFollower,
    ) -> None:
        self._reader = reader
        self._registry = registry
        self._admin = admin
        self._follower = follower

    async def read(self) -> Sequence[Metric]:
        """All metrics; BackendUnavailable if the server, or one of the shards, does not answer."""
        now = await self._reader.depth(await self._registry.queue_names())
        minutes, incomplete = await self._reader.last_hour()
        check_complete(*now.incomplete, *incomplete)
        workers = [worker for worker in await self._registry.workers() if worker.ours]
        slots = sum(worker.slots or 0 for worker in workers)
        return [
            *_depth(now),
            *_queues(now, workers, await self._admin.paused()),
            _rates(minutes[-2]),  # the last one is still running
            _times(
                "jobwire_jobs_latency_seconds",
                "Time in the queue until the first start",
                [minute.latency for minute in minutes],
            ),
            _times(
                "jobwire_jobs_duration_seconds",
                "From start to end",
                [minute.duration for minute in minutes],
            ),
            _gauge(
                "jobwire_jobs_watched", "Jobs whose events are followed", self._follower.followed
            ),
            _gauge("jobwire_workers", "Live workers", len(workers)),
            _gauge("jobwire_workers_slots", "Slots of the live workers", slots),
        ]


def _gauge(name: str, help_text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, help_text, value=value)


def _depth(depth_now: Depth) -> list[Metric]:
    states = GaugeMetricFamily(
        "jobwire_jobs", "Unfinished jobs by state and queue", labels=["state", _QUEUE]
    )
    oldest = GaugeMetricFamily(
        "jobwire_jobs_oldest_waiting_seconds", "Age of the oldest waiting job", labels=[_QUEUE]
    )
    for queue in depth_now.queues[:_MAX_QUEUES]:
        states.add_metric([State.WAITING, queue.name], queue.waiting)
        states.add_metric([State.RUNNING, queue.name], queue.running)
        oldest.add_metric([queue.name], (queue.oldest_waiting_ms or 0) / 1000)
    # Delayed jobs of all queues are in one set, suspended ones in another.
    states.add_metric(["delayed", ""], depth_now.delayed)
    states.add_metric([EventType.SUSPENDED.value, ""], depth_now.suspended)
    return [
        states,
        _gauge(
            "jobwire_jobs_due_soon", "Delayed jobs that are due within 60 s", depth_now.due_soon
        ),
        _gauge("jobwire_jobs_unfinished", "Jobs that have not ended", depth_now.unfinished),
        oldest,
    ]


def _queues(
    depth_now: Depth, workers: Sequence[RegisteredWorker], paused_names: Set[str]
) -> list[Metric]:
    paused = GaugeMetricFamily("jobwire_jobs_paused", "1 while a queue is paused", labels=[_QUEUE])
    readers = GaugeMetricFamily(
        "jobwire_jobs_queue_workers", "Live workers that read a queue", labels=[_QUEUE]
    )
    for queue in depth_now.queues[:_MAX_QUEUES]:
        paused.add_metric([queue.name], queue.name in paused_names)
        readers.add_metric([queue.name], sum(queue.name in worker.queues for worker in workers))
    return [paused, readers]


def _rates(minute: MinuteStats) -> Metric:
    rates = GaugeMetricFamily(
        "jobwire_jobs_last_minute", "Events of the last full minute", labels=["what"]
    )
    for what, counter in _EVENTS.items():
        rates.add_metric([what], minute.count(counter))
    return rates


def _times(name: str, help_text: str, buckets: Sequence[Mapping[int, int]]) -> Metric:
    times = GaugeMetricFamily(name, f"{help_text}, over the last hour", labels=["quantile"])
    found = time_buckets.quantiles_ms(time_buckets.merged(buckets), _QUANTILES)
    for share, found_ms in zip(_QUANTILES, found, strict=True):
        if found_ms is not None:
            times.add_metric([str(share)], found_ms / 1000)
    return times
