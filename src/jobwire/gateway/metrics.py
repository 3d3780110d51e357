"""/metrics: the metrics of the gateway and of all features, as Prometheus text.

Counting a request costs two dictionary look-ups and a bisection; everything slow runs at a scrape.
Figures of the queue are read from the server at each scrape: a cached figure would be wrong exactly
when no job moves.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from jobwire.api.gateway import METRICS
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.route import Route, serve
from jobwire.gateway.sse_connections import SseConnections
from jobwire.histogram import Histogram
from jobwire.job.errors import BackendUnavailable
from jobwire.log import component

_log = component("gateway.metrics")
_BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_TIMEOUT_S: Final = 5.0
_MEDIA_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"


class HttpMetrics(Collector):
    """Requests by route and status, and their durations by route."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int], int] = {}
        self._durations: dict[str, Histogram] = {}

    def count(self, route: str, status: int, seconds: float | None) -> None:
        """Count one request; `seconds` is None for an event stream."""
        key = (route, status)
        self._counts[key] = self._counts.get(key, 0) + 1
        if seconds is not None:
            durations = self._durations.get(route)
            if durations is None:
                durations = self._durations[route] = Histogram(_BOUNDS_S)
            durations.add(seconds)

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "jobwire_http_requests", "Requests by route and status", labels=["route", "status"]
        )
        for (route, status), count in self._counts.items():
            requests.add_metric([route or "unknown", str(status)], count)
        yield requests
        durations = HistogramMetricFamily(
            "jobwire_http_request_seconds", "Time to the end of the response", labels=["route"]
        )
        for route, histogram in self._durations.items():
            durations.add_metric([route or "unknown"], histogram.cumulated(), histogram.seconds)
        yield durations


class GatewayCollector(Collector):
    """The version, and the open event streams."""

    def __init__(self, version: str, streams: SseConnections) -> None:
        self._version = version
        self._streams = streams

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily("jobwire", "This program", value={"version": self._version})
        yield GaugeMetricFamily(
            "jobwire_streams_open", "Open event streams", value=self._streams.open
        )
        yield CounterMetricFamily(
            "jobwire_streams_dropped",
            "Clients disconnected because they did not read their events",
            value=self._streams.dropped,
        )


Scrape = Callable[[], Awaitable[Sequence[Metric]]]
"""Reads metrics from a server; BackendUnavailable if it does not answer."""


class ScrapeCollector(Collector):
    """The metrics that each system reads from its server at a scrape."""

    def __init__(self, scrapes: Mapping[str, Scrape]) -> None:
        self._scrapes = scrapes
        self._families: list[Metric] = []

    async def scrape(self) -> None:
        """Read the metrics of all systems concurrently."""
        succeeded = GaugeMetricFamily(
            "jobwire_readings_ok", "Whether the metrics of a system were read", labels=["system"]
        )
        results = await asyncio.gather(*map(_read, self._scrapes, self._scrapes.values()))
        for system, families in zip(self._scrapes, results, strict=True):
            succeeded.add_metric([system], 0 if families is None else 1)
        self._families = [succeeded, *(each for families in results for each in families or ())]

    def collect(self) -> Iterator[Metric]:
        yield from self._families


async def _read(system: str, scrape: Scrape) -> Sequence[Metric] | None:
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            return await scrape()
    except (BackendUnavailable, TimeoutError):
        return None
    except Exception:  # noqa: BLE001 - one system's fault must not hide the metrics of others
        _log.exception(
            "metrics could not be read system=%(system)s; they are omitted", {"system": system}
        )
        return None


def route(collectors: Iterable[Collector], scrapes: Mapping[str, Scrape]) -> Route:
    """The route; each request runs all collectors and scrapes."""
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    for collector in collectors:
        registry.register(collector)
    scraped = ScrapeCollector(scrapes)
    registry.register(scraped)

    async def metrics(_request: HttpRequest) -> Reply:
        await scraped.scrape()
        return Reply(generate_latest(registry), media_type=_MEDIA_TYPE)

    return serve(METRICS, metrics)
