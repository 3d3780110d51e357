"""Results are applied to the records: none lost, none twice, none pending forever."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from jobwire.objects import Bucket, BucketConfig
from jobwire.systems.images import results
from jobwire.systems.images.contract import (
    FailedImage,
    ImageErrorCode,
    ImageKeys,
    ProcessedImage,
    Stage,
    format_time,
    now_utc,
    storage_key,
)
from jobwire.systems.images.database import database_url, migrate, open_engine
from jobwire.systems.images.records import IMAGES, ImageRecords, RecordStatus
from jobwire.systems.images.results import Reconciler, ResultHandler
from jobwire.systems.images.status import ImageStatus
from jobwire.valkey import Connection, Consumer, Reclaimer, StreamMessage
from tests.support import Fresh, Plain, clause, wait_until

# Not on the shared site, which reads results too.
KEYS = ImageKeys("{results}:")
RESULT, DEAD = KEYS.result, f"{KEYS.result}:dead"
pytestmark = pytest.mark.keeps(f"{RESULT}*")
IDLE_S = 0.6
RETRY_S = 0.02
MANY = int(os.environ.get("IMAGES_RESULTS", "1100"))


def entries(plain: Plain, stream: str) -> list[dict[str, str]]:
    found = cast("list[tuple[str, dict[str, str]]]", plain.xrange(stream))
    return [fields for _, fields in found]


def processed(image_id: str) -> ProcessedImage:
    return ProcessedImage(
        image_id=image_id,
        storage_key=storage_key(image_id),
        sha256="e3" * 32,
        etag="abc",
        file_size=1,
        content_type="image/webp",
        original_width=2,
        original_height=2,
        processed_width=1,
        processed_height=1,
        processed_at=format_time(now_utc()),
    )


@asynccontextmanager
async def opened(folder: Path, url: str = "") -> AsyncGenerator[tuple[AsyncEngine, ImageRecords]]:
    engine = open_engine(database_url(url or f"sqlite:///{folder}/records.sqlite"))
    try:
        await migrate(engine)
        yield engine, ImageRecords(engine)
    finally:
        await engine.dispose()


async def create(records: ImageRecords, image_id: str, age: timedelta = timedelta(0)) -> None:
    await records.create(
        image_id,
        tenant="default",
        content_type="image/jpeg",
        filename="",
        now=now_utc() - age,
    )


async def create_all(engine: AsyncEngine, image_ids: list[str]) -> None:
    now = now_utc()
    row = {
        "tenant": "default",
        "status": "open",
        "filename": "",
        "reconciled": False,
        "upload_type": "image/jpeg",
        "created_at": now,
        "updated_at": now,
    }
    rows = [{**row, "image_id": each, "storage_key": storage_key(each)} for each in image_ids]
    async with engine.begin() as writing:
        await writing.execute(sa.insert(IMAGES), rows)


@asynccontextmanager
async def consuming(connection: Connection, handler: ResultHandler) -> AsyncGenerator[None]:
    consumer = Consumer(
        connection,
        stream=KEYS.result,
        group="api-workers",
        consumer="api",
        handler=handler.handle,
        concurrency=64,
        count=64,
        block_s=0.2,
        idle_timeout_s=IDLE_S,
    )
    await consumer.start()
    try:
        yield
    finally:
        await consumer.stop()


@asynccontextmanager
async def reclaiming(connection: Connection, handler: ResultHandler) -> AsyncGenerator[None]:
    reclaimer = Reclaimer(
        connection,
        stream=KEYS.result,
        group="api-workers",
        consumer="api",
        handler=handler.handle,
        idle_timeout_s=IDLE_S,
        scan_interval_s=IDLE_S / 4,
    )
    await reclaimer.start()
    try:
        yield
    finally:
        await reclaimer.stop()


@clause("I-3", "I-13")
async def test_i03_no_result_is_lost_while_the_api_is_stopped(
    connection: Connection, plain: Plain, tmp_path: Path, seaweedfs: BucketConfig
) -> None:
    status = ImageStatus(connection, KEYS)
    image_ids = [f"image-{number}" for number in range(MANY)]
    later = [f"later-{number}" for number in range(150)]
    async with opened(tmp_path) as (engine, records):
        await create_all(engine, [*image_ids, *later])
        # The API is stopped, and its group was never created.
        await asyncio.gather(*(status.finish(processed(each)) for each in image_ids))
        assert plain.xlen(RESULT) == MANY
        handler = ResultHandler(records, Bucket(seaweedfs))
        async with consuming(connection, handler):
            await wait_until(lambda: handler.applied == MANY, "all results", timeout_s=100)
        assert await records.counts() == {"ready": MANY, "open": len(later)}
        # Acknowledged entries may be trimmed: about a thousand entries stay.
        async with consuming(connection, handler):
            await asyncio.gather(*(status.finish(processed(each)) for each in later))
            await wait_until(lambda: handler.applied == MANY + len(later), "the later ones")
        await create(records, "last")
        await status.finish(processed("last"))
        while plain.xlen(RESULT) > 1100:
            # Each call trims a part of the acknowledged entries.
            before = plain.xlen(RESULT)
            await status.finish(processed(Fresh()("x")))
            assert plain.xlen(RESULT) < before
        assert plain.xlen(RESULT) >= 1000
        assert "last" in [fields["image_id"] for fields in entries(plain, RESULT)]


@clause("I-3")
async def test_i03_unread_results_are_bounded(
    connection: Connection, plain: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 300
    monkeypatch.setattr("jobwire.systems.images.status.RESULT_LIMIT", limit)
    status = ImageStatus(connection, KEYS)
    await asyncio.gather(*(status.finish(processed(f"image-{each}")) for each in range(3 * limit)))
    # The server removes whole nodes of its stream, of 100 entries at most.
    assert limit <= int(str(plain.xlen(RESULT))) <= limit + 100
    assert entries(plain, RESULT)[-1]["image_id"] == f"image-{3 * limit - 1}"


@clause("I-7")
async def test_i07_an_image_ends_once(connection: Connection, plain: Plain) -> None:
    status = ImageStatus(connection, KEYS)
    await status.advance("one", Stage.QUEUED)
    await status.advance("one", Stage.ENCODING)
    failed = FailedImage(
        image_id="one",
        error_code=ImageErrorCode.TIMEOUT,
        error_message="took too long; upload it again",
        failed_at=format_time(now_utc()),
    )
    outcomes = await asyncio.gather(
        *(status.finish(result) for result in (processed("one"), failed, processed("one")))
    )
    assert outcomes == ["finished", "already", "already"]
    assert plain.xlen(RESULT) == 1
    assert await status.advance("one", Stage.UPLOADING) == "ended"
    assert plain.hget(KEYS.status("one"), "stage") == "done"


@clause("I-1")
async def test_i01_progress_never_decreases(connection: Connection, plain: Plain) -> None:
    status = ImageStatus(connection, KEYS)
    order = [Stage.QUEUED, Stage.DECODING, Stage.VALIDATING, Stage.ENCODING, Stage.PROCESSING]
    answers = [await status.advance("two", stage) for stage in order]
    assert answers == ["written", "written", "behind", "written", "behind"]
    assert plain.hget(KEYS.status("two"), "progress") == "70"
    plain.expire(KEYS.status("two"), 10)
    await status.advance("two", Stage.VALIDATING)
    assert plain.ttl(KEYS.status("two")) > 3500, "the lifetime is renewed at every write"


@clause("I-13", "I-33")
async def test_i33_a_result_without_a_record_is_a_dead_letter(
    connection: Connection, plain: Plain, tmp_path: Path, seaweedfs: BucketConfig
) -> None:
    status = ImageStatus(connection, KEYS)
    await status.finish(processed("unknown-image"))
    plain.xadd(RESULT, {"image_id": "x", "status": "done"})
    plain.xadd(RESULT, {**processed("y").fields(), "file_size": "many"})
    async with opened(tmp_path) as (_, records):
        await create(records, "known")
        await status.finish(processed("known"))
        handler = ResultHandler(records, Bucket(seaweedfs))
        async with consuming(connection, handler):
            await wait_until(lambda: plain.xlen(DEAD) == 3, "dead letters")
            await wait_until(lambda: handler.applied == 1, "the known one")
    dead = entries(plain, DEAD)
    assert len([fields for fields in dead if "unknown-image" in fields["reason"]]) == 1
    assert [fields["deliveries"] for fields in dead] == ["1", "1", "1"]


@clause("I-13", "I-33")
async def test_i33_results_wait_while_the_database_is_unavailable(
    connection: Connection, plain: Plain, tmp_path: Path, seaweedfs: BucketConfig
) -> None:
    status = ImageStatus(connection, KEYS)
    async with opened(tmp_path) as (engine, records):
        await create(records, "patient")
        handler = ResultHandler(records, Bucket(seaweedfs), retry_after_s=RETRY_S)
        async with engine.begin() as writing:
            await writing.execute(sa.text("ALTER TABLE images RENAME TO hidden"))
        tries = 0
        apply = records.apply_all

        async def counted(*args: object, **more: object) -> object:
            nonlocal tries
            tries += 1
            return await apply(*args, **more)  # pyright: ignore[reportArgumentType] - as it came

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(records, "apply_all", counted)
            async with consuming(connection, handler), reclaiming(connection, handler):
                await status.finish(processed("patient"))
                # More often than a delivery limit would allow, and for longer than the time after
                # which a reclaimer takes an entry.
                await wait_until(lambda: tries > 3 * IDLE_S / RETRY_S, "many tries")
                async with engine.begin() as writing:
                    await writing.execute(sa.text("ALTER TABLE hidden RENAME TO images"))
                await wait_until(lambda: handler.applied == 1, "the result")
        record = await records.get("patient")
        assert record is not None
        assert record.status is RecordStatus.READY
    assert plain.xlen(DEAD) == 0
    assert plain.call("XPENDING", RESULT, "api-workers") == [0, None, None, None]


@clause("I-13")
async def test_i13_results_do_not_wait_for_a_writer_that_was_cancelled(
    tmp_path: Path, seaweedfs: BucketConfig, caplog: pytest.LogCaptureFixture
) -> None:
    """Results that arrive together are written by one of their handlers. If that one is cancelled,
    the others hung until the next result came."""
    async with opened(tmp_path) as (_, records):
        handler = ResultHandler(records, Bucket(seaweedfs))
        messages = [
            StreamMessage(f"1-{number}", processed(image_id).fields())
            for number, image_id in enumerate(("first", "second", "third"))
        ]
        for image_id in ("first", "second", "third"):
            await create(records, image_id)
        blocker = sqlite3.connect(tmp_path / "records.sqlite", isolation_level=None)
        with contextlib.closing(blocker):
            blocker.execute("BEGIN EXCLUSIVE")
            first = asyncio.create_task(handler.handle(messages[0]))
            for _ in range(3):
                await asyncio.sleep(0)
            others = [asyncio.create_task(handler.handle(each)) for each in messages[1:]]
            for _ in range(3):
                await asyncio.sleep(0)
            first.cancel()
            await asyncio.wait([first])
            blocker.execute("ROLLBACK")
        async with asyncio.timeout(20):
            assert await asyncio.gather(*others) == [None, None]
            assert await handler.handle(messages[0]) is None
    gc.collect()
    assert "never retrieved" not in caplog.text


@clause("I-13")
async def test_i13_records_that_stay_open_are_ended(
    connection: Connection, tmp_path: Path, seaweedfs: BucketConfig, fresh: Fresh
) -> None:
    status = ImageStatus(connection, KEYS)
    bucket = Bucket(seaweedfs)
    lost, stored, in_work, young = (fresh(name) for name in ("lost", "stored", "work", "young"))
    async with opened(tmp_path) as (_, records):
        for image_id in (lost, stored, in_work):
            await create(records, image_id, timedelta(hours=3))
        await create(records, young)
        await bucket.put(storage_key(stored), b"a photo", content_type="image/webp")
        await status.advance(in_work, Stage.DECODING)
        reconciler = Reconciler(records, status, bucket, patience=timedelta(hours=1))
        assert await reconciler.run() == 2
        found = {each: await records.get(each) for each in (lost, stored, in_work, young)}
        states = {each: record.status for each, record in found.items() if record}
        assert states == {lost: "failed", stored: "ready", in_work: "open", young: "open"}
        record = found[lost]
        assert record is not None
        assert record.error_code == "TIMEOUT"
        record = found[stored]
        assert record is not None
        assert record.file_size == len(b"a photo")
        # The result itself arrives late, and takes precedence.
        assert await records.apply(processed(lost), now_utc()) == "applied"
        assert await reconciler.run() == 0
    await bucket.delete(storage_key(stored))


@clause("I-13", "I-38", "I-44")
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
@pytest.mark.parametrize("pages", [10, 1])
async def test_i13_held_photos_do_not_keep_other_records_open(
    connection: Connection,
    tmp_path: Path,
    seaweedfs: BucketConfig,
    fresh: Fresh,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    database: str,
    pages: int,
) -> None:
    """Regression: a page of held photos, the oldest open records, was all that was looked at."""
    monkeypatch.setattr(results, "_PAGE", 3)
    monkeypatch.setattr(results, "_PAGES", pages, raising=False)
    url = request.getfixturevalue("postgres_url") if database == "postgresql" else ""
    status = ImageStatus(connection, KEYS)
    held, lost = [fresh("held") for _ in range(6)], [fresh("lost") for _ in range(2)]
    async with opened(tmp_path, url) as (_, records):
        for image_id in held:
            await create(records, image_id, timedelta(days=1))
            await status.advance(image_id, Stage.PROCESSING)
        for image_id in lost:
            await create(records, image_id, timedelta(hours=3))
        reconciler = Reconciler(records, status, Bucket(seaweedfs), patience=timedelta(hours=1))
        # A pass goes on where the last one ended.
        passes = [await reconciler.run() for _ in range(3 if pages == 1 else 1)]
        assert (passes[-1], sum(passes)) == (2, 2)
        assert await records.count_open("default") == len(held)
        # What ends later is found from the start again.
        await status.delete(held[0])
        assert await reconciler.run() == 1
