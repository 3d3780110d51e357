"""The HTTP side, put together: its ground, and a line a room."""

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
from jobwire.wiring.backends import PATIENCE_S, connect
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
    """Run the gateway on an open socket until SIGTERM or SIGINT; a second one does not wait."""
    async with contextlib.AsyncExitStack() as ground:
        connection = await connect(settings.valkey.config(), "jobwire-gateway")
        ground.push_async_callback(connection.close)
        bucket = (
            await open_verified(settings.objects.config()) if settings.objects.endpoint else None
        )
        streams = Streams(settings.gateway)
        gateway = Gateway(
            settings.gateway,
            [
                _ground(connection, bucket),
                await ground.enter_async_context(jobs_feature(settings, connection, streams)),
            ],
            streams,
            version=__version__,
            supervised=parts_reader(parts_file) if parts_file else None,
        )
        server = HttpServer(gateway, settings.gateway, on_ready, _around(ground))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, server.stop)
        await server.run_until_stopped(listening)


def _around(ground: contextlib.AsyncExitStack) -> Callable[[ASGIApp], ASGIApp]:
    """Spans around requests, where traces are asked for."""
    if not ground.enter_context(traces("gateway")):
        return lambda app: app
    from jobwire.gateway.tracing import traced  # late: an extra

    return traced


def _ground(connection: Connection, bucket: "Bucket | None") -> Feature:
    """The servers under all rooms: no routes, only checks."""
    checks = [Check("valkey", partial(_ask_valkey, connection))]
    if bucket is not None:
        checks.append(Check("s3", partial(_ask_s3, bucket)))
    return Feature(name="ground", checks=checks)


async def open_verified(config: BucketConfig) -> "Bucket":
    """Open the bucket if its store keeps the promises that we stand on (P-11); wait for it too."""
    from jobwire.objects import Bucket  # late: an extra that a gateway may lack
    from jobwire.objects.probe import probe

    bucket = Bucket(config)
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            # Without a race, which takes seconds on some stores: the doctor holds one.
            await probe(bucket, racers=0)
        except ObjectsError as error:
            if not error.retryable or time.monotonic() > deadline_s:
                raise
            _log.warning("%s; trying again", error)
            await asyncio.sleep(1.0)
        else:
            return bucket


async def _ask_valkey(connection: Connection) -> HealthStatus:
    if not connection.connected:
        return HealthStatus(
            "down",
            f"no connection to {connection.config.address}",
            "is it running? we connect by ourselves as soon as it answers",
        )
    try:
        refusal = await HealthChecker(connection).write_refusal()
    except ValkeyError as error:
        return HealthStatus("down", str(error), "see its log")
    if refusal is None:
        return HealthStatus("ready")
    # J-12: submissions answer 503 meanwhile; reads, cancels and running jobs are served.
    if refusal.code == OUT_OF_MEMORY:
        return HealthStatus(
            "degraded",
            "the server is full: it has reached maxmemory and refuses new jobs",
            "raise maxmemory, or let workers finish the jobs that it holds",
        )
    return HealthStatus(
        "degraded",
        f"the server refuses writes: {refusal}",
        "is it a replica, or its disk full? see its log",
    )


async def _ask_s3(bucket: "Bucket") -> HealthStatus:
    try:
        await bucket.ping()
    except ObjectsError as error:
        return HealthStatus("down", str(error), "is it running? see objects.endpoint and its keys")
    return HealthStatus("ready")
