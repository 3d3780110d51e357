"""The lifecycle of a photo over HTTP: announced, uploaded, followed, published."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from typing import Any, cast

import httpx
import pytest

from jobwire.systems.images.contract import (
    FAILURE_FIELDS,
    PROGRESS,
    SUCCESS_FIELDS,
    Stage,
)
from tests.handlers.photo.images import chunks, jpeg, photograph, with_segment
from tests.support import Plain, clause, wait_until_sync
from tests.support.s3 import boto_client
from tests.systems.images.site import Event, ImageSite, plain_photo, results

WHOLE_SECOND = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
STAGES = ["queued", "validating", "decoding", "processing", "encoding", "uploading", "done"]


class StageMonitor:
    """All commands about stages that the server gets, by MONITOR."""

    def __init__(self, plain: Plain) -> None:
        self._plain = plain
        self.lines: list[str] = []

    def __enter__(self) -> list[str]:
        self._monitor = self._plain.monitor()
        self._monitor.__enter__()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self.lines

    def _read(self) -> None:
        for command in self._monitor.listen():
            text = str(cast("dict[str, str]", command)["command"])
            self.lines.append(text)
            if "end-of-monitor" in text:
                return

    def __exit__(self, *_: object) -> None:
        self._plain.set("end-of-monitor", "1", ex=60)
        self._thread.join(30)
        self._monitor.__exit__(None, None, None)


def status(plain: Plain, image_id: str) -> dict[str, str]:
    return cast("dict[str, str]", plain.hgetall(f"image:status:{image_id}"))


@clause("I-1", "I-3", "I-4", "I-7", "I-10", "I-11", "I-12", "I-20", "I-24")
def test_i07_a_photo_goes_through_every_stage_to_its_result(site: ImageSite, plain: Plain) -> None:
    body = with_segment(jpeg(photograph()), 0xE1, b"Exif\0\0 secret place")
    with StageMonitor(plain) as commands:
        image = site.announce(size=len(body), filename="holiday.jpg")
        image_id = image["image_id"]
        assert status(plain, image_id).items() >= {"stage": "queued", "progress": "0"}.items()
        with site.events(image_id) as stream:
            first = next(stream)
            answer = site.put(image, body)
            events = [first, *stream]
        assert answer.status_code == 202
        assert plain.get(f"image:upload:{image_id}") == "claimed"
        record = site.ended(image_id)
    _check_stages_written(commands, image_id)
    _check_events(events)
    # The hash and its lifetime.
    hash_ = status(plain, image_id)
    assert set(hash_) == {"stage", "progress", "updated_at"}
    assert (hash_["stage"], hash_["progress"]) == ("done", "100")
    assert 3500 < plain.ttl(f"image:status:{image_id}") <= 3600
    assert 3500 < plain.ttl(f"image:upload:{image_id}") <= 3600
    # The result, its fields and the object in the bucket.
    (result,) = results(plain, image_id)
    assert list(result) == [*SUCCESS_FIELDS, "hidden_areas", "hidden_part"]
    stored = boto_client(site.bucket).get_object(
        Bucket=site.bucket.bucket, Key=f"images/{image_id}.webp"
    )
    published = stored["Body"].read()
    assert result["status"] == "processed"
    assert result["storage_key"] == f"images/{image_id}.webp"
    assert result["sha256"] == hashlib.sha256(published).hexdigest()
    assert result["etag"] == stored["ETag"].strip('"')
    assert result["file_size"] == str(len(published))
    assert result["content_type"] == stored["ContentType"] == "image/webp"
    assert (result["original_width"], result["original_height"]) == ("512", "512")
    assert (result["processed_width"], result["processed_height"]) == ("512", "512")
    assert WHOLE_SECOND.fullmatch(result["processed_at"]), "as the document's example"
    assert b"secret place" not in published
    assert set(chunks(published)) <= {"VP8 ", "VP8L"}
    # The record, and the URL that the app gets.
    assert (record["status"], record["filename"]) == ("ready", "holiday.jpg")
    assert (record["sha256"], record["width"]) == (result["sha256"], 512)
    assert httpx.get(record["url"], trust_env=False).content == published
    # No original remains.
    wait_until_sync(lambda: [file.name for file in site.spool.iterdir()] == ["spool.lock"])


def _check_stages_written(commands: list[str], image_id: str) -> None:
    written = [
        line.split()[3]
        for line in commands
        if line.startswith("HSET image:status:") and image_id in line and " stage " in line
    ]
    assert written == STAGES


def _check_events(events: list[Event]) -> None:
    seen = [event.data["stage"] for event in events]
    assert seen == [stage for stage in STAGES if stage in seen], "in order, none twice"
    assert [event.name for event in events[:-1]] == ["processing"] * (len(events) - 1)
    assert events[-1].name == "ready"
    for event in events:
        assert event.data["progress"] == PROGRESS[Stage(event.data["stage"])]
        assert event.id == f"{event.data['updated_at']}/{event.data['stage']}"
        extra = ["hidden_areas", "hidden_part"] if event.name == "ready" else []
        assert [*event.data] == ["stage", "progress", "updated_at", *extra]
    assert sorted(event.id for event in events) == [event.id for event in events]


@clause("I-3", "I-6", "I-7")
@pytest.mark.parametrize(
    ("code", "body"),
    [
        ("VALIDATION_FAILED", plain_photo()[:2] + b"\xff\xe0" + b"\0" * 40),
        ("DECODE_FAILED", jpeg(photograph())[:9000]),
    ],
)
def test_i06_a_failure_has_its_code_and_a_fix(
    site: ImageSite, plain: Plain, code: str, body: bytes
) -> None:
    image_id = site.upload(body)
    record = site.ended(image_id)
    check_failure(site, plain, record, code)


def check_failure(site: ImageSite, plain: Plain, record: dict[str, Any], code: str) -> None:
    """Hash, stream, record and events of a failed image agree."""
    image_id = record["image_id"]
    (result,) = results(plain, image_id)
    assert list(result) == list(FAILURE_FIELDS)
    assert (result["status"], result["error_code"]) == ("failed", code)
    message = result["error_message"]
    assert ";" in message, "the message names a fix"
    assert str(site.folder) not in message
    assert "Traceback" not in message
    assert WHOLE_SECOND.fullmatch(result["failed_at"])
    hash_ = status(plain, image_id)
    assert set(hash_) == {"stage", "progress", "updated_at", "error"}
    assert (hash_["stage"], hash_["progress"], hash_["error"]) == ("failed", "-1", message)
    assert (record["status"], record["error"]) == ("failed", {"code": code, "message": message})
    assert "url" not in json.dumps({k: v for k, v in record.items() if v is not None})
    with site.events(image_id) as stream:
        (event,) = stream
    assert (event.name, event.data["error"], event.data["progress"]) == ("failed", message, -1)
    raw = boto_client(site.bucket)
    listed = raw.list_object_versions(Bucket=site.bucket.bucket, Prefix=f"images/{image_id}")
    assert "Versions" not in listed
