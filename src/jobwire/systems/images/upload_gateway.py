"""The upload gateway: the upload route, the spool, the photo workers."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from jobwire.gateway.feature import Feature
from jobwire.gateway.health import Check, HealthStatus
from jobwire.handlers.photo import (
    ErrorCode,
    PhotoError,
    PhotoOptions,
    PhotoPool,
    PoolLimits,
    SetupError,
)
from jobwire.handlers.photo.header import CONTENT_TYPES, sniff
from jobwire.handlers.photo.options import DrawnArea
from jobwire.handlers.photo.results import Certainty, Photo
from jobwire.job.errors import BackendUnavailable
from jobwire.log import component
from jobwire.settings import Settings, SettingsError
from jobwire.systems.images.http.uploads import upload_route
from jobwire.systems.images.key_files import public_key
from jobwire.systems.images.metrics import UploadCollector
from jobwire.systems.images.processing import HELD_AT_A_TIME, Processing
from jobwire.systems.images.scripts import SCRIPTS
from jobwire.systems.images.spool import Spool, SpoolInUse
from jobwire.systems.images.storage import image_status, spool_folder
from jobwire.systems.images.tokens import TokenVerifier
from jobwire.systems.images.uploads import UploadIntake, UploadLimits
from jobwire.systems.system import GatewayContext

_log = component("images")
_MEGABYTE: Final = 1 << 20


class PhotoWorkers:
    """The photo pool as the wire uses it; its processes are started by the first photo."""

    def __init__(self, limits: PoolLimits, options: PhotoOptions) -> None:
        self._pool = PhotoPool(limits, options)
        self._options = options
        self._stack = contextlib.AsyncExitStack()
        self._starting = asyncio.Lock()
        self._started = False
        self.fault = ""
        """Why photos cannot be processed on this machine."""

    async def start(self) -> None:
        """Start the processes; SetupError where a library, weights or memory are missing."""
        async with self._starting:
            if not self._started:
                try:
                    await self._stack.enter_async_context(self._pool)
                except SetupError as error:
                    self.fault = error.message
                    raise
                self._started, self.fault = True, ""

    async def content_types(self) -> Collection[str]:
        """What the processes can decode; starts them."""
        try:
            await self.start()
        except SetupError as error:
            raise BackendUnavailable(
                "photos cannot be processed now; try again later", detail=error.message
            ) from error
        return self._pool.content_types

    async def close(self) -> None:
        """Stop the processes."""
        await self._stack.aclose()

    async def process(
        self,
        source: Path,
        target: Path,
        *,
        content_type: str,
        max_bytes: int,
        areas: Sequence[Sequence[float]],
        hide_from: Certainty,
        on_step: Callable[[str], None],
    ) -> Photo:
        """Make the photo; waits for its turn."""
        if not self._started:
            try:
                await self.start()
            except SetupError as error:
                raise PhotoError(
                    ErrorCode.INTERNAL,
                    "photos cannot be processed now; try again later",
                    detail=error.message,
                ) from error
        options = replace(
            self._options,
            content_type=content_type,
            max_bytes=max_bytes,
            areas=tuple(DrawnArea(*area) for area in areas),
            hide_from=hide_from,
        )
        return await self._pool.process(source, target, options=options, on_step=on_step)


def photo_options(settings: Settings) -> PhotoOptions:
    """What is done to a photo, by the settings."""
    images = settings.images
    return PhotoOptions(
        detect=images.detectors,
        sensitivity=images.sensitivity,
        fill=images.fill,
        long_side=images.long_side,
        quality=images.quality,
        max_bytes=images.max_upload_mb * _MEGABYTE,
        max_megapixels=images.max_megapixels,
    )


@contextlib.asynccontextmanager
async def image_uploads(context: GatewayContext, *, eager: bool = False) -> AsyncGenerator[Feature]:
    """The upload gateway; while it is open, accepted images are processed.

    `eager`: start the photo workers at once, not with the first photo.
    """
    settings, connection = context.settings, context.backends.valkey
    images = settings.images
    status = image_status(settings, connection)
    await connection.load_scripts(SCRIPTS.values())
    options = photo_options(settings)
    limits = PoolLimits(
        workers=images.workers,
        # Whatever is accepted may wait: the spool is the queue. Held photos are made again.
        max_waiting=images.max_in_work + HELD_AT_A_TIME,
        pixel_budget_mb=images.pixel_budget_mb,
    )
    verifier = TokenVerifier(public_key(settings))
    photos = PhotoWorkers(limits, options)
    if eager:
        await photos.start()
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(photos.close)
        try:
            spool = Spool(spool_folder(settings))
        except SpoolInUse as error:
            raise SettingsError([str(error)]) from error
        stack.callback(spool.close)
        await asyncio.to_thread(spool.recover)
        processing = Processing(
            connection,
            status,
            spool,
            context.backends.bucket,
            photos,
            drain_s=settings.gateway.drain.total_seconds(),
            life_s=images.spool_life.total_seconds(),
            review_life_s=images.review_life.total_seconds() if images.review != "never" else None,
            holds_doubtful=images.review == "doubtful",
        )

        def unavailable() -> str | None:
            return photos.fault or processing.unavailable()

        intake = UploadIntake(
            status,
            spool,
            verifier,
            sniff=_content_type,
            decodable=photos.content_types,
            limits=UploadLimits(
                max_images=images.max_in_work, max_spool_bytes=images.spool_mb * _MEGABYTE
            ),
            unavailable=unavailable,
            accepted=processing.start,
        )
        context.streams.at_stop(processing.stop)
        async with processing.running():
            yield Feature(
                name="uploads",
                routes=[upload_route(intake, options.max_bytes)],
                checks=[
                    Check("uploads", lambda: _uploads_health(settings, processing, photos.fault))
                ],
                collectors=[UploadCollector(intake, processing, spool)],
            )
            await intake.idle()


async def _uploads_health(settings: Settings, processing: Processing, fault: str) -> HealthStatus:
    if fault:
        return HealthStatus("degraded", "photos cannot be processed on this machine", fault)
    if reason := processing.unavailable():
        return HealthStatus(
            "degraded",
            f"uploads are refused: {reason}; {processing.in_work} accepted images wait",
            "they continue when the server answers again",
        )
    if not settings.images.detectors:
        return HealthStatus("ready", "nothing is detected: faces stay visible (images.detect)")
    return HealthStatus("ready")


def _content_type(start: bytes) -> str | None:
    found = sniff(start)
    return next((name for name, kind in CONTENT_TYPES.items() if kind == found), None)
