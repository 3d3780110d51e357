"""A worker's own /metrics: a small port of its own, off unless it is set (`worker.metrics_port`).

Started by wiring, beside the worker. It answers from a thread, so that a handler that blocks the
event loop does not hide that it does; it only reads what the tally has counted.
"""

import contextlib
from collections.abc import Generator, Iterator, Mapping
from typing import Final

from jobwire.worker.metrics import BOUNDS_S, Histogram, Series, WorkerMetrics

try:
    from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )
    from prometheus_client.registry import Collector
except ImportError as error:  # pragma: no cover - the extra is there in tests
    raise ImportError(
        "worker.metrics_port needs prometheus-client: pip install 'jobwire[metrics]'"
    ) from error

_LABELS: Final = ["queue", "task"]


class WorkerCollector(Collector):
    """Everything that a worker counts."""

    def __init__(self, tally: WorkerMetrics, slots: int, duties: Mapping[str, int]) -> None:
        self._tally = tally
        self._slots = slots
        self._duties = duties

    def collect(self) -> Iterator[Metric]:
        tally = self._tally
        ended = CounterMetricFamily(
            "jobwire_worker_jobs", "Jobs by how they ended here", labels=[*_LABELS, "outcome"]
        )
        for series, account in tally.tasks.items():
            for outcome, count in account.outcomes.items():
                ended.add_metric([*series, outcome], count)
        yield ended
        ran = {series: account.ran for series, account in tally.tasks.items()}
        waited = {series: account.waited for series, account in tally.tasks.items()}
        yield _histogram("jobwire_worker_job_seconds", "From start to outcome", ran)
        yield _histogram("jobwire_worker_wait_seconds", "From making to first start", waited)
        yield GaugeMetricFamily("jobwire_worker_slots", "Jobs it can hold", value=self._slots)
        yield GaugeMetricFamily("jobwire_worker_held", "Jobs it holds", value=tally.held)
        duties = CounterMetricFamily(
            "jobwire_duties_done", "What housekeeping put right", labels=["duty"]
        )
        for duty, count in tuple(self._duties.items()):
            duties.add_metric([duty], count)
        yield duties


def _histogram(name: str, help_text: str, found: Mapping[Series, Histogram]) -> Metric:
    family = HistogramMetricFamily(name, help_text, labels=_LABELS)
    for series, times in found.items():
        family.add_metric(series, list(_cumulated(times)), times.seconds)
    return family


def _cumulated(times: Histogram) -> Iterator[tuple[str, float]]:
    total = 0
    for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), tuple(times.counts), strict=True):
        total += count
        yield bound, total


def serving(collector: Collector, host: str, port: int) -> contextlib.AbstractContextManager[int]:
    """Answer scrapes from now on, until left; OSError where the port cannot be had."""
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    registry.register(collector)
    server, thread = start_http_server(port, host, registry)

    @contextlib.contextmanager
    def answering() -> Generator[int]:
        try:
            yield server.server_port
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    return answering()
