"""The records of images in SQL: one row per image (I-14).

Used by the API. A result is applied once: a repeated one changes nothing. Every method raises
`RecordsUnavailable` if the database does not answer; all of them can be repeated.
"""

import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple

import sqlalchemy as sa
from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from jobwire.systems.images.contract import (
    FailedImage,
    ImageErrorCode,
    ImageResult,
    parse_time,
    storage_key,
)
from jobwire.systems.images.database import RecordsUnavailable, reason_of


class RecordStatus(StrEnum):
    """The state of a record."""

    OPEN = "open"
    READY = "ready"
    FAILED = "failed"
    DELETED = "deleted"


class RecordRefused(ValueError):
    """The database does not accept these values, and never will."""


_METADATA: Final = sa.MetaData()
_TIME: Final = sa.DateTime(timezone=True)
IMAGES: Final = sa.Table(
    "images",
    _METADATA,
    sa.Column("image_id", sa.String(64), primary_key=True),
    sa.Column("tenant", sa.String(64), nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("filename", sa.String(255), nullable=False),
    sa.Column("upload_type", sa.String(64), nullable=False),
    sa.Column("created_at", _TIME, nullable=False),
    sa.Column("updated_at", _TIME, nullable=False),
    sa.Column("storage_key", sa.String(255), nullable=False),
    sa.Column("sha256", sa.String(64)),
    sa.Column("etag", sa.String(128)),
    sa.Column("file_size", sa.BigInteger),
    sa.Column("content_type", sa.String(64)),
    sa.Column("original_width", sa.Integer),
    sa.Column("original_height", sa.Integer),
    sa.Column("processed_width", sa.Integer),
    sa.Column("processed_height", sa.Integer),
    sa.Column("error_code", sa.String(64)),
    sa.Column("error_message", sa.Text),
    sa.Column("ended_at", _TIME),
    sa.Column("reconciled", sa.Boolean, nullable=False),
    sa.Column("erased_at", _TIME),
    sa.Column("hidden_areas", sa.Integer),
    sa.Column("hidden_part", sa.Float),
)
_RESULT_COLUMNS: Final = (
    *("sha256", "etag", "file_size", "content_type", "original_width", "original_height"),
    *("processed_width", "processed_height", "error_code", "error_message", "ended_at"),
    *("hidden_areas", "hidden_part"),
)

Position = tuple[datetime, str]
"""Where a page of a list ends: creation and id of its last record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRecord:
    """One row."""

    image_id: str
    tenant: str
    status: RecordStatus
    filename: str
    upload_type: str
    """What the upload was announced as."""
    created_at: datetime
    updated_at: datetime
    storage_key: str
    sha256: str | None = None
    etag: str | None = None
    file_size: int | None = None
    content_type: str | None = None
    original_width: int | None = None
    original_height: int | None = None
    processed_width: int | None = None
    processed_height: int | None = None
    hidden_areas: int | None = None
    """None: not known, as with a gateway of another program; of `hidden_part` the same."""
    hidden_part: float | None = None
    error_code: str | None = None
    error_message: str | None = None
    ended_at: datetime | None = None
    reconciled: bool = False
    """Ended by the reconciler: the result itself may still come."""
    erased_at: datetime | None = None
    """When everything of a deleted image was gone; until then the eraser tries again."""

    @property
    def position(self) -> Position:
        """Where a page ends whose last record this is."""
        return self.created_at, self.image_id


CREATED: Final = "created"


class MinuteCount(NamedTuple):
    """Records of one minute since 1970: announced (`CREATED`), or ended with a status."""

    kind: str
    minute: int
    records: int


Applied = Literal["applied", "repeated", "deleted", "unknown"]


class ImageRecords:
    """The table, over an engine."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def create(
        self, image_id: str, *, tenant: str, content_type: str, filename: str, now: datetime
    ) -> ImageRecord:
        """Add the record of an announced upload."""
        record = ImageRecord(
            image_id=image_id,
            tenant=tenant,
            status=RecordStatus.OPEN,
            filename=filename,
            upload_type=content_type,
            created_at=now,
            updated_at=now,
            storage_key=storage_key(image_id),
        )
        values = {column.name: getattr(record, column.name) for column in IMAGES.columns}
        async with self._begin() as connection:
            await connection.execute(sa.insert(IMAGES).values(values))
        return record

    async def get(self, image_id: str) -> ImageRecord | None:
        """One record; None if there is none."""
        async with self._begin() as connection:
            return await _get(connection, image_id)

    async def page(
        self, *, tenant: str | None, limit: int, after: Position | None = None
    ) -> list[ImageRecord]:
        """Records, newest first, behind a position; deleted ones left out. None: all tenants."""
        wanted = (
            sa.select(IMAGES)
            .where(IMAGES.c.status != RecordStatus.DELETED)
            .order_by(IMAGES.c.created_at.desc(), IMAGES.c.image_id.desc())
            .limit(limit)
        )
        if tenant is not None:
            wanted = wanted.where(IMAGES.c.tenant == tenant)
        if after is not None:
            moment, image_id = after
            wanted = wanted.where(
                sa.or_(
                    IMAGES.c.created_at < moment,
                    sa.and_(IMAGES.c.created_at == moment, IMAGES.c.image_id < image_id),
                )
            )
        async with self._begin() as connection:
            return [_record(row) for row in (await connection.execute(wanted)).mappings()]

    async def apply(self, result: ImageResult, now: datetime) -> Applied:
        """Write one result; see `apply_all`."""
        return (await self.apply_all([result], now))[0]

    async def apply_all(self, results: Sequence[ImageResult], now: datetime) -> list[Applied]:
        """Write results in one transaction; each once, however often it is delivered (I-13).

        A result takes precedence over what the reconciler has decided.
        """
        open_ones = sa.or_(IMAGES.c.status == RecordStatus.OPEN, IMAGES.c.reconciled)
        async with self._begin() as connection:
            return [
                await _end(
                    connection, result.image_id, _values(result), now, open_ones, reconciled=False
                )
                for result in results
            ]

    async def reconcile(
        self,
        image_id: str,
        now: datetime,
        *,
        failure: tuple[ImageErrorCode, str] | None = None,
        found: dict[str, Any] | None = None,
    ) -> Applied:
        """End an open record without its result: as failed, or as ready with what was found."""
        values: dict[str, Any] = {"ended_at": now, **(found or {})}
        values["status"] = RecordStatus.FAILED if failure else RecordStatus.READY
        if failure:
            values["error_code"], values["error_message"] = str(failure[0]), failure[1]
        still_open = IMAGES.c.status == RecordStatus.OPEN
        async with self._begin() as connection:
            return await _end(connection, image_id, values, now, still_open, reconciled=True)

    async def stale(
        self, before: datetime, limit: int, after: Position | None = None
    ) -> list[ImageRecord]:
        """Open records that were created before a time, oldest first, behind a position."""
        is_stale = sa.and_(IMAGES.c.status == RecordStatus.OPEN, IMAGES.c.created_at < before)
        return await self._oldest(is_stale, limit, after)

    async def delete(self, image_id: str, now: datetime) -> None:
        """Mark a record as deleted, and blank it; its id, times and storage key are left (I-42)."""
        marked = sa.update(IMAGES).where(IMAGES.c.image_id == image_id).values(_deleted(now))
        async with self._begin() as connection:
            await connection.execute(marked)

    async def delete_ended(self, before: datetime, now: datetime, limit: int) -> int:
        """Delete the records of ended images that were created before a time; returns how many."""
        old = (
            sa.select(IMAGES.c.image_id)
            .where(
                IMAGES.c.status.in_((RecordStatus.READY, RecordStatus.FAILED)),
                IMAGES.c.created_at < before,
            )
            .limit(limit)
        )
        marked = sa.update(IMAGES).where(IMAGES.c.image_id.in_(old)).values(_deleted(now))
        async with self._begin() as connection:
            return (await connection.execute(marked)).rowcount

    async def to_erase(self, limit: int, after: Position | None = None) -> list[ImageRecord]:
        """Deleted records of which something may be left outside of the database, oldest first,
        behind a position."""
        is_left = sa.and_(IMAGES.c.status == RecordStatus.DELETED, IMAGES.c.erased_at.is_(None))
        return await self._oldest(is_left, limit, after)

    async def _oldest(
        self, condition: sa.ColumnElement[bool], limit: int, after: Position | None
    ) -> list[ImageRecord]:
        created_at, image_id = IMAGES.c.created_at, IMAGES.c.image_id
        wanted = sa.select(IMAGES).where(condition).order_by(created_at, image_id).limit(limit)
        if after is not None:
            moment, last_id = after
            behind = sa.or_(created_at > moment, image_id > last_id)
            wanted = wanted.where(created_at >= moment, behind)
        async with self._begin() as connection:
            return [_record(row) for row in (await connection.execute(wanted)).mappings()]

    async def erased(self, image_id: str, now: datetime) -> None:
        """Note that nothing of a deleted image is left; a foreign storage key goes, too."""
        noted = (
            sa.update(IMAGES)
            .where(IMAGES.c.image_id == image_id, IMAGES.c.status == RecordStatus.DELETED)
            .values(erased_at=now, storage_key=storage_key(image_id))
        )
        async with self._begin() as connection:
            await connection.execute(noted)

    async def purge(self, before: datetime, limit: int) -> int:
        """Remove records that were erased before a time; returns how many."""
        old = (
            sa.select(IMAGES.c.image_id)
            .where(IMAGES.c.status == RecordStatus.DELETED, IMAGES.c.erased_at < before)
            .limit(limit)
        )
        async with self._begin() as connection:
            removed = sa.delete(IMAGES).where(IMAGES.c.image_id.in_(old))
            return (await connection.execute(removed)).rowcount

    async def purge_surplus(self, most: int, limit: int) -> int:
        """Remove the oldest erased records of each tenant that has more than `most`, up to a limit
        each; returns how many."""
        is_erased = sa.and_(
            IMAGES.c.status == RecordStatus.DELETED, IMAGES.c.erased_at.is_not(None)
        )
        counted = sa.func.count()
        surplus = (
            sa.select(IMAGES.c.tenant, counted)
            .where(is_erased)
            .group_by(IMAGES.c.tenant)
            .having(counted > most)
        )
        removed = 0
        async with self._begin() as connection:
            for tenant, count in (await connection.execute(surplus)).all():
                oldest = (
                    sa.select(IMAGES.c.image_id)
                    .where(is_erased, IMAGES.c.tenant == tenant)
                    .order_by(IMAGES.c.erased_at)
                    .limit(min(limit, count - most))
                )
                of_tenant = sa.delete(IMAGES).where(IMAGES.c.image_id.in_(oldest))
                removed += (await connection.execute(of_tenant)).rowcount
        return removed

    async def truncate_log(self) -> None:
        """Remove earlier contents of rows from SQLite's write-ahead log, if nobody reads it now."""
        if self._engine.dialect.name == "sqlite":
            async with self._begin() as connection:
                await connection.execute(sa.text("PRAGMA wal_checkpoint(TRUNCATE)"))

    async def last_hour(
        self, *, tenant: str | None, since: datetime, limit: int
    ) -> tuple[list[MinuteCount], list[ImageRecord], int]:
        """For an operator: announced and ended records by minute, the oldest open records, and how
        many are open. None: all tenants."""
        kept = (RecordStatus.OPEN, RecordStatus.READY, RecordStatus.FAILED)
        own = sa.true() if tenant is None else IMAGES.c.tenant == tenant
        is_open = IMAGES.c.status == RecordStatus.OPEN
        parts = [
            sa.select(sa.literal(kind).label("kind"), minute.label("minute"), sa.func.count())
            .where(own, column >= since, IMAGES.c.status.in_(statuses))
            .group_by(minute)
            for kind, column, statuses in (
                (CREATED, IMAGES.c.created_at, kept),
                (RecordStatus.READY.value, IMAGES.c.ended_at, (RecordStatus.READY,)),
                (RecordStatus.FAILED.value, IMAGES.c.ended_at, (RecordStatus.FAILED,)),
            )
            for minute in [self._minute(column)]
        ]
        waiting = sa.select(IMAGES).where(own, is_open).order_by(IMAGES.c.created_at).limit(limit)
        async with self._begin() as connection:
            counted = await connection.execute(sa.union_all(*parts))
            minutes = [MinuteCount(str(kind), int(at), n) for kind, at, n in counted]
            oldest = [_record(row) for row in (await connection.execute(waiting)).mappings()]
            total = len(oldest)
            if total == limit:
                number = sa.select(sa.func.count()).select_from(IMAGES).where(own, is_open)
                total = (await connection.execute(number)).scalar_one()
            return minutes, oldest, total

    def _minute(self, column: sa.Column[datetime]) -> sa.ColumnElement[int]:
        """The minute since 1970 of a time."""
        minute = sa.extract("epoch", column).op("/")(60)
        # PostgreSQL has fractions of seconds; SQLite divides whole numbers.
        return sa.func.floor(minute) if self._engine.dialect.name == "postgresql" else minute

    async def failed(
        self, *, tenant: str | None, since: datetime, limit: int
    ) -> tuple[list[ImageRecord], int]:
        """The newest records that failed since a time, and how many did. None: all tenants."""
        own = sa.true() if tenant is None else IMAGES.c.tenant == tenant
        condition = (own, IMAGES.c.ended_at >= since, IMAGES.c.status == RecordStatus.FAILED)
        newest = sa.select(IMAGES).where(*condition).order_by(IMAGES.c.ended_at.desc()).limit(limit)
        async with self._begin() as connection:
            found = [_record(row) for row in (await connection.execute(newest)).mappings()]
            total = len(found)
            if total == limit:
                number = sa.select(sa.func.count()).select_from(IMAGES).where(*condition)
                total = (await connection.execute(number)).scalar_one()
            return found, total

    async def counts(self) -> dict[str, int]:
        """Records by status."""
        counted = sa.select(IMAGES.c.status, sa.func.count()).group_by(IMAGES.c.status)
        async with self._begin() as connection:
            return {str(status): count for status, count in await connection.execute(counted)}

    async def count_open(self, tenant: str) -> int:
        """The open records of a tenant."""
        counted = sa.select(sa.func.count()).where(
            IMAGES.c.tenant == tenant, IMAGES.c.status == RecordStatus.OPEN
        )
        async with self._begin() as connection:
            return (await connection.execute(counted)).scalar_one()

    async def ping(self) -> None:
        """Return if the database answers."""
        async with self._begin() as connection:
            await connection.execute(sa.text("SELECT 1"))

    @contextlib.asynccontextmanager
    async def _begin(self) -> AsyncGenerator[AsyncConnection]:
        try:
            async with self._engine.begin() as connection:
                yield connection
        except (DataError, IntegrityError) as error:
            raise RecordRefused(f"the database refuses the values: {reason_of(error)}") from error
        except (OSError, SQLAlchemyError) as error:
            raise RecordsUnavailable(
                "the database of images does not answer; try again later",
                detail=reason_of(error),
            ) from error


