"""Erasure and retention (I-42): what is left of a deleted image, and for how long.

    DELETE      the record is blanked, then `Eraser.erase`: status, object, results in the stream
    Eraser.run  finishes what an outage interrupted, deletes images that are too old, and removes
                the records of erased ones

The upload gateway deletes what it has in its spool when it sees the deletion.
"""

import asyncio
import logging
from datetime import timedelta
from typing import Final

from jobwire.job.engine import MaintenanceResult
from jobwire.objects import Bucket, ObjectsError
from jobwire.systems.images.contract import now_utc
from jobwire.systems.images.records import ImageRecord, ImageRecords, Position
from jobwire.systems.images.status import ImageStatus
from jobwire.valkey import ValkeyError

_log: Final = logging.getLogger("jobwire.images")
_PAGE: Final = 100
_AT_A_TIME: Final = 8
_MOST_ERASED: Final = 100_000
"""Records of erased images that a tenant has at most; the oldest ones are removed early."""


class Eraser:
    """Erases deleted images."""

    def __init__(
        self,
        records: ImageRecords,
        status: ImageStatus,
        bucket: Bucket,
        *,
        keep: timedelta,
        purge_after: timedelta,
    ) -> None:
        """Images are deleted `keep` after their announcement (0: never), the records of deleted
        ones removed after `purge_after`."""
        self._records = records
        self._status = status
        self._bucket = bucket
        self._keep = keep
        self._purge_after = purge_after
        self._after: Position | None = None

    async def erase(self, record: ImageRecord) -> bool:
        """Erase what is left of a deleted image outside of its record; False if its result is not
        acknowledged yet.

        Raises if a server does not answer. In both cases `run` tries again.
        """
        image_id = record.image_id
        await self._status.delete(image_id)
        await self._bucket.delete(record.storage_key)
        if await self._status.erase_results([image_id]):
            return False
        await self._records.erased(image_id, now_utc())
        return True

    async def run(self) -> MaintenanceResult:
        """One pass, of a page each. What cannot be erased now is passed over, and tried again when
        the last page was read."""
        now = now_utc()
        old = await self._records.delete_ended(now - self._keep, now, _PAGE) if self._keep else 0
        if old:
            _log.info("images deleted by age images=%(images)s", {"images": old})
        waiting = await self._records.to_erase(_PAGE, self._after)
        erased = await self._erase_all(waiting)
        is_full = len(waiting) == _PAGE
        if not is_full:
            self._after = None
        elif erased < _PAGE:
            self._after = waiting[-1].position
        purged = await self._records.purge(now - self._purge_after, _PAGE)
        surplus = await self._records.purge_surplus(_MOST_ERASED, _PAGE)
        await self._records.truncate_log()
        # A page of which nothing can be erased, as in an outage, ends the pass.
        more = _PAGE in (old, purged) or surplus >= _PAGE or (is_full and erased > 0)
        return MaintenanceResult(erased + purged + surplus, more=more)

    async def _erase_all(self, records: list[ImageRecord]) -> int:
        limit = asyncio.Semaphore(_AT_A_TIME)

        async def erase(record: ImageRecord) -> bool:
            async with limit:
                try:
                    return await self.erase(record)
                except (ValkeyError, ObjectsError) as error:
                    _log.warning(
                        "image not erased image_id=%(image_id)s error=%(error)s; will retry",
                        {"image_id": record.image_id, "error": error},
                    )
                    return False

        return sum(await asyncio.gather(*map(erase, records)))
