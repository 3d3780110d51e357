"""Builds the gateway from the features of the chosen systems."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from jobwire import __version__
from jobwire.gateway.app import Gateway
from jobwire.gateway.feature import Feature
from jobwire.gateway.health import Check, HealthStatus
from jobwire.gateway.request import ASGIApp
from jobwire.gateway.server import HttpServer
from jobwire.gateway.sse_connections import SseConnections
from jobwire.objects import ObjectsError
from jobwire.programs.page import page_feature
from jobwire.programs.part_states import parts_reader
from jobwire.programs.traces import traces
from jobwire.programs.valkey_metrics import valkey_metrics
from jobwire.settings import Loaded, Settings
from jobwire.systems.backends import Backends, open_backends
from jobwire.systems.system import GatewayContext, System

if TYPE_CHECKING:
    from jobwire.objects import Bucket
    from jobwire.valkey import Connection


async def serve_gateway(
    settings: Settings,
    systems: Sequence[System],
    listening: socket.socket,
    *,
    on_ready: Callable[[], None],
    parts_file: Path | None = None,
    loaded: Loaded | None = None,
) -> None:
    """Run the gateway on an open socket until SIGTERM or SIGINT; a second one ends it at once.

    With `loaded` it serves the page too, which shows the settings and their sources.
    """
    async with contextlib.AsyncExitStack() as stack:
        backends = await stack.enter_async_context(
            open_backends(settings, systems, "jobwire-gateway")
        )
        streams = SseConnections(settings.gateway)
        features = [_backends(backends)]
        for system in systems:
            context = GatewayContext(settings, backends.of(system), streams)
            features.append(await stack.enter_async_context(system.feature(context)))
        if loaded is not None:
            features.append(page_feature(loaded, backends))
        gateway = Gateway(
            settings.gateway,
            features,
            streams,
            version=__version__,
            supervised=parts_reader(parts_file) if parts_file else None,
        )
        server = HttpServer(gateway, settings.gateway, on_ready, _middleware(stack))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, server.stop)
        await server.run_until_stopped(listening)


def _middleware(stack: contextlib.AsyncExitStack) -> Callable[[ASGIApp], ASGIApp]:
    """Return the tracing middleware, if traces are enabled."""
    if not stack.enter_context(traces("gateway")):
        return lambda app: app
    from jobwire.gateway.tracing import traced  # late: an extra

    return traced


def _backends(backends: Backends) -> Feature:
    """The feature of the backends: no routes, only health and metrics of what is needed."""
    checks: list[Check] = []
    scrape = None
    if backends.valkey is not None:
        lease_s = backends.settings.worker.lease.total_seconds()
        probe = backends.settings.jobs.write_probe
        # On a Cluster each system may have its own node.
        connections = dict.fromkeys((backends.valkey, *backends.by_system.values()))
        for number, connection in enumerate(connections):
            name = f"valkey {connection.config.tag}" if number else "valkey"
            checks.append(Check(name, partial(_valkey_health, connection, probe, lease_s)))
        scrape = partial(valkey_metrics, backends.valkey)
    # The first has the name of the server, which `jobwire up` reports too.
    for number, (name, bucket) in enumerate(backends.buckets.items()):
        checks.append(Check(f"s3 {name}" if number else "s3", partial(_s3_health, bucket)))
    return Feature(name="backends", checks=checks, scrape=scrape)


async def _valkey_health(connection: "Connection", probe: str, lease_s: float) -> HealthStatus:
    if not connection.connected:
        return HealthStatus(
            "down",
            f"no connection to {connection.config.address}",
            "is it running? the gateway reconnects automatically",
        )
    from jobwire.doctor.valkey import node_timeout_s
    from jobwire.valkey import HealthChecker, ValkeyError

    checker = HealthChecker(connection)
    try:
        refusal = await checker.write_refusal(probe)
        if refusal is not None:
            # J-12: submissions get 503; reads are served, and what the server still accepts.
            return HealthStatus("degraded", *refusal)
        if connection.config.nodes:
            faults = await checker.cluster_faults(node_timeout_s(lease_s))
        else:
            faults = await checker.replication_faults() if connection.config.sentinels else []
    except ValkeyError as error:
        return HealthStatus("down", str(error), "see its log")
    for fault in faults:
        return HealthStatus("degraded", f"{fault.found}: {fault.why}", fault.fix)
    return HealthStatus("ready")


async def _s3_health(bucket: "Bucket") -> HealthStatus:
    try:
        await bucket.ping()
    except ObjectsError as error:
        return HealthStatus("down", str(error), "is it running? see objects.endpoint and its keys")
    return HealthStatus("ready")