async def _end(
    connection: AsyncConnection,
    image_id: str,
    values: dict[str, Any],
    now: datetime,
    condition: sa.ColumnElement[bool],
    *,
    reconciled: bool,
) -> Applied:
    # What an earlier decision wrote must not stay beside the new one.
    whole = {**dict.fromkeys(_RESULT_COLUMNS), **values}
    ended = (
        sa.update(IMAGES)
        .where(IMAGES.c.image_id == image_id, IMAGES.c.status != RecordStatus.DELETED, condition)
        .values(**whole, updated_at=now, reconciled=reconciled)
    )
    if (await connection.execute(ended)).rowcount:
        return "applied"
    record = await _get(connection, image_id)
    if record is None:
        return "unknown"
    if record.status is not RecordStatus.DELETED:
        return "repeated"
    # Its result is in the stream: there is something to erase again.
    again = sa.update(IMAGES).where(IMAGES.c.image_id == image_id).values(erased_at=None)
    await connection.execute(again)
    return "deleted"


def _deleted(now: datetime) -> dict[str, Any]:
    """The values of a deleted record."""
    blank = dict.fromkeys(_RESULT_COLUMNS)
    return {
        **blank,
        "status": RecordStatus.DELETED,
        "filename": "",
        "updated_at": now,
        "erased_at": None,
    }


