"""From an accepted upload to its published result (I-22, I-30, I-31).

    photo pipeline → bucket → result stored in the spool → original removed → result published

Each accepted upload is one task. If it is deleted, or has waited for longer than `life_s`, its
original is removed from the spool at once, also while the bucket is unreachable; what was stored of
it is deleted when the bucket answers (I-42). A crash at any point repeats the image from the spool:
stages do not fall back, and the result is published once. If Valkey or the bucket is unreachable,
tasks wait and go on; `unavailable` then says why new uploads are refused."""

import asyncio
import base64
import contextlib
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import msgspec
from msgspec.structs import replace

from jobwire.job import retry
from jobwire.job.errors import JobwireError
from jobwire.job.ids import random_fraction
from jobwire.objects import Bucket, ObjectsError
from jobwire.systems.images.area_counts import hidden_by_label
from jobwire.systems.images.contract import (
    HIDDEN_AREAS,
    HIDDEN_PART,
    INTERRUPTED,
    MOSTLY_HIDDEN,
    ORIGINAL_SIZE,
    PUBLISHED_TYPE,
    FailedImage,
    HoldReason,
    ImageErrorCode,
    ImageResult,
    ProcessedImage,
    ResultStatus,
    ReviewDecision,
    Stage,
    failed_now,
    format_part,
    format_second,
    format_time,
    now_utc,
    parse_time,
)
from jobwire.systems.images.spool import Spool, SpooledUpload, is_held, stored_result
from jobwire.systems.images.stages import ImageDeleted, StageWriter
from jobwire.systems.images.status import DrawnByReviewer, ImageStatus
from jobwire.valkey import Connection, ValkeyError

_log: Final = logging.getLogger("jobwire.images")
_BACKOFF: Final = retry.Backoff("exponential", 0.1, 5.0, 0.5)
_STORE_TRIES: Final = 4
"""Before an answer of the bucket that is not an outage (a missing permission) fails the image."""
_MAX_RESTARTS: Final = 3
_PING_S: Final = 5.0
_PING_WHILE_AWAY_S: Final = 0.5
_SWEEP_S: Final = 5.0
_REVIEW_S: Final = 1.0
"""Between two looks at the decision on a held photo."""
HELD_AT_A_TIME: Final = 4
"""Held photos that are made again at a time; any number may be held, and new uploads come too."""

_STAGES: Final = {
    "validate": Stage.VALIDATING,
    "decode": Stage.DECODING,
    "detect": Stage.PROCESSING,
    "hide": Stage.PROCESSING,
    "encode": Stage.ENCODING,
}
"""The stage of each step of the photo pipeline."""


class HiddenArea(Protocol):
    """One area that was hidden."""

    @property
    def label(self) -> str: ...


class PublishedPhoto(Protocol):
    """What the photo pipeline wrote."""

    @property
    def file_size(self) -> int: ...
    @property
    def sha256(self) -> str: ...
    @property
    def width(self) -> int: ...
    @property
    def height(self) -> int: ...
    @property
    def original_width(self) -> int: ...
    @property
    def original_height(self) -> int: ...
    @property
    def content_type(self) -> str: ...
    @property
    def hidden(self) -> Sequence[HiddenArea]: ...
    @property
    def hidden_part(self) -> float: ...
    @property
    def is_doubtful(self) -> bool: ...


class PhotoPipeline(Protocol):
    """Makes a file fit to publish; a failure is a JobwireError with a code of I-6, a retryable one
    means that there is no capacity now."""

    async def process(
        self,
        source: Path,
        target: Path,
        *,
        content_type: str,
        max_bytes: int,
        areas: Sequence[Sequence[float]],
        hide_from: Literal["sure", "doubtful", "refuted"],
        on_step: Callable[[str], None],
    ) -> PublishedPhoto: ...


