"""What one system adds to the gateway; created by the system's `feature.py`, mounted by `app`."""

from collections.abc import Sequence
from dataclasses import dataclass

from prometheus_client.registry import Collector

from jobwire.gateway.health import Check, RemoteHealth
from jobwire.gateway.metrics import Scrape
from jobwire.gateway.operator_view import OperatorView
from jobwire.gateway.route import Route


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """Routes; checks and remote health for /readyz; metrics that are counted in this process
    (`collectors`) and metrics that are read from a server for each scrape."""

    name: str
    routes: Sequence[Route] = ()
    checks: Sequence[Check] = ()
    remote_health: RemoteHealth | None = None
    collectors: Sequence[Collector] = ()
    scrape: Scrape | None = None
    view: OperatorView | None = None
    """Its part of /v1/overview, /v1/failures, /v1/search, /v1/workers and /v1/stats."""
