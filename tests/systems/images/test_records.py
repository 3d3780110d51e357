"""Records of images in SQL: the same tests on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
import pytest_asyncio
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from jobwire.systems.images.contract import (
    FailedImage,
    ImageErrorCode,
    ProcessedImage,
    format_time,
    storage_key,
)
from jobwire.systems.images.database import (
    BadDatabaseUrl,
    RecordsUnavailable,
    database_url,
    migrate,
    open_engine,
)
from jobwire.systems.images.records import ImageRecords, RecordRefused, RecordStatus
from tests.support import Fresh, clause

NOW = datetime(2026, 2, 24, 10, 0, 0, 123456, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/records.sqlite"
    return request.getfixturevalue("postgres_url")


@pytest_asyncio.fixture
async def engine(url: str) -> AsyncIterator[AsyncEngine]:
    engine = open_engine(database_url(url))
    yield engine
    await engine.dispose()


@pytest_asyncio.fixture
async def records(engine: AsyncEngine) -> ImageRecords:
    await migrate(engine)
    return ImageRecords(engine)


@clause("O-6")
async def test_o06_the_files_of_the_database_are_private(tmp_path: Path) -> None:
    """Also of one that was made before, with the mode that the user's files have."""
    file = tmp_path / "records.sqlite"
    await asyncio.to_thread(file.touch, mode=0o644)
    engine = open_engine(database_url(f"sqlite:///{file}"))
    await migrate(engine)
    files = await asyncio.to_thread(lambda: list(tmp_path.iterdir()))
    modes = {each.name: each.stat().st_mode & 0o777 for each in files}
    await engine.dispose()
    assert set(modes.values()) == {0o600}, modes


def processed(image_id: str, **changes: object) -> ProcessedImage:
    values: dict[str, object] = {
        "storage_key": storage_key(image_id),
        "sha256": "e3" * 32,
        "etag": "abc123",
        "file_size": 245760,
        "content_type": "image/webp",
        "original_width": 4032,
        "original_height": 3024,
        "processed_width": 1920,
        "processed_height": 1440,
        "processed_at": format_time(NOW),
    }
    return ProcessedImage(image_id=image_id, **{**values, **changes})  # pyright: ignore[reportArgumentType] - as above


async def create(records: ImageRecords, image_id: str, **more: object) -> None:
    values: dict[str, object] = {"tenant": "default", "now": NOW, **more}
    await records.create(image_id, content_type="image/jpeg", filename="a.jpg", **values)  # pyright: ignore[reportArgumentType] - as above


@clause("I-13", "I-14")
async def test_i14_a_result_is_applied_once(records: ImageRecords) -> None:
    await create(records, "one")
    result = processed("one")
    assert await records.apply(result, NOW) == "applied"
    before = await records.get("one")
    later = NOW + timedelta(hours=2)
    assert await records.apply(result, later) == "repeated"
    failed = FailedImage(
        image_id="one",
        error_code=ImageErrorCode.TIMEOUT,
        error_message="too late",
        failed_at=format_time(later),
    )
    assert await records.apply(failed, later) == "repeated"
    record = await records.get("one")
    assert record == before
    assert record is not None
    assert record.status is RecordStatus.READY
    assert (record.sha256, record.etag, record.file_size) == ("e3" * 32, "abc123", 245760)
    assert (record.original_width, record.processed_height) == (4032, 1440)
    assert record.created_at == record.ended_at == NOW
    assert await records.apply(processed("none"), NOW) == "unknown"


@clause("I-13")
async def test_i13_a_result_takes_precedence_over_the_reconciler(records: ImageRecords) -> None:
    await create(records, "late")
    failure = (ImageErrorCode.TIMEOUT, "never came")
    assert await records.reconcile("late", NOW, failure=failure) == "applied"
    assert await records.reconcile("late", NOW, failure=failure) == "repeated"
    record = await records.get("late")
    assert record is not None
    assert (record.status, record.error_code) == (RecordStatus.FAILED, "TIMEOUT")
    assert await records.apply(processed("late"), NOW) == "applied"
    record = await records.get("late")
    assert record is not None
    assert (record.status, record.error_code, record.error_message) == ("ready", None, None)


@clause("I-14")
async def test_i14_a_result_for_a_deleted_record_is_ignored(records: ImageRecords) -> None:
    await create(records, "gone")
    await records.delete("gone", NOW)
    assert await records.apply(processed("gone"), NOW) == "deleted"
    record = await records.get("gone")
    assert record is not None
    assert record.status is RecordStatus.DELETED
    assert await records.page(tenant=None, limit=10) == []
    assert await records.counts() == {"deleted": 1}


