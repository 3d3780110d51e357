"""A gateway or an API of another program: its results, its tokens, its times of whole seconds."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any, cast

import jwt
import pytest

from jobwire.systems.images.contract import now_utc
from jobwire.systems.images.key_files import private_key
from jobwire.systems.images.tokens import ALGORITHM
from tests.support import Plain, clause, wait_until_sync
from tests.support.s3 import boto_client
from tests.systems.images.site import Event, ImageSite, Json, plain_photo

SECOND = "2026-02-24T10:00:00Z"


def put_stage(plain: Plain, image_id: str, stage: str, progress: int) -> None:
    """Write a stage as another gateway does: its clock has whole seconds."""
    fields = {"stage": stage, "progress": progress, "updated_at": SECOND}
    plain.hset(f"image:status:{image_id}", mapping=cast(Any, fields))


def processed(image_id: str, **other: str) -> dict[str, str]:
    return {
        "image_id": image_id,
        "status": "processed",
        "storage_key": f"images/{image_id}.webp",
        "sha256": "e3" * 32,
        "etag": "abc",
        "file_size": "1",
        "content_type": "image/webp",
        "original_width": "2",
        "original_height": "2",
        "processed_width": "1",
        "processed_height": "1",
        "processed_at": SECOND,
        **other,
    }


def publish(plain: Plain, fields: dict[str, str]) -> None:
    plain.xadd("image:result", cast(Any, fields))


@contextmanager
def database_locked(site: ImageSite) -> Generator[None]:
    """Nothing is written to the records inside the block."""
    with closing(sqlite3.connect(site.folder / "records.sqlite", timeout=30)) as database:
        database.isolation_level = None
        database.execute("BEGIN IMMEDIATE")
        yield
        database.execute("ROLLBACK")


@clause("I-39")
def test_i39_who_has_seen_the_end_reads_the_ended_record(site: ImageSite, plain: Plain) -> None:
    """The status says `done` before the result is in the record."""
    image, other = site.announce(), site.announce()["image_id"]
    image_id = image["image_id"]
    seen: list[tuple[str, Json]] = []
    opened = threading.Event()

    def follow() -> None:
        with site.events(image_id) as stream:
            for event in stream:
                opened.set()
                seen.append((event.name, site.get(image_id)))

    reader = threading.Thread(target=follow)
    with site.events(other) as others:
        next(others)
        reader.start()
        assert opened.wait(30)
        with database_locked(site):
            assert site.put(image, plain_photo()).status_code == 202
            wait_until_sync(
                lambda: plain.hget(f"image:status:{image_id}", "stage") == "done", "the end"
            )
            # A change that comes later was seen: so was the end.
            put_stage(plain, other, "validating", 5)
            next(others)
    reader.join(30)
    assert [(name, image["status"]) for name, image in seen[-1:]] == [("ready", "ready")]
    assert {name for name, _ in seen[:-1]} == {"processing"}


@clause("I-40")
def test_i40_two_stages_of_one_second_have_two_ids(site: ImageSite, plain: Plain) -> None:
    image_id = site.announce()["image_id"]
    put_stage(plain, image_id, "uploading", 85)

    def reconnect(event: Event) -> int:
        headers = {"last-event-id": event.id}
        path = f"/v1/images/{image_id}/events"
        with site.client.stream("GET", path, headers=headers) as answer:
            return answer.status_code

    with site.events(image_id) as stream:
        before = next(stream)
        put_stage(plain, image_id, "done", 100)
        publish(plain, processed(image_id))
        (last,) = stream
    assert (before.id, last.id) == (f"{SECOND}/uploading", f"{SECOND}/done")
    assert reconnect(before) == 200  # it has not seen the end
    assert reconnect(last) == 204
    plain.delete(f"image:status:{image_id}")  # the record has another time
    assert reconnect(last) == 204


@clause("I-41")
def test_i41_the_storage_key_of_another_gateway_is_used(site: ImageSite, plain: Plain) -> None:
    image_id = site.announce()["image_id"]
    key = f"images/2026/{image_id}-small.webp"
    boto_client(site.bucket).put_object(Bucket=site.bucket.bucket, Key=key, Body=b"a photo")
    fields = processed(image_id, storage_key=key, etag="")
    publish(plain, fields)
    image = site.ended(image_id)
    assert image["status"] == "ready"
    assert f"/{key}?" in image["url"]
    assert site.client.get(f"/v1/images/{image_id}/picture").content == b"a photo"
    assert site.client.delete(f"/v1/images/{image_id}").status_code == 204
    listed = boto_client(site.bucket).list_objects_v2(Bucket=site.bucket.bucket, Prefix=key)
    assert listed.get("Contents", []) == []


@clause("I-41")
def test_i41_keys_outside_of_the_images_are_dead_lettered(site: ImageSite, plain: Plain) -> None:
    image_id = site.announce()["image_id"]
    keys = ["predictions/other.webp", "images/../other.webp", "images/", "images//a", "/images/a"]
    for key in keys:
        publish(plain, processed(image_id, storage_key=key))
    wait_until_sync(lambda: plain.xlen("image:result:dead") == len(keys), "the dead letters")
    assert site.get(image_id)["status"] == "processing"


@clause("I-41")
def test_i41_the_error_code_of_another_gateway_is_kept(site: ImageSite, plain: Plain) -> None:
    image_id = site.announce()["image_id"]
    fields = {"image_id": image_id, "status": "failed", "error_code": "VIRUS_FOUND"}
    fields |= {"error_message": "the file has a virus", "failed_at": SECOND}
    publish(plain, fields)
    error = site.ended(image_id)["error"]
    assert (error["code"], error["message"]) == ("VIRUS_FOUND", "the file has a virus")


@clause("I-41")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"jti": None}, "jti"),
        ({"storage_key": "photos/a.webp"}, "storage_key"),
        ({"content_type": "image/gif"}, "content_type"),
        ({"max_size": "10"}, "max_size"),
        ({"exp": 1}, "expired"),
        ({"aud": "uploads"}, "aud"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_i41_a_signed_token_that_is_refused_says_what_it_lacks(
    site: ImageSite, change: dict[str, Any], said: str
) -> None:
    image = site.announce()
    claims = {
        "image_id": image["image_id"],
        "storage_key": f"images/{image['image_id']}.webp",
        "content_type": "image/jpeg",
        "max_size": 1_000_000,
        "jti": "one",
        "exp": int((now_utc() + timedelta(minutes=5)).timestamp()),
        **change,
    }
    claims = {name: value for name, value in claims.items() if value is not None}
    key = private_key(site.settings)
    image["token"] = jwt.encode(claims, key, algorithm=ALGORITHM)
    answer = site.put(image, plain_photo())
    assert (answer.status_code, answer.json()["code"]) == (401, "bad_upload_token")
    assert said in answer.json()["detail"]
    # Signed by nobody we know: nothing is said about its claims.
    image["token"] = image["token"][:-8] + "AAAAAAAA"
    assert said not in site.put(image, plain_photo()).json()["detail"].replace("has expired", "")
