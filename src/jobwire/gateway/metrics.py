"""/metrics: what the shell counts, and what the rooms hand in, as Prometheus text.

Counting a request costs two dictionary look-ups and a bisection; everything that is slow is done
when somebody asks. What only a server knows (how many wait, and for how long) is read from it for
each scrape: a number that was kept would lie when it matters most.
"""

import asyncio
from bisect import bisect_left
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

from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.routes import Doc, HotRoute
from jobwire.gateway.streams import Streams
from jobwire.job.errors import BackendUnavailable
from jobwire.log import component

_log = component("gateway.metrics")
_BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_PATIENCE_S: Final = 5.0
_MEDIA_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"


class HttpMetrics(Collector):
    """How many requests of each route ended how, and how long they took."""

    def __init__(self) -> None:
        self._ended: dict[tuple[str, int], int] = {}
        self._times: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}

    def count(self, route: str, status: int, seconds: float | None) -> None:
        """One request more; an event stream has no meaningful time."""
        key = (route, status)
        self._ended[key] = self._ended.get(key, 0) + 1
        if seconds is not None:
            times = self._times.get(route)
            if times is None:
                times = self._times[route] = [0] * (len(_BOUNDS_S) + 1)
                self._seconds[route] = 0.0
            times[bisect_left(_BOUNDS_S, seconds)] += 1
            self._seconds[route] += seconds

    def collect(self) -> Iterator[Metric]:
        ended = CounterMetricFamily(
            "jobwire_http_requests", "Requests by route and status", labels=["route", "status"]
        )
        for (route, status), count in self._ended.items():
            ended.add_metric([route or "unknown", str(status)], count)
        yield ended
        times = HistogramMetricFamily(
            "jobwire_http_request_seconds", "Time to the end of the answer", labels=["route"]
        )
        for route, counts in self._times.items():
            times.add_metric([route or "unknown"], list(_cumulated(counts)), self._seconds[route])
        yield times


def _cumulated(counts: Sequence[int]) -> Iterator[tuple[str, float]]:
    total = 0
    for bound, count in zip((*map(str, _BOUNDS_S), "+Inf"), counts, strict=True):
        total += count
        yield bound, total


class ShellCollector(Collector):
    """The version, and the open event streams."""

    def __init__(self, version: str, streams: Streams) -> None:
        self._version = version
        self._streams = streams

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily("jobwire", "This program", value={"version": self._version})
        yield GaugeMetricFamily(
            "jobwire_streams_open", "Open event streams", value=self._streams.open
        )
        yield CounterMetricFamily(
            "jobwire_streams_dropped",
            "Clients cut off because they did not read their events",
            value=self._streams.dropped,
        )


Scrape = Callable[[], Awaitable[Sequence[Metric]]]
"""Reads something from a server; GroundError where that does not answer."""


class ScrapeCollector(Collector):
    """What was read for this scrape, and whether it could be."""

    def __init__(self, readings: Mapping[str, Scrape]) -> None:
        self._readings = readings
        self._read: list[Metric] = []

    async def scrape(self) -> None:
        """Read everything, all at the same time."""
        told = GaugeMetricFamily(
            "jobwire_readings_ok", "Whether a room could read its numbers", labels=["room"]
        )
        found = await asyncio.gather(*map(_read, self._readings.values()))
        for name, families in zip(self._readings, found, strict=True):
            told.add_metric([name], 0 if families is None else 1)
        self._read = [told, *(family for families in found for family in families or ())]

    def collect(self) -> Iterator[Metric]:
        yield from self._read


async def _read(reading: Scrape) -> Sequence[Metric] | None:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            return await reading()
    except (BackendUnavailable, TimeoutError):
        return None
    except Exception:  # noqa: BLE001 - a room's fault must not hide the others' numbers
        _log.exception("numbers of a room could not be read")
        return None


def route(collectors: Iterable[Collector], readings: Mapping[str, Scrape]) -> HotRoute:
    """The route; asks every collector and reads every reading each time."""
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    for collector in collectors:
        registry.register(collector)
    fresh = ScrapeCollector(readings)
    registry.register(fresh)

    async def metrics(_: HttpRequest) -> Reply:
        await fresh.scrape()
        return Reply(generate_latest(registry), media_type=_MEDIA_TYPE)

    return HotRoute(
        "GET",
        "/metrics",
        "read",
        metrics,
        Doc(
            summary="Everything that is counted, as Prometheus text",
            tag="health",
            answer=str,
            media_type="text/plain",
            example="jobwire_streams_open 3.0\n",
        ),
    )
