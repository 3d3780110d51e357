"""Erasure and retention (I-42): a deleted image is searched for everywhere by its marks."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import psycopg
import pytest

from jobwire.local import LocalValkey
from jobwire.objects import Bucket, BucketConfig
from jobwire.systems.images import erasure, feature
from jobwire.systems.images.contract import ImageKeys, format_time, now_utc
from jobwire.systems.images.erasure import Eraser
from jobwire.systems.images.processing import Processing
from jobwire.systems.images.spool import Spool
from jobwire.systems.images.status import ImageStatus
from jobwire.valkey import Connection
from tests.handlers.photo.images import jpeg, with_segment
from tests.support import Fresh, Plain, clause, wait_until, wait_until_sync
from tests.support.s3 import boto_client
from tests.support.s3_proxy import S3Proxy, Seen, dropped, stored_but_dropped
from tests.support.servers import plain_client, plain_from_url
from tests.systems.images.site import ImageSite, plain_photo
from tests.systems.images.test_faults import FakePhoto, Photos, accept, names
from tests.systems.images.test_results import create, opened

KEYS = ImageKeys("{erasure}:")
pytestmark = pytest.mark.keeps(f"{KEYS.result}*")
NAME, COMMENT = "passport-of-jane-doe.jpg", b"MARK-OF-THE-ORIGINAL"


def server_contents(plain: Plain) -> bytes:
    """Every key of the server with its value."""
    readers: dict[str, Callable[[str], object]] = {
        "string": plain.get,
        "hash": plain.hgetall,
        "stream": plain.xrange,
    }
    keys = cast("list[str]", plain.keys("*"))
    return repr([(key, readers[str(plain.type(key))](key)) for key in keys]).encode()


def files_contents(*folders: Path) -> bytes:
    """Every file below the folders, with its name."""
    found = (file for folder in folders for file in sorted(folder.rglob("*")) if file.is_file())
    return b"\n".join(file.name.encode() + b"\n" + file.read_bytes() for file in found)


def bucket_contents(config: BucketConfig) -> bytes:
    """Every version of every object, with its key and metadata."""

    def versions() -> Iterator[bytes]:
        s3, name = boto_client(config), config.bucket
        for page in s3.get_paginator("list_object_versions").paginate(Bucket=name):
            yield repr(page.get("DeleteMarkers", [])).encode()
            for each in page.get("Versions", []):
                key, version = each.get("Key", ""), each.get("VersionId", "")
                stored = s3.get_object(Bucket=name, Key=key, VersionId=version)
                yield repr((each, stored["Metadata"])).encode() + stored["Body"].read()

    return b"\n".join(versions())


def table_contents(url: str) -> bytes:
    """Every row of every table."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
            return "\n".join(database.iterdump()).encode()
    with psycopg.connect(url) as database:
        listed = "SELECT schemaname, tablename FROM pg_tables"
        tables = database.execute(listed).fetchall()
        rows: list[Any] = [
            database.execute(f'SELECT t::text FROM "{schema}"."{table}" t').fetchall()  # pyright: ignore[reportArgumentType, reportCallIssue] - names of the server
            for schema, table in tables
            if schema == "public" or table.startswith("pg_stat")
        ]
    return repr(rows).encode()


