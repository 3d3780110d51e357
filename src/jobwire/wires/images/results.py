"""Results on their way into the records (I-13).

    ResultHandler   called by the toolkit's Consumer and Reclaimer for each entry of the stream
    Reconciler      ends records that stay open although no process works on their image

An entry is acknowledged after the commit. A record that stays open has lost its upload or its
result: it becomes ready if the photo is in the bucket, else it fails as TIMEOUT. A result that
comes later still takes precedence.
"""

import hashlib
import logging
from datetime import datetime, timedelta
from typing import Final

from jobwire.objects import Bucket, Missing, ObjectsError
from jobwire.valkey import StreamMessage, ValkeyError
from jobwire.wires.images.contract import (
    STATUS_TTL_S,
    TERMINAL_STAGES,
    BadResult,
    ImageErrorCode,
    StatusField,
    now_utc,
    parse_result,
)
from jobwire.wires.images.records import ImageRecord, ImageRecords, RecordRefused
from jobwire.wires.images.status import ImageStatus

_log: Final = logging.getLogger("jobwire.images")
_PAGE: Final = 100
_NEVER_CAME: Final = "the upload or its result never arrived; upload the photo again"


class ResultUnusable(Exception):
    """An entry that no record can take: it belongs to the dead letters."""


class ResultHandler:
    """Applies results to records."""

    def __init__(self, records: ImageRecords, bucket: Bucket) -> None:
        self._records = records
        self._bucket = bucket
        self.applied = 0
        self.repeated = 0

    async def handle(self, message: StreamMessage) -> None:
        """Apply one entry; ResultUnusable if none fits, RecordsUnavailable if SQL is away."""
        try:
            result = parse_result(message.fields)
            outcome = await self._records.apply(result, now_utc())
        except (BadResult, RecordRefused) as error:
            raise ResultUnusable(str(error)) from error
        if outcome == "unknown":
            raise ResultUnusable(f"there is no record of the image {result.image_id[:64]!r}")
        if outcome == "deleted":
            # Stored by a gateway that did not see the deletion.
            record = await self._records.get(result.image_id)
            if record is not None:
                await self._bucket.delete(record.storage_key)
        self.applied += outcome == "applied"
        self.repeated += outcome == "repeated"


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
        self.reconciled = 0

    async def run(self) -> int:
        """One pass; returns how many records were ended. Raises if a server does not answer."""
        now = now_utc()
        ended = 0
        for record in await self._records.stale(now - self._patience, _PAGE):
            ended += await self._reconcile(record, now)
        self.reconciled += ended
        return ended

    async def _reconcile(self, record: ImageRecord, now: datetime) -> bool:
        try:
            status = await self._status.read(record.image_id)
            if status is not None and status[StatusField.STAGE] not in TERMINAL_STAGES:
                return False  # a gateway has it in its spool, and keeps its status alive
            found = await self._bucket.get(record.storage_key)
        except (ValkeyError, ObjectsError) as error:
            _log.warning("record not reconciled: image=%s: %s; later", record.image_id, error)
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
            }
            outcome = await self._records.reconcile(record.image_id, now, found=facts)
        _log.warning(
            "record reconciled: image=%s found=%s",
            *(record.image_id, not isinstance(found, Missing)),
        )
        return outcome == "applied"
