"""What one process of the bot counted, as Prometheus metrics."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from jobwire.systems.predictions.counts import Counts

_HELP = {
    "updates": ("Updates of Telegram by kind", "kind"),
    "webhooks": ("Webhooks of the provider by the status of the answer", "status"),
    "tasks": ("Tasks that this process ended, by their outcome", "outcome"),
    "passes": ("Passes over unfinished tasks", "result"),
}


class PredictionsCollector(Collector):
    """The counts of one flow."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        for event, (text, label) in _HELP.items():
            family = CounterMetricFamily(f"jobwire_predictions_{event}", text, labels=[label])
            for (name, kind), number in sorted(self._counts.events.items()):
                if name == event:
                    family.add_metric([kind], number)
            yield family
        if self._counts.open_tasks is not None:
            yield GaugeMetricFamily(
                "jobwire_predictions_open",
                "Unfinished tasks at the end of the last complete pass",
                value=self._counts.open_tasks,
            )
