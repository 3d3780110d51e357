"""The objects in the bucket: keys, content types and JSON exactly as in the contract."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from jobwire.systems.predictions import task
from jobwire.systems.predictions.contract import (
    input_key,
    is_prediction_id,
    output_key,
    rfc3339,
)
from jobwire.systems.predictions.ids import TaskIds, uuid_of
from jobwire.systems.predictions.intent import Outcome, Output
from tests.support import clause, wait_until
from tests.support.s3 import boto_client
from tests.systems.predictions.site import Site, png

JSON: Final = "application/json; charset=utf-8"
MESSAGE_S: Final = int(datetime(2026, 1, 21, 23, 59, 58, tzinfo=UTC).timestamp())

MINIMAL: Final[dict[str, Any]] = {
    "prediction_id": "abc123",
    "chat_id": 123456789,
    "user_id": 111222333,
    "input_s3_key": "images/input/2026/01/21/0c0f.jpg",
    "mode": "process_photo",
    "created_at": "2026-01-21T12:34:56Z",
}


async def finished(site: Site, **more: Any) -> tuple[str, dict[str, str]]:
    """Run one photo to its end; its prediction's id, and key → type of every object."""
    photo = site.photo(date_s=MESSAGE_S, **more)
    await site.flow.submit(photo)

    async def none_open() -> bool:
        return await site.open_tasks() == []

    await wait_until(none_open, "the task to be closed")
    raw, name = boto_client(site.bucket.config), site.bucket.config.bucket
    keys = [each.get("Key", "") for each in raw.list_objects_v2(Bucket=name).get("Contents", [])]
    types = {key: raw.head_object(Bucket=name, Key=key)["ContentType"] for key in keys}
    (prediction,) = site.paid(photo)
    return str(prediction["id"]), types


@clause("P-1", "P-3")
async def test_p1_the_objects_of_a_task_are_exactly_the_declared_ones(site: Site) -> None:
    prediction_id, types = await finished(site)
    (tid,) = [key.removeprefix("tasks/intents/") for key in types if "intents" in key]
    assert types == {
        f"images/input/2026/01/21/{uuid_of(tid)}.png": "image/png",
        f"images/output/2026/01/21/{prediction_id}.png": "image/png",
        f"tasks/{prediction_id}.json": JSON,
        f"tasks/intents/{tid}": JSON,
    }
    assert re.fullmatch(r"[a-z2-7]{32}", tid)


@clause("P-4", "P-5")
async def test_p4_the_task_object_is_the_documented_extended_form(site: Site) -> None:
    prediction_id, types = await finished(site)
    (source,) = [key for key in types if key.startswith("images/input/")]
    (tid,) = [key.removeprefix("tasks/intents/") for key in types if "intents" in key]
    document = await site.task(prediction_id)
    assert document is not None
    output = f"images/output/2026/01/21/{prediction_id}.png"
    url = f"{site.replicate.url}/delivery/{prediction_id}/out-0.png"
    ours = document.pop("jobwire")
    for time in (document.pop("created_at"), document.pop("updated_at"), ours.pop("settled")):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", time)
    assert len(ours.pop("writer")) == 16
    assert document == {
        "prediction_id": prediction_id,
        "chat_id": 7001,
        "user_id": 501,
        "input_s3_key": source,
        "mode": "process_photo",
        "telegram": {"file_id": "file-1", "message_id": 1},
        "input": {"s3_key": source, "mime": "image/png", "size_bytes": len(png(1, 40, 90))},
        "replicate": {
            "model": "test/invert",
            "version": "abc123",
            "webhook_events_filter": ["completed"],
        },
        "status": "succeeded",
        "result": {"output_url": url, "output_s3_key": output},
        "error": {"code": None, "message": None},
    }
    assert ours == {
        "tid": tid,
        "tenant": "acme",
        "outputs": [{"key": output, "mime": "image/png", "url": url}],
    }


@clause("P-4")
async def test_p4_a_task_without_an_end_has_the_documented_nulls(site: Site) -> None:
    site.replicate.webhooks = "never"
    photo = site.photo()
    await site.flow.submit(photo)
    (prediction,) = site.paid(photo)
    document = await site.task(str(prediction["id"]))
    assert document is not None
    assert list(document) == [
        *("prediction_id", "chat_id", "user_id", "input_s3_key", "mode", "telegram", "input"),
        *("replicate", "status", "created_at", "updated_at", "result", "error", "jobwire"),
    ]
    assert document["status"] == "queued"
    assert document["result"] == {"output_url": None, "output_s3_key": None}
    assert document["error"] == {"code": None, "message": None}


@clause("P-4")
def test_p4_the_minimal_form_is_read_and_unknown_members_survive() -> None:
    extended = {**MINIMAL, "note": {"a": [1]}, "jobwire": {"x": 1}, "result": {"seen": True}}
    read = task.parse(json.dumps(extended).encode(), "abc123")
    assert (read.status, read.input_key) == ("queued", MINIMAL["input_s3_key"])
    assert (read.chat_id, read.user_id, read.message_id) == (123456789, 111222333, None)
    assert rfc3339(read.created_ms) == MINIMAL["created_at"]
    outcome = Outcome("succeeded", outputs=(Output(url="https://x/y", key="k", mime="image/png"),))
    written = json.loads(
        task.encode(task.with_outcome(read.document, "t" * 32, outcome, read.created_ms), "w")
    )
    assert {name: written[name] for name in MINIMAL} == MINIMAL
    assert written["note"] == {"a": [1]}
    assert written["jobwire"]["x"] == 1
    assert written["result"] == {"seen": True, "output_url": "https://x/y", "output_s3_key": "k"}


@clause("P-4", "P-33")
@pytest.mark.parametrize(
    "body",
    [
        b"not json",
        b"[]",
        b"[" * 100_000,
        b'{"chat_id": "1"}',
        b'{"chat_id": true}',
        b'{"chat_id": 1e999}',
        b'{"chat_id": 123456789012345678901234567890}',
        b'{"chat_id": 1, "status": "novel"}',
        b'{"chat_id": 1, "status": ["queued"]}',
        b'{"chat_id": 1, "prediction_id": "another"}',
        b"\xff\xfe",
    ],
)
def test_p33_an_object_that_is_no_task_is_distinguished(body: bytes) -> None:
    with pytest.raises(task.BadTask):
        task.parse(body, "abc123")


@clause("P-1")
def test_p1_the_same_message_is_the_same_task() -> None:
    ids, other = TaskIds("secret"), TaskIds("another secret")
    tid = ids.of_message("bot", -100123, 42)
    assert tid == ids.of_message("bot", -100123, 42)
    different = [
        ids.of_message("bot", -100123, 43),
        ids.of_message("bot", -100124, 42),
        ids.of_message("bob", -100123, 42),
        ids.of_prediction("42"),
        other.of_message("bot", -100123, 42),
    ]
    assert len({tid, *different}) == 6
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uuid_of(tid))
    assert ids.webhook_token(tid) != other.webhook_token(tid)


@clause("P-1")
def test_p1_keys_have_the_message_s_day_and_the_content_s_extension() -> None:
    assert input_key(MESSAGE_S, "u", "image/jpeg") == "images/input/2026/01/21/u.jpg"
    assert output_key(MESSAGE_S, "p", 0, "image/webp") == "images/output/2026/01/21/p.webp"
    assert output_key(MESSAGE_S + 2, "p", 1, "image/png") == "images/output/2026/01/22/p-2.png"
    for bad in ("", "../x", "a/b", ".hidden", "a" * 129, "a b", "a\n", "ü"):
        assert not is_prediction_id(bad)
