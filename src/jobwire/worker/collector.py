"""A worker's own /metrics, on the port `worker.metrics_port`; off if that is 0.

Started by `programs`. It answers from a thread, so that a blocked event loop stays visible; it only
reads WorkerMetrics.
"""

import contextlib
from collections.abc import Generator, Iterator, Mapping
from typing import Final

from jobwire.histogram import Histogram
from jobwire.worker.metrics import Series, WorkerMetrics

try:
    from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )
    from prometheus_client.registry import Collector
except ImportError as error:  # pragma: no cover - tests have the extra
    raise ImportError(
        "worker.metrics_port needs prometheus-client: pip install 'jobwire[metrics]'"
    ) from error

_LABELS: Final = ["queue", "task"]


class WorkerCollector(Collector):
    """All metrics of a worker."""

    def __init__(self, metrics: WorkerMetrics, slots: int, maintenance: Mapping[str, int]) -> None:
        self._metrics = metrics
        self._slots = slots
        self._maintenance = maintenance

    def collect(self) -> Iterator[Metric]:
        metrics = self._metrics
        ended = CounterMetricFamily(
            "jobwire_worker_jobs", "Jobs by outcome", labels=[*_LABELS, "outcome"]
        )
        for series, task in metrics.tasks.items():
            for outcome, count in task.outcomes.items():
                ended.add_metric([*series, outcome], count)
        yield ended
        ran = {series: task.ran for series, task in metrics.tasks.items()}
        waited = {series: task.waited for series, task in metrics.tasks.items()}
        yield _histogram("jobwire_worker_job_seconds", "From start to outcome", ran)
        yield _histogram("jobwire_worker_wait_seconds", "From submission to first start", waited)
        yield GaugeMetricFamily(
            "jobwire_worker_slots", "Jobs the worker can hold", value=self._slots
        )
        yield GaugeMetricFamily("jobwire_worker_held", "Jobs the worker holds", value=metrics.held)
        maintenance = CounterMetricFamily(
            "jobwire_maintenance_runs", "Items handled by maintenance tasks", labels=["task"]
        )
        for name, count in tuple(self._maintenance.items()):
            maintenance.add_metric([name], count)
        yield maintenance


def _histogram(name: str, help_text: str, histograms: Mapping[Series, Histogram]) -> Metric:
    family = HistogramMetricFamily(name, help_text, labels=_LABELS)
    for series, times in histograms.items():
        family.add_metric(series, times.cumulated(), times.seconds)
    return family


def serving(collector: Collector, host: str, port: int) -> contextlib.AbstractContextManager[int]:
    """Answer scrapes until the context ends; OSError if the port is not available."""
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