@clause("I-11", "I-35")
async def test_i35_lists_are_newest_first_and_of_one_tenant(records: ImageRecords) -> None:
    for number in range(5):
        # Two of them at the same moment: the id decides.
        await create(records, f"a{number}", tenant="a", now=NOW + timedelta(seconds=number // 2))
    await create(records, "b0", tenant="b", now=NOW + timedelta(days=1))
    seen: list[str] = []
    after = None
    while page := await records.page(tenant="a", limit=2, after=after):
        seen += [record.image_id for record in page]
        after = (page[-1].created_at, page[-1].image_id)
    assert seen == ["a4", "a3", "a2", "a1", "a0"]
    everything = await records.page(tenant=None, limit=10)
    assert [record.image_id for record in everything] == ["b0", *seen]


@clause("I-13", "I-42")
@pytest.mark.parametrize("kind", ["stale", "to_erase"])
async def test_i13_open_and_deleted_records_are_read_by_pages(
    records: ImageRecords, kind: str
) -> None:
    """Regression: each read began with the oldest, so those behind a page were never seen."""
    image_ids = [f"a{number}" for number in range(7)]
    for number, image_id in reversed([*enumerate(image_ids)]):
        # Three of them at the same moment: the id decides.
        await create(records, image_id, now=NOW + timedelta(seconds=number // 3))
        if kind == "to_erase":
            await records.delete(image_id, NOW)
    later = NOW + timedelta(days=1)
    seen: list[str] = []
    after = None
    while page := (
        await records.stale(later, 2, after)
        if kind == "stale"
        else await records.to_erase(2, after)
    ):
        seen += [record.image_id for record in page]
        after = page[-1].position
    assert seen == image_ids


@clause("I-14")
async def test_i14_migrations_upgrade_an_older_database(engine: AsyncEngine) -> None:
    await migrate(engine, "0001")
    row = {"moment": NOW, "key": "images/old.webp"}
    async with engine.begin() as connection:
        await connection.execute(
            sa.text(
                "INSERT INTO images (image_id, status, filename, upload_type, created_at,"
                " updated_at, storage_key) VALUES ('old', 'open', 'x.jpg', 'image/jpeg',"
                " :moment, :moment, :key)"
            ).bindparams(sa.bindparam("moment", type_=sa.DateTime(timezone=True))),
            row,
        )
    # Several programs start at once.
    await asyncio.gather(*(migrate(engine) for _ in range(3)))
    records = ImageRecords(engine)
    record = await records.get("old")
    assert record is not None
    assert (record.tenant, record.reconciled, record.created_at) == ("default", False, NOW)
    assert await records.apply(processed("old"), NOW) == "applied"


@clause("I-14", "I-42")
async def test_i42_records_that_an_earlier_version_deleted_are_blanked(
    engine: AsyncEngine,
) -> None:
    await migrate(engine, "0003")
    row = {"moment": NOW, "hash": "e3" * 32}
    async with engine.begin() as connection:
        await connection.execute(
            sa.text(
                "INSERT INTO images (image_id, tenant, status, filename, upload_type, created_at,"
                " updated_at, storage_key, sha256, file_size, ended_at, reconciled) VALUES"
                " ('gone', 'acme', 'deleted', 'passport.jpg', 'image/jpeg', :moment, :moment,"
                " 'images/gone.webp', :hash, 9, :moment, false),"
                " ('kept', 'acme', 'ready', 'tree.jpg', 'image/jpeg', :moment, :moment,"
                " 'images/kept.webp', :hash, 9, :moment, false)"
            ).bindparams(sa.bindparam("moment", type_=sa.DateTime(timezone=True))),
            row,
        )
    await migrate(engine)
    records = ImageRecords(engine)
    (gone,) = await records.to_erase(10)
    assert (gone.image_id, gone.filename, gone.sha256, gone.file_size) == ("gone", "", None, None)
    kept = await records.get("kept")
    assert kept is not None
    assert (kept.filename, kept.sha256, kept.file_size) == ("tree.jpg", "e3" * 32, 9)


@clause("I-42")
async def test_i42_a_result_for_an_erased_record_is_erased_again(records: ImageRecords) -> None:
    await create(records, "gone")
    await records.apply(processed("gone", storage_key="images/jane-doe.webp"), NOW)
    await records.delete("gone", NOW)
    record = await records.get("gone")
    assert record is not None
    assert (record.filename, record.sha256, record.etag, record.file_size) == ("", None, None, None)
    assert (record.original_width, record.processed_height, record.ended_at) == (None, None, None)
    assert record.storage_key == "images/jane-doe.webp", "its object may have to be deleted again"
    await records.erased("gone", NOW)
    assert await records.to_erase(10) == []
    record = await records.get("gone")
    assert record is not None
    assert record.storage_key == storage_key("gone")
    assert await records.apply(processed("gone"), NOW) == "deleted"
    assert [each.image_id for each in await records.to_erase(10)] == ["gone"]
    await records.erased("gone", NOW)
    assert await records.purge(NOW, 10) == 0
    assert await records.purge(NOW + timedelta(seconds=1), 10) == 1
    assert await records.get("gone") is None


@clause("I-14")
async def test_i14_an_invalid_row_is_refused_and_not_an_outage(
    records: ImageRecords,
) -> None:
    await create(records, "twice")
    with pytest.raises(RecordRefused):
        await create(records, "twice")


@clause("I-14")
@pytest.mark.parametrize(
    ("given", "driver", "database"),
    [
        (
            "postgres://follow:follow@postgres:5432/follow?sslmode=disable",
            "postgresql+psycopg",
            "follow",
        ),
        ("postgresql://u@h/db", "postgresql+psycopg", "db"),
        ("sqlite:////tmp/x.sqlite", "sqlite+aiosqlite", "/tmp/x.sqlite"),
    ],
)
def test_i14_database_urls_of_other_tools_are_accepted(
    given: str, driver: str, database: str
) -> None:
    url = database_url(given)
    assert (url.drivername, url.database) == (driver, database)


@clause("I-14")
@pytest.mark.parametrize("given", ["mysql://u:secret@h/db", "nonsense", "http://h"])
def test_i14_other_databases_are_refused_without_their_password(given: str) -> None:
    with pytest.raises(BadDatabaseUrl) as refused:
        database_url(given)
    assert "secret" not in str(refused.value)


@clause("I-14")
async def test_i14_the_database_url_of_the_source_document_works(postgres_url: str) -> None:
    url = postgres_url.replace("postgresql://", "postgres://") + "?sslmode=disable"
    engine = open_engine(database_url(url))
    try:
        await migrate(engine)
        await ImageRecords(engine).ping()
    finally:
        await engine.dispose()


@clause("I-14")
async def test_i14_a_database_with_the_encoding_sql_ascii_works(
    postgres: str, fresh: Fresh
) -> None:
    # `initdb` in a container or service without a locale makes such databases.
    name = fresh("ascii").replace("-", "_").lower()
    encoding = "ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}" {encoding}')  # pyright: ignore[reportArgumentType, reportCallIssue] - its own name
        engine = open_engine(database_url(postgres.removesuffix("/postgres") + f"/{name}"))
        try:
            await migrate(engine)
            records = ImageRecords(engine)
            await records.create(
                "one", content_type="image/jpeg", filename="été.jpg", tenant="default", now=NOW
            )
            record = await records.get("one")
            assert record is not None
            assert (record.filename, record.status) == ("été.jpg", "open")
        finally:
            await engine.dispose()
            admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')  # pyright: ignore[reportArgumentType, reportCallIssue] - as above


@clause("I-13")
async def test_i13_an_unreachable_database_is_unavailable() -> None:
    address = "postgresql://u@127.0.0.1:1/db?sslmode=disable"
    engine = open_engine(database_url(address))
    try:
        with pytest.raises(RecordsUnavailable) as away:
            await ImageRecords(engine).ping()
        assert away.value.retryable
    finally:
        await engine.dispose()


@clause("I-14", "O-11")
async def test_o11_records_are_counted_by_minute_and_listed_for_their_tenant(
    records: ImageRecords,
) -> None:
    """Times in the second half of a minute are not rounded into the next one."""
    late = NOW.replace(second=59, microsecond=900_000)
    minute = int(late.timestamp()) // 60
    for name in ("ready", "bad", "open", "older"):
        await create(records, name, tenant="acme", now=NOW - timedelta(minutes=name == "older"))
    await create(records, "other", tenant="globex")
    await records.apply(processed("ready", processed_at=format_time(late)), late)
    failure = FailedImage(
        image_id="bad",
        error_code=ImageErrorCode.DECODE_FAILED,
        error_message="not a photo",
        failed_at=format_time(late),
    )
    await records.apply(failure, late)

    since = NOW - timedelta(minutes=10)
    counts, oldest, total = await records.last_hour(tenant="acme", since=since, limit=1)
    assert sorted(counts) == [
        ("created", minute - 1, 1),
        ("created", minute, 3),
        ("failed", minute, 1),
        ("ready", minute, 1),
    ]
    assert ([record.image_id for record in oldest], total) == (["older"], 2)
    counts, oldest, total = await records.last_hour(tenant=None, since=NOW, limit=10)
    assert ("created", minute, 4) in counts
    assert [record.image_id for record in oldest] == ["older", "open", "other"]
    assert total == 3

    failed, number = await records.failed(tenant="acme", since=since, limit=1)
    assert ([record.image_id for record in failed], number) == (["bad"], 1)
    assert await records.failed(tenant="globex", since=since, limit=5) == ([], 0)
    assert await records.failed(tenant=None, since=late + timedelta(minutes=1), limit=5) == ([], 0)
