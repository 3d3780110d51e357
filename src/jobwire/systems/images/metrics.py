"""Metrics of images: counted in this process, and read from the result stream at a scrape."""

from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from jobwire.job.errors import BackendUnavailable
from jobwire.systems.images.contract import ImageKeys, Stage
from jobwire.systems.images.follow import StatusFollower
from jobwire.systems.images.processing import Processing
from jobwire.systems.images.results import Reconciler, ResultHandler
from jobwire.systems.images.spool import Spool
from jobwire.systems.images.uploads import UploadIntake
from jobwire.valkey import Connection, HealthChecker, ServerError, ValkeyError

_BOUNDS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class UploadCollector(Collector):
    """The upload gateway: accepted uploads, the spool, results, time spent in each stage."""

    def __init__(self, intake: UploadIntake, processing: Processing, spool: Spool) -> None:
        self._intake = intake
        self._processing = processing
        self._spool = spool
        self._stages = Histogram(
            "jobwire_images_stage_seconds",
            "Time that images spent in a stage",
            labelnames=["stage"],
            buckets=_BOUNDS_S,
            registry=None,
        )
        processing.on_duration = self._count

    def _count(self, stage: Stage, seconds: float) -> None:
        self._stages.labels(stage.value).observe(seconds)

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "jobwire_images_uploads", "Accepted uploads", value=self._intake.counts.accepted
        )
        yield CounterMetricFamily(
            "jobwire_images_upload_bytes",
            "Bytes of upload bodies, accepted or not",
            value=self._intake.counts.received_bytes,
        )
        results = CounterMetricFamily(
            "jobwire_images_results", "Published results by error code", labels=["code"]
        )
        for code, count in self._processing.results.items():
            results.add_metric([code or "none"], count)
        yield results
        yield GaugeMetricFamily(
            "jobwire_images_spooled", "Images in progress or waiting", value=self._spool.count
        )
        yield GaugeMetricFamily(
            "jobwire_images_spool_bytes", "Bytes of the spool", value=self._spool.size
        )
        yield GaugeMetricFamily(
            "jobwire_images_receiving",
            "Upload bodies that are being received",
            value=self._intake.receiving,
        )
        for family in self._stages.collect():
            # When a series began is of no use, and not in the other histograms.
            family.samples = [each for each in family.samples if not each.name.endswith("_created")]
            yield family


class ApiCollector(Collector):
    """The API: results written to records, and watchers."""

    def __init__(
        self, handler: ResultHandler, reconciler: Reconciler, follower: StatusFollower
    ) -> None:
        self._handler = handler
        self._reconciler = reconciler
        self._follower = follower

    def collect(self) -> Iterator[Metric]:
        applied = CounterMetricFamily(
            "jobwire_images_records_ended", "Records ended, by cause", labels=["cause"]
        )
        applied.add_metric(["result"], self._handler.applied)
        applied.add_metric(["reconciled"], self._reconciler.reconciled)
        yield applied
        yield CounterMetricFamily(
            "jobwire_images_results_repeated",
            "Results that had been applied before",
            value=self._handler.repeated,
        )
        yield GaugeMetricFamily(
            "jobwire_images_watchers", "Open event streams", value=self._follower.watchers
        )


class ResultStreamMetrics:
    """The result stream, read at each scrape."""

    def __init__(self, connection: Connection, keys: ImageKeys, group: str) -> None:
        self._connection = connection
        self._health = HealthChecker(connection)
        self._keys = keys
        self._group = group

    async def read(self) -> Sequence[Metric]:
        """Entries, entries that are not acknowledged, dead letters."""
        stream = self._keys.result
        try:
            length = await self._connection.call("XLEN", stream)
            dead = await self._connection.call("XLEN", self._keys.dead)
            lag = (await self._health.summary(stream, self._group)).lag
            try:
                pending = (await self._connection.xpending(stream, self._group)).count
            except ServerError:
                pending = 0  # there is no group yet
        except ValkeyError as error:
            raise BackendUnavailable("Valkey does not answer", detail=str(error)) from error
        values = {
            "jobwire_images_result_entries": ("Entries of the result stream", length),
            "jobwire_images_result_lag": ("Results not delivered to the API yet", max(0, lag or 0)),
            "jobwire_images_result_pending": ("Results delivered, not acknowledged", pending),
            "jobwire_images_result_dead": ("Results in the dead-letter stream", dead),
        }
        return [
            GaugeMetricFamily(name, text, value=float(str(value)))
            for name, (text, value) in values.items()
        ]
