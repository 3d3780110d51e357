"""What a part of the product hands to the shell; made by `wiring`, mounted by `app`."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter
from prometheus_client.registry import Collector

from jobwire.gateway.health import Check, RemoteHealth
from jobwire.gateway.metrics import Scrape
from jobwire.gateway.routes import HotRoute


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """Routes, checks for /readyz and what it is told there of others, and what /metrics shows: what
    is counted in this process, and what is read from a server for each scrape."""

    name: str
    hot: Sequence[HotRoute] = ()
    routers: Sequence[APIRouter] = ()
    checks: Sequence[Check] = ()
    remote_health: RemoteHealth | None = None
    collectors: Sequence[Collector] = ()
    scrape: Scrape | None = None