class Processing:
    """Processes the uploads of a spool inside `running()`."""

    def __init__(
        self,
        connection: Connection,
        status: ImageStatus,
        spool: Spool,
        bucket: Bucket,
        photos: PhotoPipeline,
        *,
        stores: int = 4,
        drain_s: float = 5.0,
        life_s: float = 86_400.0,
        review_life_s: float | None = None,
        holds_doubtful: bool = False,
    ) -> None:
        """`stores` photos are written to the bucket at a time; an upload that has not ended after
        `life_s` fails as EXPIRED. With `review_life_s` a photo in which nothing was found is held
        for a reviewer, for that long at most (I-38); with `holds_doubtful` a doubtful one, too."""
        self._connection = connection
        self._status = status
        self._spool = spool
        self._bucket = bucket
        self._photos = photos
        self._storing = asyncio.Semaphore(stores)
        self._drain_s = drain_s
        self._life_s = life_s
        self._review_life_s = review_life_s
        self._holds_doubtful = holds_doubtful
        self._holding: set[asyncio.Task[Any]] = set()
        self._remaking = asyncio.Semaphore(HELD_AT_A_TIME)
        self._bucket_fault = ""
        self._stopping = False
        self._drain_by_s = 0.0
        self._stages: dict[str, Stage] = {}
        self._writers: dict[str, StageWriter] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._group: asyncio.TaskGroup | None = None
        self.results: Counter[str] = Counter()
        """Published results, by error code; "" is success."""
        self.on_duration: Callable[[Stage, float], None] = _ignore_duration
        """Called with the seconds that an image spent in a stage."""

    @property
    def in_work(self) -> int:
        """Accepted images without a published result."""
        return self._spool.count

    def unavailable(self) -> str | None:
        """Why no upload is accepted now (I-31); None if they are."""
        if self._stopping or self._group is None:
            return "this gateway is stopping"
        if not self._connection.connected:
            return "Valkey does not answer"
        if self._bucket_fault:
            return "the bucket does not answer"
        return None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Take up what an earlier process left, and process inside the block.

        At its end images being processed may end within the drain time; others stay in the spool.
        """
        async with asyncio.TaskGroup() as group:
            self._group = group
            loops = [
                group.create_task(self._extend_ttls(), name="images: extend lifetimes"),
                group.create_task(self._release_leftovers(), name="images: release claims"),
                group.create_task(self._watch_bucket(), name="images: watch the bucket"),
                group.create_task(self._watch_deletions(), name="images: watch deletions"),
            ]
            for entry in self._spool.entries():
                self.start(entry)
            try:
                yield
            finally:
                self.stop()
                for task in self._holding:
                    task.cancel()  # it is not waited for
                left_s = self._drain_by_s - time.monotonic()
                if self._tasks and left_s > 0:
                    await asyncio.wait(self._tasks, timeout=left_s)
                for task in (*loops, *self._tasks):
                    task.cancel()

    def stop(self) -> None:
        """Accept nothing more; the drain time begins."""
        if not self._stopping:
            self._stopping = True
            self._drain_by_s = time.monotonic() + self._drain_s

    def start(self, entry: SpooledUpload) -> None:
        """Process an accepted upload."""
        if self._group is None or self._stopping:
            return  # it stays in the spool for the next start
        task = self._group.create_task(self._end(entry), name=f"image {entry.image_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ── one image ────────────────────────────────────────────────────────────────────────────────

    async def _end(self, entry: SpooledUpload) -> None:
        """Process one upload until its result is published; any fault is repeated."""
        tries = 0
        while True:
            try:
                result = stored_result(entry)
                if result is None:
                    result = await self._make(entry, last_try=tries >= _STORE_TRIES)
                    entry = self._spool.get(entry.image_id) or entry
                    entry = await asyncio.to_thread(self._spool.finish, entry, result)
                entry, result = await self._publish(entry, result)
                if _is_withdrawn(result):
                    await self._unpublish(entry)
                if entry.held_at:
                    with contextlib.suppress(ValkeyError):  # its keys expire
                        await self._status.end_review(entry.image_id)
                self._spool.remove(entry)
                self._stages.pop(entry.image_id, None)
                break
            except Exception:  # noqa: BLE001 - an accepted image always ends
                _log.exception(
                    "image failed unexpectedly image_id=%(image_id)s; will retry",
                    {"image_id": entry.image_id},
                )
            entry = self._spool.get(entry.image_id) or entry
            tries += 1
            await asyncio.sleep(_pause_s(tries))
        code = result.error_code if isinstance(result, FailedImage) else ""
        self.results[code] += 1
        _log.info(
            "image ended image_id=%(image_id)s outcome=%(outcome)s",
            {"image_id": entry.image_id, "outcome": code or ResultStatus.PROCESSED},
        )

    async def _make(self, entry: SpooledUpload, *, last_try: bool) -> ImageResult:
        """The result: the photo is in the bucket, or the image has failed."""
        image_id = entry.image_id
        if last_try or entry.restarts > _MAX_RESTARTS:
            # An image that crashes the gateway must not do so at every start.
            return failed_now(image_id, ImageErrorCode.INTERNAL, INTERRUPTED)
        if (left_s := self._left_s(entry)) <= 0:
            return _expired(entry)
        life = asyncio.timeout(left_s)
        try:
            async with StageWriter(self._status, image_id, self._on_stage) as stages:
                self._writers[image_id] = stages
                async with life:
                    photo = await stages.unless_deleted(self._process(entry, stages))
                if reason := self._hold_reason(entry, photo):
                    entry, photo = await stages.unless_deleted(
                        self._reviewed(entry, photo, reason, stages)
                    )
                stages.write(Stage.ENCODING)
                stages.write(Stage.UPLOADING)
                etag = await self._store(entry, published_metadata(entry.size, photo), stages)
        except ImageDeleted:
            return failed_now(image_id, ImageErrorCode.CANCELED, _DELETED)
        except TimeoutError:
            if not life.expired():
                raise
            return _expired(entry)
        except _Failure as failure:
            return failure.result
        finally:
            self._writers.pop(image_id, None)
        return ProcessedImage(
            image_id=image_id,
            storage_key=entry.storage_key,
            sha256=photo.sha256,
            etag=etag,
            file_size=photo.file_size,
            content_type=photo.content_type,
            original_width=photo.original_width,
            original_height=photo.original_height,
            processed_width=photo.width,
            processed_height=photo.height,
            processed_at=format_second(now_utc()),
            hidden_areas=len(photo.hidden),
            hidden_part=photo.hidden_part,
        )

    async def _process(self, entry: SpooledUpload, stages: StageWriter) -> PublishedPhoto:
        """Make the photo; waits while the pool is full, which is no fault of the image."""
        tries = 0
        async with self._remaking if is_held(entry) else contextlib.nullcontext():
            while (photo := await self._try_process(entry, stages)) is None:
                if (left_s := self._left_s(entry)) <= 0:
                    raise _Failure(_expired(entry))
                tries += 1
                await asyncio.sleep(min(_pause_s(tries), left_s))
        return photo

    async def _try_process(
        self, entry: SpooledUpload, stages: StageWriter
    ) -> PublishedPhoto | None:
        """Make the photo; None if the pool is full."""

        def on_step(step: str) -> None:
            stage = _STAGES[step]
            # A photo that is held stays in the stage `processing`.
            if stage is not Stage.ENCODING or self._review_life_s is None:
                stages.write(stage)

        try:
            return await self._photos.process(
                self._spool.source(entry),
                self._spool.target(entry),
                content_type=entry.content_type,
                max_bytes=entry.max_size,
                areas=entry.areas,
                # For a reviewer all is hidden that may be a face, until he says otherwise.
                hide_from="sure"
                if entry.show_doubtful
                else "refuted"
                if self._holds_doubtful
                else "doubtful",
                on_step=on_step,
            )
        except JobwireError as error:
            if error.retryable:
                return None
            if error.detail:
                _log.warning(
                    "image failed image_id=%(image_id)s error=%(error)s",
                    {"image_id": entry.image_id, "error": error.detail},
                )
            raise _Failure(
                failed_now(entry.image_id, ImageErrorCode.read(error.code), error.message)
            ) from error

    def _left_s(self, entry: SpooledUpload) -> float:
        """How long the upload may still take, or wait for a reviewer."""
        life_s = self._life_s
        if is_held(entry) and self._review_life_s is not None:
            life_s = self._review_life_s
        since = entry.approved_at or entry.held_at or entry.accepted_at
        return life_s - (now_utc() - parse_time(since)).total_seconds()

    def _hold_reason(self, entry: SpooledUpload, photo: PublishedPhoto) -> str:
        """Why the photo waits for a reviewer; empty if it does not."""
        if self._review_life_s is None or entry.approved_at:
            return ""
        if entry.held_at:
            return entry.held_for or HoldReason.NONE_FOUND
        if not photo.hidden:
            return HoldReason.NONE_FOUND
        if not self._holds_doubtful:
            return ""
        if photo.is_doubtful:
            return HoldReason.DOUBTFUL
        return HoldReason.MOSTLY_HIDDEN if photo.hidden_part > MOSTLY_HIDDEN else ""

    async def _reviewed(
        self, entry: SpooledUpload, photo: PublishedPhoto, reason: str, stages: StageWriter
    ) -> tuple[SpooledUpload, PublishedPhoto]:
        """Hold the photo until a reviewer approves it (I-38). It stays in the spool; each change is
        stored before it is acted on, so a crash repeats at most the work."""
        holding = asyncio.current_task()
        assert holding is not None
        self._holding.add(holding)
        try:
            if not entry.held_at:
                entry = replace(entry, held_at=format_time(now_utc()), held_for=reason)
                await asyncio.to_thread(self._spool.update, entry)
                _log.info(
                    "photo held for review image_id=%(image_id)s reason=%(reason)s",
                    {"image_id": entry.image_id, "reason": reason},
                )
            made = ""
            while True:
                if self._left_s(entry) <= 0:
                    raise _Failure(_expired(entry))
                decision = areas = ""
                with contextlib.suppress(ValkeyError):
                    decision, areas, wanted = await self._status.hold(entry.image_id, reason, made)
                    if wanted:
                        await self._show(entry)
                if areas != made:
                    made = areas
                    drawn = msgspec.json.decode(areas, type=DrawnByReviewer)
                    shown = drawn.show_doubtful
                    changed = replace(entry, areas=drawn.areas, show_doubtful=shown)
                    if changed != entry:
                        entry = changed
                        await asyncio.to_thread(self._spool.update, entry)
                        photo = await self._process(entry, stages)
                    if not decision:
                        continue  # it is made now
                if decision == ReviewDecision.REJECT:
                    raise _Failure(failed_now(entry.image_id, ImageErrorCode.CANCELED, _REJECTED))
                if decision == ReviewDecision.APPROVE:
                    entry = replace(entry, approved_at=format_time(now_utc()))
                    await asyncio.to_thread(self._spool.update, entry)
                    return entry, photo
                await asyncio.sleep(_REVIEW_S)
        finally:
            self._holding.discard(holding)

    async def _show(self, entry: SpooledUpload) -> None:
        picture = await asyncio.to_thread(self._spool.target(entry).read_bytes)
        await self._status.show_held(entry.image_id, base64.b64encode(picture).decode())

    async def _store(
        self, entry: SpooledUpload, metadata: Mapping[str, str], stages: StageWriter
    ) -> str:
        """Write the photo to the bucket, waiting while it is unreachable; returns its ETag.

        A write is not cancelled by a deletion, nor when the upload expires: it could arrive later.
        """
        body = await asyncio.to_thread(self._spool.target(entry).read_bytes)
        tries = refusals = 0
        while True:
            try:
                async with self._storing:
                    version = await self._bucket.put(
                        entry.storage_key, body, content_type=PUBLISHED_TYPE, metadata=metadata
                    )
            except ObjectsError as error:
                _log.warning(
                    "photo not stored image_id=%(image_id)s error=%(error)s",
                    {"image_id": entry.image_id, "error": error},
                )
                tries += 1
                if error.retryable:
                    self._bucket_fault = str(error)
                else:
                    refusals += 1
                if refusals >= _STORE_TRIES:
                    failed = failed_now(entry.image_id, ImageErrorCode.UPLOAD_FAILED, _NOT_STORED)
                    raise _Failure(failed) from error
                if stages.is_deleted:
                    raise ImageDeleted from error
                if (left_s := self._left_s(entry)) <= 0:
                    raise _Failure(_expired(entry)) from error
                await asyncio.sleep(min(_pause_s(tries), left_s))
            else:
                self._bucket_fault = ""
                return version.e_tag.strip('"')

    async def _publish(
        self, entry: SpooledUpload, result: ImageResult
    ) -> tuple[SpooledUpload, ImageResult]:
        """Publish the result; returns what was published. Waits while Valkey is away."""
        tries = 0
        while True:
            try:
                outcome = await self._status.finish(result)
            except ValkeyError as error:
                tries += 1
                if tries == 1:
                    _log.warning(
                        "result not published image_id=%(image_id)s error=%(error)s; will retry",
                        {"image_id": entry.image_id, "error": error},
                    )
                await asyncio.sleep(_pause_s(tries))
                continue
            if outcome != "canceled":
                return entry, result
            # Deleted after the photo was stored: nothing of it stays in the bucket.
            result = failed_now(entry.image_id, ImageErrorCode.CANCELED, _DELETED)
            entry = await asyncio.to_thread(self._spool.finish, entry, result)

    async def _unpublish(self, entry: SpooledUpload) -> None:
        """Delete what was stored of an image that is deleted or has expired, in all versions."""
        tries = 0
        while True:
            try:
                await self._bucket.delete(entry.storage_key)
                return
            except ObjectsError as error:
                tries += 1
                _log.warning(
                    "photo not deleted image_id=%(image_id)s error=%(error)s; will retry",
                    {"image_id": entry.image_id, "error": error},
                )
                await asyncio.sleep(_pause_s(tries))

    def _on_stage(self, image_id: str, stage: Stage, before: Stage | None, spent_s: float) -> None:
        self._stages[image_id] = stage
        if before is not None:
            self.on_duration(before, spent_s)

    # ── loops ────────────────────────────────────────────────────────────────────────────────────

    async def _extend_ttls(self) -> None:
        """Renew the keys of every spooled image, so that none expires before its result (I-7)."""
        while True:
            await asyncio.sleep(self._status.ttl_s / 4)
            for entry in self._spool.entries():
                if entry.result is not None:
                    continue
                stage = self._stages.get(entry.image_id, Stage.QUEUED)
                with contextlib.suppress(ValkeyError):
                    await self._status.extend_ttl(entry.image_id, stage)

    async def _release_leftovers(self) -> None:
        """Release the claims of bodies that did not arrive whole (I-2)."""
        while True:
            try:
                for leftover in self._spool.leftovers():
                    await self._status.release(leftover.image_id, leftover.attempt)
                    self._spool.forget(leftover)
            except ValkeyError:
                pass
            except OSError as error:
                _log.warning(
                    "leftovers of the spool not read error=%(error)s; will retry", {"error": error}
                )
            await asyncio.sleep(_SWEEP_S)

    async def _watch_deletions(self) -> None:
        """End the images that were deleted while they wait for a worker or for the bucket."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            with contextlib.suppress(ValkeyError):
                for image_id in await self._status.deleted(list(self._writers)):
                    if (stages := self._writers.get(image_id)) is not None:
                        stages.delete()

    async def _watch_bucket(self) -> None:
        while True:
            try:
                await self._bucket.ping()
            except ObjectsError as error:
                if not self._bucket_fault:
                    _log.warning(
                        "bucket unavailable error=%(error)s; new uploads are refused",
                        {"error": error},
                    )
                self._bucket_fault = str(error)
            else:
                self._bucket_fault = ""
            await asyncio.sleep(_PING_WHILE_AWAY_S if self._bucket_fault else _PING_S)


