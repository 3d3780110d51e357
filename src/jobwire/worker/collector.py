"""The metrics of a worker for Prometheus; it only reads WorkerMetrics. Served by
`health_server.py`."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, cast

from jobwire.histogram import Histogram
from jobwire.worker.metrics import Series, WorkerMetrics

try:
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )
    from prometheus_client.exposition import make_wsgi_app  # pyright: ignore[reportUnknownVariableType] - its annotations are incomplete
    from prometheus_client.registry import Collector
except ImportError as error:  # pragma: no cover - tests have the extra
    raise ImportError(
        "worker.metrics_port needs prometheus-client: pip install 'jobwire[metrics]'"
    ) from error

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

_LABELS: Final = ["queue", "task"]


def metrics_app(collector: Collector) -> "WSGIApplication":
    """The answer to a scrape, with the figures of the process."""
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    registry.register(collector)
    return cast("WSGIApplication", make_wsgi_app(registry))


class WorkerCollector(Collector):
    """All metrics of a worker."""

    def __init__(
        self, metrics: WorkerMetrics, slots: Callable[[], int], maintenance: Mapping[str, int]
    ) -> None:
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
            "jobwire_worker_slots", "Jobs the worker can hold", value=self._slots()
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