@clause("I-42")
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_i42_a_deleted_image_is_found_nowhere(
    own_valkey: LocalValkey,
    images_bucket: BucketConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    database: str,
) -> None:
    monkeypatch.setattr(feature, "_ERASE_S", 0.1)
    folder = tmp_path / "site"
    url = f"sqlite:///{folder}/records.sqlite"
    if database == "postgresql":
        url = request.getfixturevalue("postgres_url")
    noise = np.random.default_rng().integers(0, 255, (64, 64, 3), np.uint8)
    photo = with_segment(jpeg(noise), 0xFE, COMMENT)
    with (
        plain_client(own_valkey) as plain,
        ImageSite(own_valkey.url, images_bucket, folder, database=url) as site,
    ):
        announced = site.announce(filename=NAME)
        image_id = announced["image_id"]
        assert site.put(announced, photo).status_code == 202
        image = site.ended(image_id)
        published = site.client.get(f"/v1/images/{image_id}/picture").content
        marks = [NAME.encode(), image["sha256"].encode(), COMMENT, published[-24:]]
        # The search finds what is there.
        assert NAME.encode() in table_contents(url)
        assert image["sha256"].encode() in server_contents(plain)
        assert published[-24:] in bucket_contents(images_bucket)
        if database == "sqlite":
            assert NAME.encode() in files_contents(folder)

        assert site.client.delete(f"/v1/images/{image_id}").status_code == 204

        def left_in_files() -> list[bytes]:
            found = files_contents(folder)
            return [mark for mark in marks if mark in found]

        wait_until_sync(lambda: not left_in_files(), "SQLite's log to be truncated")
        for contents in (
            table_contents(url),
            server_contents(plain),
            bucket_contents(images_bucket),
            repr(site.client.get("/v1/images").json()).encode(),
            repr(site.client.get("/v1/search", params={"q": "passport"}).text).encode(),
        ):
            assert [mark for mark in marks if mark in contents] == []
        wait_until_sync(
            lambda: image_id.encode() not in bucket_contents(images_bucket),
            "the mark of the deletion to be removed",
        )
        # The server's log keeps written commands until it is rewritten.
        valkey_files = tmp_path / "valkey"
        with plain_from_url(own_valkey.url) as user:
            user.execute_command("BGREWRITEAOF")

        def rewritten() -> bytes | None:
            try:
                contents = files_contents(valkey_files)
            except FileNotFoundError:  # renamed since it was listed
                return None
            return None if image["sha256"].encode() in contents else contents

        found = wait_until_sync(rewritten, "the rewrite")
        assert found
        assert [mark for mark in marks if mark in found] == []
    if database == "postgresql" and os.geteuid() == 0:
        # The same for the files of the table, without PostgreSQL's own log.
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute("VACUUM FULL images")
            admin.execute("CHECKPOINT")
            (data,) = admin.execute("SHOW data_directory").fetchone() or ("",)
            (number,) = admin.execute(
                "SELECT oid FROM pg_database WHERE datname = current_database()"
            ).fetchone() or ("",)
        found = files_contents(Path(data) / "base" / str(number))
        assert image_id.encode() in found
        assert [mark for mark in marks if mark in found] == []


@clause("I-42")
def test_i42_an_image_deleted_during_an_outage_is_erased_after_it(
    valkey: LocalValkey,
    images_bucket: BucketConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    plain: Plain,
) -> None:
    """The caller does not try again; the record keeps nothing meanwhile."""
    monkeypatch.setattr(feature, "_ERASE_S", 0.1)
    with (
        S3Proxy(images_bucket) as store,
        ImageSite(valkey.url, store.config, tmp_path, key_prefix=KEYS.prefix) as site,
    ):
        image_id = site.upload(plain_photo())
        sha256 = site.ended(image_id)["sha256"]
        store.every(lambda _: dropped)
        answer = site.client.delete(f"/v1/images/{image_id}")
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert site.client.get(f"/v1/images/{image_id}").status_code == 404
        assert sha256.encode() not in table_contents(f"sqlite:///{tmp_path}/records.sqlite")
        store.every(lambda _: None)
        key = f"images/{image_id}.webp"
        wait_until_sync(lambda: not in_bucket(images_bucket, key), "the deletion")
        wait_until_sync(lambda: sha256.encode() not in server_contents(plain), "the entry")


@clause("I-42")
def test_i42_images_are_deleted_by_age_and_their_records_purged(
    valkey: LocalValkey,
    images_bucket: BucketConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    plain: Plain,
) -> None:
    monkeypatch.setattr(feature, "_ERASE_S", 0.1)
    with ImageSite(
        valkey.url,
        images_bucket,
        tmp_path,
        key_prefix=KEYS.prefix,
        keep=timedelta(days=90),
        purge_after=timedelta(days=30),
    ) as site:
        old, young, waiting = site.upload(plain_photo()), site.upload(plain_photo()), ""
        for image_id in (old, young):
            site.ended(image_id)
        waiting = site.announce()["image_id"]
        long_ago = (now_utc() - timedelta(days=91)).replace(tzinfo=None).isoformat(sep=" ")
        with closing(sqlite3.connect(tmp_path / "records.sqlite", timeout=30)) as database:

            def rows() -> dict[str, str]:
                return dict(database.execute("SELECT image_id, status FROM images").fetchall())

            def age(column: str, image_id: str) -> None:
                change = f"UPDATE images SET {column} = ? WHERE image_id = ?"
                database.execute(change, (long_ago, image_id))
                database.commit()

            age("created_at", old)
            # The patience of the reconciler ends before `keep`: an open record is not deleted.
            wait_until_sync(lambda: rows()[old] == "deleted", "the deletion")
            assert rows() == {old: "deleted", young: "ready", waiting: "open"}
            key = f"images/{old}.webp"
            wait_until_sync(lambda: not in_bucket(images_bucket, key), "the object to be gone")
            erased = "SELECT erased_at FROM images WHERE image_id = ?"
            wait_until_sync(lambda: database.execute(erased, (old,)).fetchone()[0], "the erasure")
            age("erased_at", old)
            wait_until_sync(lambda: old not in rows(), "the purge")
            assert rows() == {young: "ready", waiting: "open"}
        assert site.client.get(f"/v1/images/{young}").status_code == 200


