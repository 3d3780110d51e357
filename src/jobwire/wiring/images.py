"""Images in a gateway: the API with its records, the upload gateway with its photo pipeline.

    images_api       routes of /v1/images, results into records, reconciler
    image_uploads    the upload route, spool, photo workers

Both are mounted by one gateway under `jobwire up`, and by one each as `jobwire images api` and
`jobwire images gateway`, which share only Valkey, the bucket and the public key of the tokens.
"""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jobwire.gateway.feature import Feature
from jobwire.gateway.health import Check, HealthStatus
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.streams import Streams
from jobwire.handlers.photo import PhotoOptions, PhotoPool, PoolLimits
from jobwire.handlers.photo.header import CONTENT_TYPES, sniff
from jobwire.handlers.photo.results import Photo
from jobwire.job.engine import MaintenanceResult, MaintenanceTask
from jobwire.job.errors import BackendUnavailable
from jobwire.log import component
from jobwire.maintenance import Maintenance
from jobwire.private_files import read_private, write_private
from jobwire.settings import Settings
from jobwire.valkey import Consumer, Reclaimer
from jobwire.wires.images.contract import ImageKeys
from jobwire.wires.images.database import (
    RecordsUnavailable,
    database_url,
    migrate,
    open_engine,
)
from jobwire.wires.images.follow import StatusChange, StatusFollower
from jobwire.wires.images.http.api import ApiLimits, ImageRoutes
from jobwire.wires.images.http.events import event_route, state_of
from jobwire.wires.images.http.uploads import upload_route
from jobwire.wires.images.metrics import ApiCollector, ResultStreamMetrics, UploadCollector
from jobwire.wires.images.processing import Processing
from jobwire.wires.images.records import ImageRecords
from jobwire.wires.images.results import Reconciler, ResultHandler
from jobwire.wires.images.scripts import SCRIPTS
from jobwire.wires.images.spool import Spool
from jobwire.wires.images.status import ImageStatus
from jobwire.wires.images.tokens import (
    TokenIssuer,
    TokenVerifier,
    new_key_pair,
    public_pem,
    read_private_key,
    read_public_key,
)
from jobwire.wires.images.uploads import UploadIntake, UploadLimits
from jobwire.wiring.backends import START_TIMEOUT_S

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from jobwire.objects import Bucket
    from jobwire.valkey import Connection

_log = component("images")
_MEGABYTE: Final = 1 << 20
_RECONCILE_S: Final = 60.0
_PRIVATE: Final = "token-private.pem"
_PUBLIC: Final = "token-public.pem"


def image_status(settings: Settings, connection: "Connection") -> ImageStatus:
    """The keys of images, by the sections `images` and `streams` of the settings."""
    streams = settings.streams
    keys = ImageKeys(
        settings.images.key_prefix, streams.result_stream, streams.upload_guard_key_prefix
    )
    return ImageStatus(
        connection,
        keys,
        group=streams.consumer_group,
        guard_ttl_s=streams.upload_guard_ttl.total_seconds(),
    )


# ── the API ──────────────────────────────────────────────────────────────────────────────────────


@contextlib.asynccontextmanager
async def images_api(
    settings: Settings,
    connection: "Connection",
    bucket: "Bucket",
    database: str,
    streams: Streams,
    upload_base: Callable[[HttpRequest], str],
) -> AsyncGenerator[Feature]:
    """The API; while it is open, results are read and open records reconciled."""
    images = settings.images
    status = image_status(settings, connection)
    await connection.load_scripts(SCRIPTS.values())
    engine = open_engine(database_url(database))
    try:
        await _migrated(engine)
        records = ImageRecords(engine)
        handler = ResultHandler(records, bucket)
        reconciler = Reconciler(
            records, status, bucket, patience=images.token_life + timedelta(seconds=status.ttl_s)
        )

        async def by_record(image_id: str) -> StatusChange | None:
            record = await records.get(image_id)
            return state_of(record) if record is not None else None

        follower = StatusFollower(status.keys, by_record)
        routes = ImageRoutes(
            records,
            status,
            bucket,
            TokenIssuer(read_private_key(_private_key(settings)), images.token_life),
            upload_base,
            ApiLimits(max_size=images.max_upload_mb * _MEGABYTE, url_life=images.url_life),
        )
        feature = Feature(
            name="images",
            routers=[routes.router()],
            hot=[event_route(routes, follower, streams)],
            checks=[Check("image records", lambda: _records_health(records))],
            collectors=[ApiCollector(handler, reconciler, follower)],
            scrape=ResultStreamMetrics(
                connection, status.keys, settings.streams.consumer_group
            ).read,
        )
        async with (
            follower.running(
                settings.valkey.config(), "jobwire", connect_timeout_s=START_TIMEOUT_S
            ),
            _results(settings, connection, status.keys, handler),
            _reconciling(reconciler),
        ):
            yield feature
    finally:
        await engine.dispose()


