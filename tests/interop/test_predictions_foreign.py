"""Our `fn-bot` and `fn-callback` mixed with another program's, over one bucket.

The other program overwrites without conditions, so it may repeat its own work; it cannot cause
ours to repeat, and ours finishes its unfinished tasks.
"""

from __future__ import annotations

import asyncio
import base64
import json
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobwire.objects import BucketConfig
from tests.standins.replicate import TOKEN, send
from tests.support import Fresh, Program, clause, wait_until
from tests.support.s3 import boto_client, make_bucket
from tests.systems.predictions.site import Site, build_flow, png

PROGRAM = Path(__file__).parent / "fn_photo.py"
Start = Callable[[str], str]


@pytest.fixture
def site(store: BucketConfig, fresh: Fresh, cog_url: str) -> Iterator[Site]:
    config = replace(store, bucket=fresh("mixed"))
    make_bucket(config)
    with Site(config, cog_url) as started:
        yield started


@pytest.fixture
def other(site: Site) -> Iterator[Start]:
    """Start the other program with a webhook URL of its predictions; returns its address."""
    with ExitStack() as stack:

        def start(webhook: str) -> str:
            config = {
                "endpoint": site.bucket.config.endpoint,
                "bucket": site.bucket.config.bucket,
                "access_key": site.bucket.config.access_key,
                "secret_key": site.bucket.config.secret_key,
                "replicate": site.replicate.url,
                "token": TOKEN,
                "chat": site.chat.url,
                "webhook": webhook,
            }
            program = stack.enter_context(Program(PROGRAM, json.dumps(config)))
            port = program.wait_for_line("listening on").rpartition(" ")[2]
            return f"http://127.0.0.1:{port}"

        yield start


async def their_photo(url: str, chat_id: int, form: str) -> None:
    update = {
        "chat_id": chat_id,
        "user_id": 5,
        "message_id": 6,
        "photo": base64.b64encode(png(1, 2, 3)).decode(),
        "form": form,
    }

    def post() -> None:
        request = urllib.request.Request(f"{url}/bot", json.dumps(update).encode())
        urllib.request.urlopen(request, timeout=30).close()

    await asyncio.to_thread(post)


async def the_task(site: Site) -> dict[str, Any]:
    (prediction,) = site.replicate.predictions
    task = await site.task(prediction)
    assert task is not None
    return task


@clause("P-4", "P-14", "P-15")
@pytest.mark.parametrize("form", ["minimal", "extended"])
async def test_p14_their_bot_and_our_callback(site: Site, other: Start, form: str) -> None:
    url = other(f"{site.receiver.url}/hooks/replicate/theirs")
    await their_photo(url, 42, form)
    await wait_until(lambda: site.chat.pictures(42), "the picture")

    async def none_open() -> bool:
        return await site.open_tasks() == []

    await wait_until(none_open, "the task to be closed")
    task = await the_task(site)
    assert (task["status"], task["mode"]) == ("succeeded", "process_photo")
    assert task["result"]["output_s3_key"].startswith("images/output/")
    assert len(site.chat.pictures(42)) == 1
    assert site.chat.texts(42) == []


@clause("P-15", "P-16")
async def test_p15_our_bot_and_their_callback(site: Site, other: Start) -> None:
    theirs = other("")
    flow = build_flow(replace(site.addresses, public_url=theirs), site.clock)
    photo = site.photo()
    # Their callback drops a webhook that arrives before the task object: it is sent afterwards.
    site.replicate.webhooks = "never"
    await flow.submit(photo)
    await asyncio.to_thread(site.replicate.wait_idle)
    (prediction,) = site.replicate.predictions
    assert await asyncio.to_thread(send, site.replicate.webhook(prediction)) == 200
    assert len(site.chat.pictures(photo.chat_id)) == 1
    await site.recover()
    assert await site.open_tasks() == []
    task = await the_task(site)
    assert task["status"] == "succeeded"
    assert task["jobwire"]["tid"] == site.tid(photo)  # our member survived theirs
    assert "settled" not in task["jobwire"]
    assert len(site.chat.pictures(photo.chat_id)) == 1
    assert "edit_picture" not in site.chat.calls


@clause("P-15")
async def test_p15_a_webhook_for_both_is_answered_once(site: Site, other: Start) -> None:
    theirs, photo = other(""), site.photo()
    site.replicate.webhooks = "never"
    tid = await site.flow.submit(photo)
    await asyncio.to_thread(site.replicate.wait_idle)
    (prediction,) = site.replicate.predictions
    webhook = site.replicate.webhook(prediction)
    assert await site.receiver_status(tid, webhook) == 200
    assert await asyncio.to_thread(send, replace(webhook, url=f"{theirs}/callback")) == 200
    assert len(site.chat.pictures(photo.chat_id)) == 1

    second = site.photo()
    tid = await site.flow.submit(second)
    await asyncio.to_thread(site.replicate.wait_idle)
    webhook = site.replicate.webhook(str(site.paid(second)[0]["id"]))
    assert await asyncio.to_thread(send, replace(webhook, url=f"{theirs}/callback")) == 200
    assert await site.receiver_status(tid, webhook) == 200
    assert len(site.chat.pictures(second.chat_id)) == 1
    assert await site.open_tasks() == []


@clause("P-14")
async def test_p14_a_webhook_of_their_finished_task_is_known(site: Site, other: Start) -> None:
    site.replicate.webhooks = "never"
    theirs = other(f"{site.receiver.url}/hooks/replicate/theirs")
    await their_photo(theirs, 44, "extended")
    await asyncio.to_thread(site.replicate.wait_idle)
    (prediction,) = site.replicate.predictions
    webhook = site.replicate.webhook(prediction)
    assert await asyncio.to_thread(send, replace(webhook, url=f"{theirs}/callback")) == 200
    assert await asyncio.to_thread(send, webhook) == 200
    assert len(site.chat.pictures(44)) == 1
    assert await site.open_tasks() == []


@clause("P-16", "P-29", "P-33")
async def test_p16_an_unfinished_task_of_another_program_is_finished(
    site: Site, other: Start
) -> None:
    """Their callback never ran. The folder also has an object that is not a task."""
    raw, bucket = boto_client(site.bucket.config), site.bucket.config.bucket
    for name, body in {
        "garbage": b"not json",
        "huge": b"{" + b" " * 300_000,
        "novel": b'{"chat_id": 1, "status": "novel"}',
        "bad name.": b"{}",
    }.items():
        raw.put_object(Bucket=bucket, Key=f"tasks/{name}.json", Body=body)
    site.replicate.webhooks = "never"
    await their_photo(other(""), 43, "minimal")
    await asyncio.to_thread(site.replicate.wait_idle)
    (first,) = await site.recover(passes=1, step_s=200)
    assert first.taken_over == 0  # not before five minutes: their callback may still run
    site.clock.shift_s += 800
    reports = await site.recover()
    assert sum(report.taken_over for report in reports) == 1
    assert len(site.chat.pictures(43)) == 1
    assert (await the_task(site))["status"] == "succeeded"
    site.clock.shift_s += 1000
    (again,) = await site.recover()
    assert (again.taken_over, again.failed) == (0, 0)
    assert len(site.chat.pictures(43)) == 1