async def _get(connection: AsyncConnection, image_id: str) -> ImageRecord | None:
    found = await connection.execute(sa.select(IMAGES).where(IMAGES.c.image_id == image_id))
    row = found.mappings().one_or_none()
    return None if row is None else _record(row)


def _record(row: sa.RowMapping) -> ImageRecord:
    values: dict[str, Any] = {str(name): _in_utc(value) for name, value in row.items()}
    values["status"] = RecordStatus(values["status"])
    return ImageRecord(**values)


def _in_utc(value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    # SQLite stores no zone; times are written in UTC.
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _values(result: ImageResult) -> dict[str, Any]:
    if isinstance(result, FailedImage):
        return {
            "status": RecordStatus.FAILED,
            "error_code": str(result.error_code),
            "error_message": result.error_message,
            "ended_at": parse_time(result.failed_at),
        }
    return {
        "status": RecordStatus.READY,
        "storage_key": result.storage_key,
        "sha256": result.sha256,
        "etag": result.etag or None,
        "file_size": result.file_size,
        "content_type": result.content_type,
        "original_width": result.original_width,
        "original_height": result.original_height,
        "processed_width": result.processed_width,
        "processed_height": result.processed_height,
        "hidden_areas": result.hidden_areas,
        "hidden_part": result.hidden_part,
        "ended_at": parse_time(result.processed_at),
    }