async def _migrated(engine: "AsyncEngine") -> None:
    """Make or upgrade the schema; retry while the database does not answer."""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            return await migrate(engine)
        except RecordsUnavailable as error:
            if time.monotonic() > deadline_s:
                raise
            _log.warning("database not usable: %s; trying again", error.detail)
            await asyncio.sleep(1.0)


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
                block_s=streams.block_timeout.total_seconds(),
                concurrency=_CONCURRENCY,
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
        )
        await reclaimer.start()
        stack.push_async_callback(reclaimer.stop)
        yield


_CONCURRENCY: Final = 4


@contextlib.asynccontextmanager
async def _reconciling(reconciler: Reconciler) -> AsyncGenerator[None]:
    async def run() -> MaintenanceResult:
        return MaintenanceResult(done=await reconciler.run())

    task = MaintenanceTask("reconcile images", _RECONCILE_S, run)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(Maintenance([task]).run())
        try:
            yield
        finally:
            running.cancel()


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


# ── the upload gateway ───────────────────────────────────────────────────────────────────────────


class _Photos:
    """The photo pool as the wire uses it."""

    def __init__(self, pool: PhotoPool, options: PhotoOptions) -> None:
        self._pool = pool
        self._options = options

    async def process(
        self,
        source: Path,
        target: Path,
        *,
        content_type: str,
        max_bytes: int,
        on_step: Callable[[str], None],
    ) -> Photo:
        options = replace(self._options, content_type=content_type, max_bytes=max_bytes)
        return await self._pool.process(source, target, options=options, on_step=on_step)


def photo_options(settings: Settings) -> PhotoOptions:
    """What is done to a photo, by the settings."""
    images = settings.images
    return PhotoOptions(
        detect=images.detectors,
        fill=images.fill,
        long_side=images.long_side,
        quality=images.quality,
        max_bytes=images.max_upload_mb * _MEGABYTE,
        max_megapixels=images.max_megapixels,
    )


def spool_folder(settings: Settings) -> Path:
    """The folder of accepted uploads."""
    return Path(settings.images.spool_dir or settings.data_dir / "images" / "spool")


@contextlib.asynccontextmanager
async def image_uploads(
    settings: Settings, connection: "Connection", bucket: "Bucket", streams: Streams
) -> AsyncGenerator[Feature]:
    """The upload gateway; while it is open, accepted images are processed."""
    images = settings.images
    status = image_status(settings, connection)
    await connection.load_scripts(SCRIPTS.values())
    options = photo_options(settings)
    limits = PoolLimits(
        workers=images.workers,
        # Whatever is accepted may wait: the spool is the queue.
        max_waiting=images.max_in_work + 1,
        pixel_budget_mb=images.pixel_budget_mb,
    )
    spool = Spool(spool_folder(settings))
    try:
        await asyncio.to_thread(spool.recover)
        async with PhotoPool(limits, options) as pool:
            processing = Processing(
                connection,
                status,
                spool,
                bucket,
                _Photos(pool, options),
                drain_s=settings.gateway.drain.total_seconds(),
            )
            intake = UploadIntake(
                status,
                spool,
                TokenVerifier(read_public_key(_public_key(settings))),
                sniff=_content_type,
                limits=UploadLimits(
                    max_images=images.max_in_work, max_spool_bytes=images.spool_mb * _MEGABYTE
                ),
                unavailable=processing.unavailable,
                accepted=processing.start,
            )
            streams.at_stop(processing.stop)
            async with processing.running():
                yield Feature(
                    name="uploads",
                    hot=[upload_route(intake, options.max_bytes)],
                    checks=[Check("uploads", lambda: _uploads_health(settings, processing))],
                    collectors=[UploadCollector(intake, processing, spool)],
                )
                await intake.idle()
    finally:
        spool.close()


async def _uploads_health(settings: Settings, processing: Processing) -> HealthStatus:
    if reason := processing.unavailable():
        return HealthStatus(
            "degraded",
            f"uploads are refused: {reason}; {processing.in_work} accepted images wait",
            "they go on by themselves when it is back",
        )
    if not settings.images.detectors:
        return HealthStatus("ready", "nothing is detected: faces stay visible (images.detect)")
    return HealthStatus("ready")


def _content_type(start: bytes) -> str | None:
    found = sniff(start)
    return next((name for name, kind in CONTENT_TYPES.items() if kind == found), None)


# ── keys of the tokens ───────────────────────────────────────────────────────────────────────────


def _private_key(settings: Settings) -> str:
    """The API's key: of the settings, else of the data dir, where it is made once."""
    if settings.images.token_private_key:
        return settings.images.token_private_key
    folder = settings.data_dir / "images"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / _PRIVATE
    if not file.exists():
        write_private(file, new_key_pair()[0])
    pem = read_private(file).decode()
    write_private(folder / _PUBLIC, public_pem(read_private_key(pem)))
    return pem


def _public_key(settings: Settings) -> str:
    """The upload gateway's key: of the settings, else the one that belongs to the API's."""
    if settings.images.token_public_key:
        return settings.images.token_public_key
    return public_pem(read_private_key(_private_key(settings))).decode()
