"""Results on their way into the records (I-13).

    ResultHandler   called by the toolkit's Consumer and Reclaimer for each entry of the stream
    Reconciler      ends records that stay open although no process works on their image

An entry is acknowledged after the commit. A record that stays open has lost its upload or its
result: it becomes ready if the photo is in the bucket, else it fails as TIMEOUT. A result that
comes later still takes precedence.
"""

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from jobwire.objects import Bucket, Missing, ObjectsError
from jobwire.systems.images.area_counts import hidden_count
from jobwire.systems.images.contract import (
    HIDDEN_PART,
    STATUS_TTL_S,
    TERMINAL_STAGES,
    BadResult,
    ImageErrorCode,
    ImageResult,
    ProcessedImage,
    StatusField,
    now_utc,
    parse_part,
    parse_result,
)
from jobwire.systems.images.database import RecordsUnavailable
from jobwire.systems.images.records import (
    Applied,
    ImageRecord,
    ImageRecords,
    Position,
    RecordRefused,
)
from jobwire.systems.images.status import ImageStatus
from jobwire.valkey import DeadLetter, NotNow, StreamMessage, ValkeyError

_log: Final = logging.getLogger("jobwire.images")
_PAGE: Final = 100
_PAGES: Final = 10
"""Of one pass of the reconciler; the next pass continues behind them."""
_NEVER_CAME: Final = "the upload or its result never arrived; upload the photo again"


class ResultHandler:
    """Applies results to records."""

    def __init__(
        self, records: ImageRecords, bucket: Bucket, *, retry_after_s: float = 1.0
    ) -> None:
        """`retry_after_s`: how soon a result is retried while the database is unavailable."""
        self._records = records
        self._batches = _Batches(records)
        self._bucket = bucket
        self._retry_after_s = retry_after_s
        self.applied = 0
        self.repeated = 0

    async def handle(self, message: StreamMessage) -> DeadLetter | NotNow | None:
        """Apply one entry; it is acknowledged after the commit.

        An entry that no record can take is dead-lettered at once. While the database is away the
        entry waits, however long that lasts (I-33).
        """
        try:
            result = parse_result(message.fields)
            outcome = await self._batches.apply(result)
            if outcome == "unknown":
                return DeadLetter(f"there is no record of the image {result.image_id[:64]!r}")
            if outcome == "deleted" and isinstance(result, ProcessedImage):
                # Stored by a gateway that did not see the deletion.
                await self._bucket.delete(result.storage_key)
        except (BadResult, RecordRefused) as error:
            return DeadLetter(str(error))
        except RecordsUnavailable as error:
            return NotNow(error.detail, self._retry_after_s)
        except ObjectsError as error:
            return NotNow(str(error), self._retry_after_s)
        self.applied += outcome == "applied"
        self.repeated += outcome == "repeated"
        return None


class _Batches:
    """Results that arrive together are written in one transaction: a commit waits for the disk."""

    def __init__(self, records: ImageRecords) -> None:
        self._records = records
        self._waiting: list[tuple[ImageResult, asyncio.Future[Applied]]] = []
        self._writing = asyncio.Lock()

    async def apply(self, result: ImageResult) -> Applied:
        """Write a result, in one commit with other results; returns after it.

        Whoever has the lock writes for all. If that one is cancelled, the next one goes on.
        """
        future: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
        self._waiting.append(mine := (result, future))
        try:
            async with self._writing:
                await asyncio.sleep(0)  # others of the same read join
                while not future.done():
                    batch, self._waiting = self._waiting[:_PAGE], self._waiting[_PAGE:]
                    await self._write(batch)
            return future.result()
        finally:
            if mine in self._waiting:
                self._waiting.remove(mine)
            if future.done():
                future.exception()  # read, although its caller was cancelled

    async def _write(self, batch: Sequence[tuple[ImageResult, "asyncio.Future[Applied]"]]) -> None:
        try:
            await self._write_batch(batch)
        except BaseException as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(_outcome_unknown(error))
            if not isinstance(error, Exception):
                raise

    async def _write_batch(
        self, batch: Sequence[tuple[ImageResult, "asyncio.Future[Applied]"]]
    ) -> None:
        try:
            outcomes = await self._records.apply_all([each for each, _ in batch], now_utc())
        except RecordRefused:
            if len(batch) == 1:
                raise
            for each in batch:  # one of them is unusable: find it
                try:
                    await self._write_batch([each])
                except RecordRefused as error:
                    each[1].set_exception(error)
            return
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            if not future.done():
                future.set_result(outcome)


def _outcome_unknown(error: BaseException) -> Exception:
    if isinstance(error, Exception):
        return error
    return RecordsUnavailable("the write was interrupted; retry", detail=type(error).__name__)


class Reconciler:
    """Ends records that stay open past their lifetime."""

    def __init__(
        self,
        records: ImageRecords,
        status: ImageStatus,
        bucket: Bucket,
        *,
        patience: timedelta = timedelta(seconds=2 * STATUS_TTL_S),
    ) -> None:
        """`patience`: a token's life and a status's life together, at least."""
        self._records = records
        self._status = status
        self._bucket = bucket
        self._patience = patience
        self._after: Position | None = None
        self.reconciled = 0

    async def run(self) -> int:
        """One pass; returns how many records were ended. Raises if a server does not answer.

        Records that stay open, as those of held photos do for days, keep no others from it.
        """
        now = now_utc()
        ended = 0
        for _ in range(_PAGES):
            page = await self._records.stale(now - self._patience, _PAGE, self._after)
            for record in page:
                ended += await self._reconcile(record, now)
            self._after = page[-1].position if len(page) == _PAGE else None
            if self._after is None:
                break
        self.reconciled += ended
        return ended

    async def _reconcile(self, record: ImageRecord, now: datetime) -> bool:
        try:
            status = await self._status.read(record.image_id)
            if status is not None and status[StatusField.STAGE] not in TERMINAL_STAGES:
                return False  # a gateway has it in its spool, and keeps its status alive
            found = await self._bucket.get(record.storage_key)
        except (ValkeyError, ObjectsError) as error:
            _log.warning(
                "record not reconciled image_id=%(image_id)s error=%(error)s; will retry later",
                {"image_id": record.image_id, "error": error},
            )
            return False
        if isinstance(found, Missing):
            failure = (ImageErrorCode.TIMEOUT, _NEVER_CAME)
            outcome = await self._records.reconcile(record.image_id, now, failure=failure)
        else:
            facts = {
                "sha256": hashlib.sha256(found.body).hexdigest(),
                "etag": found.version.e_tag.strip('"'),
                "file_size": len(found.body),
                "content_type": found.content_type,
                "hidden_areas": hidden_count(found.metadata),
                "hidden_part": parse_part(found.metadata.get(HIDDEN_PART, "")),
            }
            outcome = await self._records.reconcile(record.image_id, now, found=facts)
        _log.warning(
            "record reconciled image_id=%(image_id)s found=%(found)s",
            {"image_id": record.image_id, "found": not isinstance(found, Missing)},
        )
        return outcome == "applied"
