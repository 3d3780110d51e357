"""A paid picture reaches its user, however long the chat refuses it (P-37)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from jobwire.systems.predictions import texts
from jobwire.systems.predictions.contract import TaskErrorCode
from jobwire.systems.predictions.listing import find_task
from jobwire.systems.predictions.reconcile import reconcile
from tests.standins.server import answers
from tests.standins.telegram import flood
from tests.support import clause
from tests.support.s3_proxy import Mishap, Reply, stored_but_dropped
from tests.systems.predictions.conftest import MakeTelegramSite
from tests.systems.predictions.site import build_flow, png
from tests.systems.predictions.telegram_site import TelegramSite

PHOTO = png(9, 40, 190)
SERVER_ERROR = answers(500, {"ok": False, "error_code": 500, "description": "Internal"})
UNDELIVERED = texts.error(TaskErrorCode.UNDELIVERED, "en", limit_mb=10)


async def paid_without_a_message(site: TelegramSite) -> None:
    """The picture is paid and ready; the user has deleted the text that was to become it."""
    site.replicate.webhooks = "never"
    await site.deliver(site.telegram.photo_message(PHOTO))
    await asyncio.to_thread(site.replicate.wait_idle)
    site.telegram.messages.clear()
    assert len(site.replicate.predictions) == 1


@clause("P-37")
@pytest.mark.parametrize("fault", [flood(3), SERVER_ERROR, answers(502)], ids=["429", "500", "502"])
async def test_p37_a_refused_send_is_not_a_send(telegram_site: TelegramSite, fault: Mishap) -> None:
    site = telegram_site
    await paid_without_a_message(site)
    site.telegram.plan("sendMessage", *[fault] * 9)
    await site.recover(passes=14, step_s=700)
    assert site.telegram.calls.count("sendMessage") == 1 + 9 + 1
    assert len(site.telegram.pictures(77)) == 1
    assert site.telegram.texts(77) == []


@clause("P-37")
async def test_p37_without_a_connection_nothing_is_counted(telegram_site: TelegramSite) -> None:
    site = telegram_site
    await paid_without_a_message(site)
    site.telegram.plan("sendMessage", flood(3))
    await site.recover(passes=1)
    offline = build_flow(replace(site.addresses, telegram_url="http://127.0.0.1:9"), site.clock)
    for _ in range(9):
        site.clock.shift_s += 700
        assert (await reconcile(offline)).failed == 0
    await site.recover(step_s=700)
    assert len(site.telegram.pictures(77)) == 1
    assert site.telegram.texts(77) == []


@clause("P-13", "P-37")
async def test_p37_without_a_connection_the_provider_was_not_asked(
    telegram_site: TelegramSite,
) -> None:
    """Nothing is to be searched in the provider's list, and no attempt is used up."""
    site = telegram_site
    offline = build_flow(replace(site.addresses, replicate_url="http://127.0.0.1:9"), site.clock)
    photo = site.photo()
    site.telegram.files[photo.file_id or ""] = PHOTO
    await offline.submit(photo)
    for _ in range(4):
        site.clock.shift_s += 130
        await reconcile(offline)
    assert await site.state(photo) == "stored"
    await site.recover()
    assert len(site.paid(photo)) == 1
    assert "list" not in site.replicate.calls
    assert len(site.telegram.pictures(photo.chat_id)) == 1


@clause("P-37")
async def test_p37_a_placeholder_that_was_refused_is_not_a_send(
    telegram_site: TelegramSite,
) -> None:
    site = telegram_site
    site.telegram.plan("sendMessage", flood(3), *[SERVER_ERROR] * 6)
    await site.deliver(site.telegram.photo_message(PHOTO))
    await site.recover(passes=14, step_s=700)
    assert len(site.telegram.pictures(77)) == 1
    assert site.telegram.texts(77) == []


@clause("P-17", "P-37")
async def test_p37_sends_without_an_answer_become_rare_and_never_end(
    telegram_site: TelegramSite,
) -> None:
    """Each may be a text in the chat, so the sixth and later ones wait for an hour."""
    site = telegram_site
    await paid_without_a_message(site)
    site.telegram.plan("sendMessage", *[stored_but_dropped] * 7)
    await site.recover(passes=6, step_s=700)
    assert site.telegram.calls.count("sendMessage") == 1 + 5
    await site.recover(passes=4, step_s=3700)
    assert len(site.telegram.pictures(77)) == 1
    assert len(site.telegram.texts(77)) == 7


@clause("P-37")
async def test_p37_an_outage_of_the_chat_service_is_no_hour_of_waiting(
    telegram_site: TelegramSite,
) -> None:
    """The page of a proxy tells nothing about the send; the next one waits for the service."""
    site = telegram_site

    def away(_: object) -> Reply:
        return Reply(502, (("Content-Type", "text/html"),), b"<html>Bad Gateway")

    await paid_without_a_message(site)
    site.telegram.plan("sendMessage", away)
    site.telegram.plan("getMe", *[away] * 6)
    await site.recover(passes=7, step_s=700)
    assert site.telegram.calls.count("getMe") == 6
    assert site.telegram.calls.count("sendMessage") == 1 + 1, "it is away: nothing is sent"
    await site.recover(passes=1, step_s=700)
    assert len(site.telegram.pictures(77)) == 1


@clause("P-37")
async def test_p37_a_long_retry_after_is_waited_for(telegram_site: TelegramSite) -> None:
    site = telegram_site
    site.telegram.plan("editMessageMedia", flood(3 * 3600))
    await site.deliver(site.telegram.photo_message(PHOTO))
    await asyncio.to_thread(site.replicate.wait_idle)
    for _ in range(2):
        site.clock.shift_s += 5300
        await reconcile(site.flow)
    assert site.telegram.calls.count("editMessageMedia") == 1
    site.clock.shift_s += 300
    await reconcile(site.flow)
    assert len(site.telegram.pictures(77)) == 1


@clause("P-37")
@pytest.mark.parametrize("refused", ["editMessageMedia", "sendMessage"])
async def test_p37_at_the_end_of_the_delivery_user_and_owner_are_told(
    make_telegram_site: MakeTelegramSite, refused: str
) -> None:
    """A day of refusals, then one last attempt: its failure is told, and the picture stays in the
    bucket."""
    site = make_telegram_site(owner_chat=99)
    await paid_without_a_message(site)
    site.telegram.plan(refused, *[flood(5)] * 4)
    for _ in range(3):
        site.clock.shift_s += 3600
        await reconcile(site.flow)
    assert await site.open_tasks() != []
    assert site.telegram.texts(99) == []
    site.clock.shift_s += 24 * 3600
    await reconcile(site.flow)
    assert await site.open_tasks() == []
    assert site.telegram.texts(77) == [UNDELIVERED]
    (alert,) = site.telegram.texts(99)
    (prediction,) = site.replicate.predictions
    assert prediction in alert
    view = await find_task(site.flow.deps.records, prediction)
    assert view is not None
    assert (view.status, view.error) == ("succeeded", "undelivered")
    assert str(view.output_key) in alert


@clause("P-37")
async def test_p37_a_picture_is_delivered_after_an_outage_of_a_day(
    telegram_site: TelegramSite,
) -> None:
    """No pass ran for a day: the first attempt after it counts."""
    site = telegram_site
    site.telegram.plan("editMessageMedia", SERVER_ERROR)
    await site.deliver(site.telegram.photo_message(PHOTO))
    await asyncio.to_thread(site.replicate.wait_idle)
    site.clock.shift_s += 25 * 3600
    await reconcile(site.flow)
    assert len(site.telegram.pictures(77)) == 1
