"""The images API in a gateway: routes of /v1/images, results into records, reconciler."""

import contextlib
import os
import socket
import time
from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from jobwire.gateway.feature import Feature
from jobwire.gateway.health import Check, HealthStatus
from jobwire.gateway.limits import RequestRate
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.submissions import SubmissionLimits
from jobwire.gateway.watch_table import table_check
from jobwire.job.engine import MaintenanceResult, MaintenanceTask
from jobwire.job.errors import BackendUnavailable
from jobwire.log import component
from jobwire.maintenance import Maintenance
from jobwire.settings import Settings
from jobwire.systems.backends import START_TIMEOUT_S, retry_start
from jobwire.systems.images.contract import ImageKeys
from jobwire.systems.images.database import (
    database_url,
    migrate,
    open_engine,
)
from jobwire.systems.images.erasure import Eraser
from jobwire.systems.images.follow import ImageState, StatusFollower
from jobwire.systems.images.http.api import ApiLimits, ImageRoutes
from jobwire.systems.images.http.events import event_route, state_of
from jobwire.systems.images.http.operator_view import ImagesView
from jobwire.systems.images.key_files import private_key
from jobwire.systems.images.metrics import ApiCollector, ResultStreamMetrics
from jobwire.systems.images.records import ImageRecords
from jobwire.systems.images.results import Reconciler, ResultHandler
from jobwire.systems.images.scripts import SCRIPTS
from jobwire.systems.images.storage import image_status
from jobwire.systems.images.tokens import TokenIssuer
from jobwire.systems.system import GatewayContext
from jobwire.valkey import Consumer, Reclaimer
from jobwire.valkey.server_memory import ServerMemory

if TYPE_CHECKING:
    from jobwire.valkey import Connection

_log = component("images")
_MEGABYTE: Final = 1 << 20
_RECONCILE_S: Final = 60.0
_ERASE_S: Final = 60.0
_RECLAIM_IDLE_S: Final = 30.0
_RECLAIM_SCAN_S: Final = 5.0
"""A result that a killed process had read is applied by another one within both together. Processes
that live renew their results at a third of the first."""
_TENANT_MAX_OPEN: Final = 10_000
_CONCURRENCY: Final = 64
"""Results that one consumer reads and applies at a time, in one transaction."""


def _upload_address(settings: Settings, *, separate: bool) -> Callable[[HttpRequest], str]:
    """The address of the upload gateway for a caller: that of the settings, else the host name that
    the caller used, with the port of the upload gateway where it runs as a program of its own."""
    configured = settings.images.upload_url.rstrip("/")

    def address(request: HttpRequest) -> str:
        if configured:
            return configured
        host = request.headers.get(b"host", b"localhost").decode("latin-1")
        if separate:
            name = host if host.endswith("]") else host.rpartition(":")[0] or host
            host = f"{name}:{settings.images.port}"
        return f"{request.scope.get('scheme', 'http')}://{host}"

    return address


@contextlib.asynccontextmanager
async def images_api(context: GatewayContext, *, separate: bool = False) -> AsyncGenerator[Feature]:
    """The API; while it is open, results are read and open records reconciled.

    `separate`: the upload gateway is another program.
    """
    settings, backends = context.settings, context.backends
    connection, bucket = backends.valkey, backends.bucket
    images = settings.images
    issuer = TokenIssuer(private_key(settings), images.token_life)
    status = image_status(settings, connection)
    await connection.load_scripts(SCRIPTS.values())
    engine = open_engine(database_url(backends.database_url))
    try:
        await retry_start("database", lambda: migrate(engine))
        records = ImageRecords(engine)
        handler = ResultHandler(records, bucket)
        reconciler = Reconciler(
            records, status, bucket, patience=images.token_life + timedelta(seconds=status.ttl_s)
        )

        eraser = Eraser(records, status, bucket, keep=images.keep, purge_after=images.purge_after)

        async def by_record(image_id: str) -> ImageState | None:
            record = await records.get(image_id)
            return state_of(record) if record is not None else None

        async def reconcile() -> MaintenanceResult:
            return MaintenanceResult(done=await reconciler.run())

        follower = StatusFollower(status.keys, by_record)
        several = settings.gateway.several_tenants
        submissions = SubmissionLimits(
            RequestRate(settings.gateway.effective_submit_rate, time.monotonic),
            ServerMemory(connection),
        )
        routes = ImageRoutes(
            records,
            status,
            bucket,
            eraser,
            issuer,
            _upload_address(settings, separate=separate),
            ApiLimits(
                max_size=images.max_upload_mb * _MEGABYTE,
                url_life=images.url_life,
                several_tenants=several,
                tenant_max_open=images.tenant_max_open or (_TENANT_MAX_OPEN if several else 0),
            ),
            submissions,
        )
        feature = Feature(
            name="images",
            routes=[*routes.routes(), event_route(routes, follower, context.streams)],
            checks=[
                Check("image records", lambda: _records_health(records)),
                submissions.health("memory"),
                table_check("watched images", lambda: follower.table_use),
            ],
            collectors=[ApiCollector(handler, reconciler, follower)],
            scrape=ResultStreamMetrics(
                connection, status.keys, settings.streams.consumer_group
            ).read,
            view=ImagesView(records, connection, status.keys, settings.streams.consumer_group),
        )
        async with (
            follower.running(connection.config, "jobwire", connect_timeout_s=START_TIMEOUT_S),
            _results(settings, connection, status.keys, handler),
            Maintenance(
                [
                    MaintenanceTask("reconcile images", _RECONCILE_S, reconcile),
                    MaintenanceTask("erase images", _ERASE_S, eraser.run),
                ]
            ).running(),
        ):
            yield feature
    finally:
        await engine.dispose()


@contextlib.asynccontextmanager
async def _results(
    settings: Settings, connection: "Connection", keys: ImageKeys, handler: ResultHandler
) -> AsyncGenerator[None]:
    """Read results while open: consumers by setting, and one reclaimer."""
    streams = settings.streams
    name = f"jobwire-{socket.gethostname()}-{os.getpid()}"
    async with contextlib.AsyncExitStack() as stack:
        for number in range(streams.consumer_count):
            consumer = Consumer(
                connection,
                stream=keys.result,
                group=streams.consumer_group,
                consumer=f"{name}-{number}",
                handler=handler.handle,
                count=_CONCURRENCY,
                block_s=streams.block_timeout.total_seconds(),
                concurrency=_CONCURRENCY,
                idle_timeout_s=_RECLAIM_IDLE_S,
            )
            await consumer.start()
            stack.push_async_callback(consumer.stop)
        reclaimer = Reclaimer(
            connection,
            stream=keys.result,
            group=streams.consumer_group,
            consumer=name,
            handler=handler.handle,
            concurrency=_CONCURRENCY,
            idle_timeout_s=_RECLAIM_IDLE_S,
            scan_interval_s=_RECLAIM_SCAN_S,
        )
        await reclaimer.start()
        stack.push_async_callback(reclaimer.stop)
        yield


async def _records_health(records: ImageRecords) -> HealthStatus:
    try:
        await records.ping()
    except BackendUnavailable as error:
        return HealthStatus(
            "down",
            f"the database of images does not answer: {error.detail}",
            "is it running? see images.database_url",
        )
    return HealthStatus("ready")