@clause("I-42", "O-15")
def test_i42_a_tenant_keeps_a_bounded_number_of_erased_records(
    valkey: LocalValkey,
    images_bucket: BucketConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that were erased last; an image that is not deleted stays, however many are."""
    monkeypatch.setattr(feature, "_ERASE_S", 0.1)
    monkeypatch.setattr(erasure, "_MOST_ERASED", 2)
    with ImageSite(valkey.url, images_bucket, tmp_path, key_prefix=KEYS.prefix) as site:
        kept = site.announce()["image_id"]
        deleted = [site.announce()["image_id"] for _ in range(4)]
        with closing(sqlite3.connect(tmp_path / "records.sqlite", timeout=30)) as database:

            def rows() -> set[str]:
                return {each for (each,) in database.execute("SELECT image_id FROM images")}

            for image_id in deleted:
                assert site.client.delete(f"/v1/images/{image_id}").status_code == 204
            wait_until_sync(lambda: len(rows()) == 3, "the oldest to be removed")
            assert rows() == {kept, *deleted[-2:]}
        assert site.client.get(f"/v1/images/{kept}").status_code == 200


@clause("I-42")
async def test_i42_only_acknowledged_results_of_deleted_images_are_removed(
    connection: Connection, plain: Plain
) -> None:
    status = ImageStatus(connection, KEYS)
    plain.xgroup_create(KEYS.result, "api-workers", id="0", mkstream=True)
    entries: dict[str, Any] = {}
    for name in ("first", "other", "second", "third"):
        entries[name] = plain.xadd(KEYS.result, {"image_id": name, "sha256": "e3"})
    for number in range(450):  # several parts of the stream
        plain.xadd(KEYS.result, {"image_id": f"more-{number}"})
    last = plain.xadd(KEYS.result, {"image_id": "first", "status": "repeated"})
    plain.xadd(KEYS.dead, {"image_id": "second", "reason": "too long"})
    gone = ["first", "second", "third"]
    assert await status.erase_results(gone) == {"first", "second", "third"}  # nothing was read
    assert plain.xlen(KEYS.result) == 455
    assert plain.xlen(KEYS.dead) == 0
    plain.xreadgroup("api-workers", "api", {KEYS.result: ">"}, count=1000)
    pending = [entries["second"]]
    plain.xack(KEYS.result, "api-workers", entries["first"], entries["third"], last)
    assert await status.erase_results(gone) == {"second"}
    left = cast("list[tuple[str, Any]]", plain.xrange(KEYS.result))
    assert [entry for entry, _ in left[:2]] == [entries["other"], *pending]
    assert last not in dict(left)
    plain.xack(KEYS.result, "api-workers", *pending)
    assert await status.erase_results(gone) == set()
    assert plain.xlen(KEYS.result) == 451


@clause("I-42")
async def test_i42_images_that_cannot_be_erased_do_not_keep_others_from_it(
    connection: Connection,
    plain: Plain,
    seaweedfs: BucketConfig,
    tmp_path: Path,
    fresh: Fresh,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: a page of such images was all that was looked at."""
    monkeypatch.setattr(erasure, "_PAGE", 3)
    now = now_utc()
    stuck, last = [fresh("stuck") for _ in range(6)], fresh("last")
    async with opened(tmp_path) as (_, records):
        for number, image_id in enumerate((*stuck, last)):
            await create(records, image_id, timedelta(minutes=10 - number))
            await records.delete(image_id, now)
        for image_id in stuck:  # nobody reads these results
            plain.xadd(KEYS.result, {"image_id": image_id})
        eraser = Eraser(
            records,
            ImageStatus(connection, KEYS),
            Bucket(seaweedfs),
            keep=timedelta(0),
            purge_after=timedelta(days=1),
        )
        # Each run continues behind the page that the run before it could not erase.
        assert [(await eraser.run()).done for _ in range(3)] == [0, 0, 1]
        left = [record.image_id for record in await records.to_erase(10)]
        assert sorted(left) == sorted(stuck)
        # They are tried again.
        plain.delete(KEYS.result)
        assert [(await eraser.run()).done for _ in range(2)] == [3, 3]
        assert await records.to_erase(10) == []


class PatientPhotos(Photos):
    """Waits forever in its first step."""

    async def process(self, source: Path, target: Path, **more: Any) -> FakePhoto:
        self.runs += 1
        more["on_step"]("validate")
        await asyncio.Event().wait()
        raise AssertionError


def entries_of(plain: Plain, image_id: str, keys: ImageKeys = KEYS) -> list[str]:
    found = cast("list[tuple[str, dict[str, str]]]", plain.xrange(keys.result))
    return [f.get("error_code", f["status"]) for _, f in found if f["image_id"] == image_id]


def in_bucket(config: BucketConfig, key: str) -> bool:
    listed = boto_client(config).list_object_versions(Bucket=config.bucket, Prefix=key)
    return bool(listed.get("Versions") or listed.get("DeleteMarkers"))


@clause("I-42", "I-31")
@pytest.mark.parametrize("photo", ["not_stored", "stored", "not_made"])
async def test_i42_an_upload_that_waits_too_long_expires_while_the_bucket_is_unreachable(
    connection: Connection,
    plain: Plain,
    tmp_path: Path,
    seaweedfs: BucketConfig,
    fresh: Fresh,
    photo: str,
) -> None:
    """Its original is deleted and its result published at once, and what may have been stored of it
    is deleted after the outage, also by the next process."""
    image_id = fresh("late")
    spool = Spool(tmp_path)
    entry = accept(spool, image_id)
    status = ImageStatus(connection, KEYS)
    outage = stored_but_dropped if photo == "stored" else dropped

    def fault(seen: Seen) -> Any:
        return outage if seen.method == "PUT" else dropped

    photos = PatientPhotos() if photo == "not_made" else Photos()
    with S3Proxy(seaweedfs) as store:
        store.every(fault)
        made = Processing(
            connection, status, spool, Bucket(store.config), photos, life_s=1.0, drain_s=0
        )
        async with made.running():
            await wait_until(lambda: entries_of(plain, image_id) == ["EXPIRED"], "the result")
            assert names(tmp_path) == [f"{image_id}.json", "spool.lock"]
            assert plain.hget(KEYS.status(image_id), "stage") == "failed"
        assert photos.runs == 1
    spool.close()
    assert in_bucket(seaweedfs, entry.storage_key) is (photo == "stored")
    spool = Spool(tmp_path)
    spool.recover()
    made = Processing(connection, status, spool, Bucket(seaweedfs), photos, life_s=1.0)
    async with made.running():
        await wait_until(lambda: spool.count == 0, "the end")
    spool.close()
    assert names(tmp_path) == ["spool.lock"]
    assert not in_bucket(seaweedfs, entry.storage_key)
    assert entries_of(plain, image_id) == ["EXPIRED"]
    assert photos.runs == 1


@clause("I-42")
async def test_i42_an_original_that_a_stopped_gateway_kept_too_long_is_not_processed(
    connection: Connection, plain: Plain, tmp_path: Path, seaweedfs: BucketConfig, fresh: Fresh
) -> None:
    image_id = fresh("old")
    spool = Spool(tmp_path)
    entry = accept(spool, image_id)
    spool.close()
    yesterday = format_time(now_utc() - timedelta(hours=25))
    file = tmp_path / f"{image_id}.json"
    file.write_bytes(msgspec.json.encode(msgspec.structs.replace(entry, accepted_at=yesterday)))
    spool = Spool(tmp_path)
    spool.recover()
    photos = Photos()
    status = ImageStatus(connection, KEYS)
    async with Processing(connection, status, spool, Bucket(seaweedfs), photos).running():
        await wait_until(lambda: spool.count == 0, "the end")
    spool.close()
    assert (names(tmp_path), photos.runs) == (["spool.lock"], 0)
    assert entries_of(plain, image_id) == ["EXPIRED"]


@clause("I-42")
@pytest.mark.parametrize("waits_for", ["worker", "bucket"])
async def test_i42_the_original_of_a_deleted_image_is_removed_while_it_waits(
    connection: Connection,
    plain: Plain,
    tmp_path: Path,
    seaweedfs: BucketConfig,
    fresh: Fresh,
    monkeypatch: pytest.MonkeyPatch,
    waits_for: str,
) -> None:
    monkeypatch.setattr("jobwire.systems.images.processing._SWEEP_S", 0.05)
    image_id = fresh("deleted")
    spool = Spool(tmp_path)
    entry = accept(spool, image_id)
    status = ImageStatus(connection, KEYS)
    photos = PatientPhotos() if waits_for == "worker" else Photos()
    stage = "validating" if waits_for == "worker" else "uploading"
    with S3Proxy(seaweedfs) as store:
        store.every(lambda seen: stored_but_dropped if seen.method == "PUT" else dropped)
        made = Processing(connection, status, spool, Bucket(store.config), photos)
        async with made.running():
            await wait_until(
                lambda: plain.hget(KEYS.status(image_id), "stage") == stage, "the stage"
            )
            await status.delete(image_id)
            await wait_until(
                lambda: names(tmp_path) == [f"{image_id}.json", "spool.lock"], "the original"
            )
            store.every(lambda _: None)
            await wait_until(lambda: spool.count == 0, "the end")
    spool.close()
    assert not in_bucket(seaweedfs, entry.storage_key)
    assert entries_of(plain, image_id) == ["CANCELED"]
