"""The fleet's numbers for /metrics, read from the server for each scrape (O-5).

Every gateway tells the same: ask one, or take the maximum of all. What one process did (a worker's
runs, a gateway's requests) it counts by itself.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from jobwire.job.states import State
from jobwire.valkey import Connection
from jobwire.wires.streams.contract import Counter, Status, StreamsKeys
from jobwire.wires.streams.depth import Depth, depth
from jobwire.wires.streams.follow import Follower
from jobwire.wires.streams.registry import WorkerRegistry
from jobwire.wires.streams.stats import MinuteStats, last_hour, quantile_ms

_QUANTILES: Final = (0.5, 0.9, 0.99)
_HAPPENED: Final[Mapping[str, Status | Counter]] = {
    "submitted": Counter.SUBMISSIONS,
    State.DONE: Status.DONE,
    State.FAILED: Status.ERROR,
    State.CANCELED: Status.CANCELED,
    "tried_again": Counter.RETRIED,
    "given_back": Counter.RELEASED,
    "taken_over": Counter.RECLAIMED,
    "found_again": Counter.RECONCILED,
}
"""Of which the last two should be 0 on a good day: leases that ran out, jobs that lay nowhere."""


class StreamsMetrics:
    """What /metrics shows of the jobs' wire."""

    def __init__(
        self, connection: Connection, keys: StreamsKeys, census: WorkerRegistry, follower: Follower
    ) -> None:
        self._connection = connection
        self._keys = keys
        self._census = census
        self._follower = follower

    async def read(self) -> Sequence[Metric]:
        """Everything; GroundError where the server does not answer."""
        seen = await depth(self._connection, self._keys)
        minutes = await last_hour(self._connection, self._keys)
        workers = [worker for worker in await self._census.workers() if worker.ours]
        slots = sum(worker.slots or 0 for worker in workers)
        return [
            *_depth(seen),
            _rates(minutes[-2]),  # the last one is not over yet
            _times(
                "jobwire_jobs_latency_seconds",
                "In line until the first start",
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
            _gauge("jobwire_workers", "Workers of ours that are alive", len(workers)),
            _gauge("jobwire_workers_slots", "What they can run at a time", slots),
        ]


def _gauge(name: str, help_text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, help_text, value=value)


def _depth(seen: Depth) -> list[Metric]:
    states = GaugeMetricFamily("jobwire_jobs", "Unfinished jobs by state", labels=["state"])
    states.add_metric([State.WAITING], seen.waiting)
    states.add_metric(["delayed"], seen.delayed)
    states.add_metric([State.RUNNING], seen.running)
    oldest_s = (seen.oldest_waiting_ms or 0) / 1000
    return [
        states,
        _gauge("jobwire_jobs_unfinished", "All that have not ended", seen.unfinished),
        _gauge("jobwire_jobs_oldest_waiting_seconds", "Age of the first in line", oldest_s),
    ]


def _rates(minute: MinuteStats) -> Metric:
    happened = GaugeMetricFamily(
        "jobwire_jobs_last_minute", "What happened in the last full minute", labels=["what"]
    )
    for what, counter in _HAPPENED.items():
        happened.add_metric([what], minute.count(counter))
    return happened


def _times(name: str, help_text: str, steps: Sequence[Mapping[int, int]]) -> Metric:
    times = GaugeMetricFamily(name, f"{help_text}, over the last hour", labels=["quantile"])
    for share in _QUANTILES:
        found_ms = quantile_ms(share, steps)
        if found_ms is not None:
            times.add_metric([str(share)], found_ms / 1000)
    return times
