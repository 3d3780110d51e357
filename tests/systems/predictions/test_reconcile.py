"""Reconcile: the tasks that it lists, those that it skips, and where it resumes (P-16, P-29)."""

from __future__ import annotations

import json

import pytest

from jobwire.objects import Found
from jobwire.systems.predictions.contract import LISTING_KEY, intent_key, open_key
from jobwire.systems.predictions.reconcile import reconcile
from tests.support import Program, clause
from tests.support.s3 import boto_client
from tests.support.s3_proxy import S3Proxy
from tests.systems.predictions.site import IDS, Site, build_flow, through


@clause("P-16")
async def test_p16_a_marker_without_an_intent_is_removed_after_an_hour(site: Site) -> None:
    """The process died between marker and intent, and the update was not redelivered."""
    tid = IDS.of_message("bot", 1, 1)
    await site.flow.deps.records.open(tid)
    await site.recover(passes=1, step_s=3000)
    assert await site.open_tasks() == [tid]
    (report,) = await site.recover(passes=1, step_s=700)
    assert report.orphans == 1
    assert await site.open_tasks() == []


@clause("P-16", "P-33")
async def test_p16_an_unreadable_object_does_not_stop_the_pass(site: Site) -> None:
    raw, name = boto_client(site.bucket.config), site.bucket.config.bucket
    for number, body in enumerate((b"not json", b"{}", b"x" * 300_000)):
        tid = IDS.of_message("bad", number, 1)
        raw.put_object(Bucket=name, Key=intent_key(tid), Body=body)
        raw.put_object(Bucket=name, Key=open_key(tid), Body=b"")
    raw.put_object(Bucket=name, Key="tasks/open/not a task id", Body=b"")
    site.replicate.webhooks = "never"
    photo = site.photo()
    await site.flow.submit(photo)
    (report,) = await site.recover(passes=1)
    assert (report.open, report.failed, report.delivered) == (4, 3, 1)
    assert len(site.chat.pictures(photo.chat_id)) == 1


@clause("P-16", "P-33")
async def test_p33_an_unreadable_intent_does_not_stop_the_walk_over_tasks(site: Site) -> None:
    raw, name = boto_client(site.bucket.config), site.bucket.config.bucket
    for prediction_id in ("theirs1", "theirs2"):
        task = {"prediction_id": prediction_id, "chat_id": 5, "created_at": "2026-01-01T00:00:00Z"}
        raw.put_object(Bucket=name, Key=f"tasks/{prediction_id}.json", Body=json.dumps(task))
    raw.put_object(Bucket=name, Key=intent_key(IDS.of_prediction("theirs1")), Body=b"not json")
    site.clock.shift_s += 400
    report = await reconcile(site.flow)
    assert (report.taken_over, report.failed) == (1, 1)
    found = await site.bucket.get(LISTING_KEY)
    assert isinstance(found, Found)
    assert json.loads(found.body)["done"] == "yes"


@clause("P-29")
async def test_p29_tasks_are_listed_every_quarter_of_an_hour_and_resumed(site: Site) -> None:
    raw, name = boto_client(site.bucket.config), site.bucket.config.bucket
    theirs = [f"theirs{number:02}" for number in range(7)]
    for prediction_id in theirs:
        task = {"prediction_id": prediction_id, "chat_id": 5, "created_at": "2026-01-01T00:00:00Z"}
        raw.put_object(Bucket=name, Key=f"tasks/{prediction_id}.json", Body=json.dumps(task))
    site.clock.shift_s += 400
    taken: list[int] = []
    listings: list[dict[str, str]] = []
    for _ in range(5):
        taken.append((await reconcile(site.flow, page_size=3, pages=1)).taken_over)
        found = await site.bucket.get(LISTING_KEY)
        assert isinstance(found, Found)
        listings.append(json.loads(found.body))
    assert sum(taken) == 7
    assert max(taken) <= 3
    assert (listings[0]["after"], listings[0]["done"]) != ("", "yes")
    assert (listings[-1]["after"], listings[-1]["done"]) == ("", "yes")
    assert listings[-1]["begun"] == listings[0]["begun"]
    site.clock.shift_s += 901
    assert (await reconcile(site.flow)).taken_over == 0  # each has its intent now
    found = await site.bucket.get(LISTING_KEY)
    assert isinstance(found, Found)
    assert json.loads(found.body)["since"] == listings[0]["begun"]


@clause("P-16", "P-29")
@pytest.mark.parametrize("page_size", [2, 1000])
async def test_p16_a_pass_visits_every_open_task_once_from_any_start(
    site: Site, page_size: int
) -> None:
    site.replicate.webhooks = "never"
    photos = [site.photo() for _ in range(5)]
    for photo in photos:
        await site.flow.submit(photo)
    for _ in range(4):
        report = await reconcile(site.flow, page_size=page_size)
        assert (report.open, report.complete) == (5, True)
    await site.recover()
    await site.verify_once(*photos)


@clause("P-29", "P-34")
async def test_p34_an_idle_pass_is_two_requests(site: Site) -> None:
    with S3Proxy(site.bucket.config) as proxy:
        flow = build_flow(through(site.addresses, proxy.config.endpoint), site.clock)
        await reconcile(flow)
        before = len(proxy.requests)
        await reconcile(flow)
        assert [each.method for each in proxy.requests[before:]] == ["GET", "GET"]


@clause("P-16")
async def test_p16_a_pass_at_its_time_limit_starts_nothing_new(site: Site) -> None:
    site.replicate.webhooks = "never"
    photo = site.photo()
    await site.flow.submit(photo)
    site.clock.shift_s += 100
    report = await reconcile(site.flow, limit_s=0)
    assert (report.open, report.complete) == (0, False)
    assert site.chat.pictures(photo.chat_id) == []


@clause("P-23", "P-28")
def test_p28_the_flow_imports_no_valkey_and_little_else() -> None:
    """A cloud function starts cold with it."""
    heavy = ["hiredis", "redis", "valkey", "httpx", "pydantic", "fastapi", "boto3", "uvicorn"]
    source = f"""
import sys
import jobwire.objects.store
import jobwire.systems.predictions.providers.cog
import jobwire.systems.predictions.providers.replicate
import jobwire.systems.predictions.reconcile
import jobwire.systems.predictions.settings
import jobwire.systems.predictions.webhook
print(*(set({heavy}) & set(sys.modules)))
print(*(name for name in sys.modules if name.startswith("jobwire.valkey")))
"""
    with Program.script(source) as program:
        assert program.wait() == 0, program.output
        assert program.output.split() == []
