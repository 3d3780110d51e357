"""Builds the gateway: its backends, and one line per feature."""

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from jobwire import __version__
from jobwire.gateway.app import Gateway
from jobwire.gateway.feature import Feature
from jobwire.gateway.health import Check, HealthStatus
from jobwire.gateway.request import ASGIApp
from jobwire.gateway.server import HttpServer
from jobwire.gateway.streams import Streams
from jobwire.log import component
from jobwire.objects import BucketConfig, ObjectsError
from jobwire.settings import Settings
from jobwire.valkey import Connection, HealthChecker, ValkeyError
from jobwire.valkey.health import OUT_OF_MEMORY
from jobwire.wiring.backends import START_TIMEOUT_S, connect
from jobwire.wiring.jobs import jobs_feature
from jobwire.wiring.parts import parts_reader
from jobwire.wiring.traces import traces

if TYPE_CHECKING:
    from jobwire.objects import Bucket

_log = component("gateway")


async def serve_gateway(
    settings: Settings,
    listening: socket.socket,
    *,
    on_ready: Callable[[], None],
    parts_file: Path | None = None,
) -> None:
    """Run the gateway on an open socket until SIGTERM or SIGINT; a second one ends it at once."""
    async with contextlib.AsyncExitStack() as stack:
        connection = await connect(settings.valkey.config(), "jobwire-gateway")
        stack.push_async_callback(connection.close)
        bucket = (
            await open_verified(settings.objects.config()) if settings.objects.endpoint else None
        )
        streams = Streams(settings.gateway)
        gateway = Gateway(
            settings.gateway,
            [
                _backends(connection, bucket),
                await stack.enter_async_context(jobs_feature(settings, connection, streams)),
            ],
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


def _backends(connection: Connection, bucket: "Bucket | None") -> Feature:
    """The feature of the backends: no routes, only health checks."""
    checks = [Check("valkey", partial(_valkey_health, connection))]
    if bucket is not None:
        checks.append(Check("s3", partial(_s3_health, bucket)))
    return Feature(name="backends", checks=checks)


async def open_verified(config: BucketConfig) -> "Bucket":
    """Open the bucket and verify its conditional writes (P-11); retry while it is unreachable."""
    from jobwire.objects import Bucket  # late: an extra that may be missing
    from jobwire.objects.probe import probe

    bucket = Bucket(config)
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            # Without concurrent writers, which take seconds on some stores (see `jobwire doctor`).
            await probe(bucket, racers=0)
        except ObjectsError as error:
            if not error.retryable or time.monotonic() > deadline_s:
                raise
            _log.warning("bucket not usable: %s; trying again", error)
            await asyncio.sleep(1.0)
        else:
            return bucket


async def _valkey_health(connection: Connection) -> HealthStatus:
    if not connection.connected:
        return HealthStatus(
            "down",
            f"no connection to {connection.config.address}",
            "is it running? the gateway reconnects automatically",
        )
    try:
        refusal = await HealthChecker(connection).write_refusal()
    except ValkeyError as error:
        return HealthStatus("down", str(error), "see its log")
    if refusal is None:
        return HealthStatus("ready")
    # J-12: submissions get 503; reads, cancels and running jobs are served.
    if refusal.code == OUT_OF_MEMORY:
        return HealthStatus(
            "degraded",
            "the server is full: it has reached maxmemory and refuses new jobs",
            "raise maxmemory, or let workers finish the stored jobs",
        )
    return HealthStatus(
        "degraded",
        f"the server refuses writes: {refusal}",
        "is it a replica, or is its disk full? see its log",
    )


async def _s3_health(bucket: "Bucket") -> HealthStatus:
    try:
        await bucket.ping()
    except ObjectsError as error:
        return HealthStatus("down", str(error), "is it running? see objects.endpoint and its keys")
    return HealthStatus("ready")
