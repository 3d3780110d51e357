"""Text and keys that others wrote, and that no store or JSON encoder takes (P-33)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from jobwire.systems.predictions.contract import LISTING_KEY
from jobwire.systems.predictions.reconcile import reconcile
from tests.support import clause
from tests.support.s3 import boto_client
from tests.systems.predictions.site import Site, png
from tests.systems.predictions.telegram_site import TelegramSite

LONE = "\ud83d"  # half of an emoji: valid in JSON, invalid in UTF-8


@clause("P-33")
async def test_p33_half_an_emoji_in_the_providers_error_ends_the_task(site: Site) -> None:
    site.replicate.webhooks = "never"
    photo = site.photo()
    tid = await site.flow.submit(photo)
    await asyncio.to_thread(site.replicate.wait_idle)
    (known,) = (str(each["id"]) for each in site.paid(photo))
    failed = {"status": "failed", "output": None, "error": f"it broke {LONE}"}
    assert await site.receiver_status(tid, site.replicate.webhook(known, **failed)) == 200
    assert await site.open_tasks() == []
    task = await site.task(known)
    assert task is not None
    assert task["error"]["message"] == "it broke ?"
    # An output with it is refused, not retried for ever.
    other = site.photo()
    tid = await site.flow.submit(other)
    await asyncio.to_thread(site.replicate.wait_idle)
    (known,) = (str(each["id"]) for each in site.paid(other))
    output = [f"https://replicate.delivery/{LONE}.png"]
    assert await site.receiver_status(tid, site.replicate.webhook(known, output=output)) == 200
    await site.recover(passes=14, step_s=700)
    assert await site.open_tasks() == []


@clause("P-33")
async def test_p33_half_an_emoji_in_a_message_is_a_photo_like_any_other(
    telegram_site: TelegramSite,
) -> None:
    site = telegram_site
    update = site.telegram.photo_message(
        png(1, 2, 3), caption=f"in blue {LONE}", language=LONE, media_group_id=f"g{LONE}"
    )
    assert await site.deliver(update) == [200]
    await site.recover()
    assert len(site.telegram.pictures(77)) == 1
    (prediction,) = site.replicate.predictions.values()
    given: Any = prediction["input"]
    assert given["prompt"] == "in blue ?"


KEYS = ["/etc/passwd", "s3://theirs/a.jpg", "a/../b.jpg", "x" * 2000, f"{LONE}.jpg", "a//b", "\0"]


@clause("P-16", "P-33")
@pytest.mark.parametrize("form", ["minimal", "extended"])
async def test_p33_tasks_of_others_with_odd_keys_end_by_themselves(site: Site, form: str) -> None:
    """Each is continued and ends; none stops the walk over the others."""
    raw, name = boto_client(site.bucket.config), site.bucket.config.bucket
    for number, key in enumerate(KEYS):
        task: dict[str, Any] = {
            "prediction_id": f"theirs{number}",
            "chat_id": 600 + number,
            "user_id": 5,
            "note": f"kept {LONE}",
            "created_at": site.replicate.now(),
        }
        task |= {"input_s3_key": key} if form == "minimal" else {"input": {"s3_key": key}}
        body = json.dumps(task).encode()
        raw.put_object(Bucket=name, Key=f"tasks/theirs{number}.json", Body=body)
        site.replicate.add_ended(f"theirs{number}", png(number, 2, 3))
    site.clock.shift_s += 400
    report = await reconcile(site.flow)
    assert (report.taken_over, report.failed) == (len(KEYS), 0)
    listing = raw.get_object(Bucket=name, Key=LISTING_KEY)["Body"].read()
    assert json.loads(listing)["done"] == "yes"
    await site.recover()
    assert await site.open_tasks() == []
    for number in range(len(KEYS)):
        assert len(site.chat.pictures(600 + number)) == 1
        task_now = await site.task(f"theirs{number}")
        assert task_now is not None
        assert (task_now["status"], task_now["note"]) == ("succeeded", f"kept {LONE}")
