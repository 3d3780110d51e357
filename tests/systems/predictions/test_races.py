"""The race table: with duplicated, delayed and lost messages, one outcome and one picture.

Each case once on SeaweedFS and several times on moto, all tasks of a case at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from jobwire.objects import BucketConfig, Unavailable
from jobwire.systems.predictions.flow import Flow
from jobwire.systems.predictions.intent import Photo
from jobwire.systems.predictions.reconcile import reconcile
from tests.standins.replicate import send
from tests.standins.server import answers
from tests.support import clause, wait_until
from tests.support.s3_proxy import (
    Forward,
    Mishap,
    Reply,
    S3Proxy,
    dropped,
    stored_but_500,
    stored_but_dropped,
)
from tests.systems.predictions.site import ROUNDS, Site, build_flow, rounds, through

pytestmark = pytest.mark.timeout(120 if ROUNDS <= 2 else 900)


@pytest.fixture
def photos(site: Site, moto: BucketConfig) -> list[Photo]:
    return [site.photo() for _ in range(rounds(site, moto))]


async def submit(site: Site, photos: list[Photo]) -> None:
    await asyncio.gather(*(site.flow.submit(photo) for photo in photos))


async def repeated(flow: Flow, photo: Photo) -> None:
    """Submit a photo until it is accepted, as Telegram repeats an update."""
    for _ in range(10):
        with contextlib.suppress(Unavailable):
            await flow.submit(photo)
            return
    raise AssertionError("no answer from the bucket in any of ten attempts")


async def closed(site: Site) -> None:
    async def none_open() -> bool:
        return await site.open_tasks() == []

    await wait_until(none_open, "every task to be closed")


@clause("P-13", "P-14")
async def test_p14_a_webhook_before_the_answer_to_create(site: Site, photos: list[Photo]) -> None:
    """A fast model: its webhook arrives before the id is known and before a task object exists."""
    site.replicate.webhooks = "never"
    statuses: list[int] = []

    def webhook_first(forward: Forward) -> Reply | None:
        before = set(site.replicate.predictions)
        reply = forward()
        (created,) = set(site.replicate.predictions) - before
        site.replicate.wait_idle()
        statuses.append(send(site.replicate.webhook(created)))
        return reply

    for photo in photos:
        site.replicate.plan("create", webhook_first)
        await site.flow.submit(photo)
    await closed(site)
    assert statuses == [200] * len(photos)
    await site.verify_once(*photos)


@clause("P-13", "P-14")
async def test_p14_a_webhook_before_a_create_that_is_never_answered(
    site: Site, photos: list[Photo]
) -> None:
    """The news is recorded while the creating process holds the lease; no other process drives the
    task."""
    site.replicate.webhooks = "never"

    def webhook_only(forward: Forward) -> Reply | None:
        before = set(site.replicate.predictions)
        forward()
        (created,) = set(site.replicate.predictions) - before
        site.replicate.wait_idle()
        assert send(site.replicate.webhook(created)) == 200
        return None

    for photo in photos:
        site.replicate.plan("create", webhook_only)
        await site.flow.submit(photo)
    await site.verify_once(*photos)


@clause("P-14", "P-17")
async def test_p14_twelve_webhooks_at_once_are_one_picture(site: Site, photos: list[Photo]) -> None:
    site.replicate.copies = 12
    for photo in photos:
        await site.flow.submit(photo)
    await closed(site)
    await wait_until(lambda: len(site.receiver.statuses) >= 12 * len(photos), "all webhooks")
    assert set(site.receiver.statuses) <= {200, 404}
    await site.verify_once(*photos)
    edits = site.chat.calls.count("edit_picture")
    assert edits == len(photos)


@clause("P-14", "P-15")
async def test_p15_updates_out_of_order_change_nothing(site: Site, photos: list[Photo]) -> None:
    site.replicate.webhooks = "never"
    await submit(site, photos)
    await asyncio.to_thread(site.replicate.wait_idle)
    for photo in photos:
        (prediction,) = site.paid(photo)
        known, tid = str(prediction["id"]), site.tid(photo)
        running = site.replicate.webhook(known, status="processing", output=None)
        novel = site.replicate.webhook(known, status="novel-status", output=None)
        ended = site.replicate.webhook(known)
        failed = site.replicate.webhook(known, status="failed", output=None, error="late")
        for webhook in (novel, running, ended, running, novel, failed, ended):
            assert await site.receiver_status(tid, webhook) == 200
    await site.verify_once(*photos)


@clause("P-16")
async def test_p16_without_any_webhook_reconcile_finishes(site: Site, photos: list[Photo]) -> None:
    site.replicate.webhooks = "never"
    await submit(site, photos)
    await site.recover()
    await site.verify_once(*photos)


@clause("P-13")
async def test_p13_six_updates_at_once_are_one_task(site: Site, photos: list[Photo]) -> None:
    other = build_flow(site.addresses, site.clock)
    for photo in photos:
        await asyncio.gather(*(flow.submit(photo) for flow in (site.flow, other) for _ in range(3)))
    await closed(site)
    await site.flow.submit(photos[0])  # and once more after the end
    await site.verify_once(*photos)


@clause("P-12", "P-13", "P-14")
@pytest.mark.parametrize("mishap", [stored_but_dropped, stored_but_500])
async def test_p12_lost_answers_of_conditional_writes(
    site: Site, photos: list[Photo], mishap: Mishap
) -> None:
    with S3Proxy(site.bucket.config) as proxy:
        proxy.always(lambda number: mishap if number % 3 == 0 else None)
        flow = build_flow(through(site.addresses, proxy.config.endpoint), site.clock)
        site.receiver.flow = flow
        await asyncio.gather(*(repeated(flow, photo) for photo in photos))
        await closed(site)
    await site.verify_once(*photos)


@clause("P-13", "P-20")
@pytest.mark.parametrize("fault", [stored_but_dropped, stored_but_500, dropped, answers(503)])
async def test_p13_a_create_without_a_response_is_searched_for_before_it_is_repeated(
    site: Site, photos: list[Photo], fault: Mishap
) -> None:
    """Replicate has no idempotency key: a blind repetition would be paid twice."""
    site.replicate.webhooks = "never"
    site.replicate.plan("create", *[fault] * len(photos))
    await submit(site, photos)
    await site.recover()
    await site.verify_once(*photos)


@clause("P-13")
async def test_p13_a_webhook_brings_the_id_of_a_create_without_an_answer(
    site: Site, photos: list[Photo]
) -> None:
    site.replicate.plan("create", *[stored_but_dropped] * len(photos))
    await submit(site, photos)
    await closed(site)
    assert "list" not in site.replicate.calls
    await site.verify_once(*photos)


@clause("P-13")
async def test_p13_only_a_lagging_list_causes_a_second_prediction(
    site: Site, photos: list[Photo]
) -> None:
    """The one case of the table with two paid predictions; the user still gets one picture."""
    site.replicate.webhooks = "never"
    site.replicate.listed = False
    site.replicate.plan("create", *[stored_but_dropped] * len(photos))
    await submit(site, photos)
    site.clock.shift_s += 70
    await reconcile(site.flow)
    assert all(len(site.paid(photo)) == 1 for photo in photos)  # not before the grace is over
    await site.recover()
    await site.verify_once(*photos, paid=2)
    for photo in photos:  # the first prediction's webhook arrives late
        first = site.replicate.webhook(str(site.paid(photo)[0]["id"]))
        assert await site.receiver_status(site.tid(photo), first) == 200
    await site.verify_once(*photos, paid=2)


@clause("P-18", "P-20")
async def test_p20_a_busy_provider_is_retried_after_its_retry_after(
    site: Site, photos: list[Photo]
) -> None:
    site.replicate.plan("create", *[answers(429, {"retry_after": 40})] * len(photos))
    await submit(site, photos)
    assert site.replicate.calls.count("create") == len(photos)
    site.clock.shift_s += 30
    await reconcile(site.flow)
    assert site.replicate.calls.count("create") == len(photos)
    await site.recover()
    await closed(site)
    await site.verify_once(*photos)


@clause("P-16")
async def test_p16_concurrent_reconcile_passes_are_safe(site: Site, photos: list[Photo]) -> None:
    site.replicate.webhooks = "never"
    site.replicate.plan("create", *[stored_but_dropped] * len(photos))
    await submit(site, photos)
    other = build_flow(site.addresses, site.clock)
    for _ in range(6):
        await asyncio.to_thread(site.replicate.wait_idle)
        site.clock.shift_s += 130
        await asyncio.gather(reconcile(site.flow), reconcile(other))
    await site.verify_once(*photos)


@clause("P-17")
async def test_p17_a_lost_answer_of_a_send_leaves_one_extra_message(
    site: Site, photos: list[Photo]
) -> None:
    site.chat.plan("send", *[stored_but_dropped] * len(photos))
    await submit(site, photos)
    await closed(site)
    await site.verify_once(*photos, spare_texts=1)


@clause("P-17")
@pytest.mark.parametrize("fault", [stored_but_dropped, answers(500), answers(429, retry_after="5")])
async def test_p17_an_edit_is_repeated_until_it_is_done(
    site: Site, photos: list[Photo], fault: Mishap
) -> None:
    site.chat.plan("edit_picture", *[fault] * len(photos))
    await submit(site, photos)
    await asyncio.to_thread(site.replicate.wait_idle)
    await site.recover()
    await site.verify_once(*photos)


@clause("P-17")
async def test_p17_a_placeholder_that_the_user_deleted_is_sent_again(site: Site) -> None:
    site.replicate.webhooks = "never"
    photo = site.photo()
    await site.flow.submit(photo)
    site.chat.messages.clear()
    await site.recover()
    await site.verify_once(photo)