class _Failure(Exception):
    """The image has failed with this result."""

    def __init__(self, result: FailedImage) -> None:
        super().__init__(result.error_code)
        self.result = result


_NOT_STORED: Final = "the photo could not be stored; upload it again later"
_DELETED: Final = "the image was deleted"
_REJECTED: Final = "a reviewer has rejected the photo"
_EXPIRED: Final = "the photo could not be published in time; upload it again"


def _expired(entry: SpooledUpload) -> FailedImage:
    return failed_now(entry.image_id, ImageErrorCode.EXPIRED, _EXPIRED)


def _is_withdrawn(result: ImageResult) -> bool:
    """Whether an image has ended in a way by which nothing of it may stay in the bucket."""
    withdrawn = (ImageErrorCode.CANCELED, ImageErrorCode.EXPIRED)
    return isinstance(result, FailedImage) and result.error_code in withdrawn


def published_metadata(original_size: int, photo: PublishedPhoto) -> dict[str, str]:
    """What the published object remembers of its making: the wire's result has no field for it."""
    by_label = hidden_by_label(area.label for area in photo.hidden)
    return {
        ORIGINAL_SIZE: str(original_size),
        HIDDEN_AREAS: by_label,
        HIDDEN_PART: format_part(photo.hidden_part),
    }


def _pause_s(tries: int) -> float:
    return retry.delay_s(_BACKOFF, tries, random_fraction())


def _ignore_duration(_stage: Stage, _seconds: float) -> None:
    """Default: do nothing."""
