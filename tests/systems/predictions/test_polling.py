"""Polling for updates where no public address exists: the same bot, one poller at a time (P-26)."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import threading
from collections.abc import AsyncGenerator

import pytest

from jobwire.objects import BucketConfig, Missing
from jobwire.systems.predictions import texts
from jobwire.systems.predictions.contract import POLLER_KEY
from jobwire.systems.predictions.reconcile import reconcile
from jobwire.systems.predictions.service import reconcile_forever
from jobwire.systems.predictions.telegram.api import BotApi
from jobwire.systems.predictions.telegram.bot import TelegramBot
from jobwire.systems.predictions.telegram.poller import PollingRefused, UpdatePoller
from tests.standins.server import Call, Request, Standin, json_reply
from tests.standins.telegram import TOKEN
from tests.support import clause, wait_until
from tests.support.s3_proxy import Reply, S3Proxy, dropped
from tests.systems.predictions.conftest import MakeTelegramSite
from tests.systems.predictions.site import build_flow, png, through
from tests.systems.predictions.telegram_site import TelegramSite

PHOTO = png(10, 200, 90)


@contextlib.asynccontextmanager
async def polling(bot: TelegramBot) -> AsyncGenerator[None]:
    """A running poller."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(UpdatePoller(bot, wait_s=1).run(stop))
        try:
            yield
        finally:
            stop.set()


@clause("P-13", "P-26")
@pytest.mark.parametrize("provider", ["replicate", "cog"])
async def test_p26_a_photo_is_processed_by_polling_alone(
    make_telegram_site: MakeTelegramSite, seaweedfs: BucketConfig, cog_url: str, provider: str
) -> None:
    """Without a public address: updates and outcomes are both polled."""
    options = {"cog_url": cog_url} if provider == "cog" else {}
    site = make_telegram_site(seaweedfs, public_url="", **options)
    site.telegram.webhook_url = ""
    site.telegram.queue(site.telegram.photo_message(PHOTO), site.telegram.message(text="/mode"))
    async with polling(site.bot):

        async def delivered() -> bool:
            await reconcile(site.flow)
            return bool(site.telegram.pictures(77))

        await wait_until(delivered, "the picture")
        await wait_until(lambda: not site.telegram.unconfirmed, "the updates to be confirmed")
    assert site.telegram.texts(77) != []
    assert await site.open_tasks() == []


@clause("P-26")
async def test_p26_one_poller_at_a_time(telegram_site: TelegramSite) -> None:
    """The second waits for the first's lease; Telegram never gets requests of both."""
    site = telegram_site
    site.telegram.webhook_url = ""
    other = TelegramBot(build_flow(site.addresses, site.clock), BotApi(TOKEN, site.telegram.url))
    async with polling(site.bot):
        await wait_until(lambda: "getUpdates" in site.telegram.calls, "the first poll")
        second = UpdatePoller(other, wait_s=1)
        assert not await second.hold_lease()
        site.telegram.queue(site.telegram.message(text="/help"))
        await wait_until(lambda: site.telegram.texts(77), "the answer")
    # The first released its lease, so the second need not wait for its end.
    assert await second.hold_lease()
    # The lease of a dead poller expires.
    third = UpdatePoller(site.bot, wait_s=1)
    assert not await third.hold_lease()
    site.clock.shift_s += 91
    assert await third.hold_lease()
    assert not await second.hold_lease()


@clause("P-26", "P-33")
async def test_p26_an_update_is_confirmed_only_when_its_photo_is_recorded(
    telegram_site: TelegramSite,
) -> None:
    """The store fails; the update is delivered again, and its photo is one task."""
    site = telegram_site
    site.telegram.webhook_url = ""
    with S3Proxy(site.bucket.config) as proxy:
        flow = build_flow(through(site.addresses, proxy.config.endpoint), site.clock)
        bot = TelegramBot(flow, BotApi(TOKEN, site.telegram.url))
        poller = UpdatePoller(bot, wait_s=0)
        site.telegram.queue(site.telegram.photo_message(PHOTO), {"update_id": 900_000_002})
        proxy.every(lambda seen: dropped if "tasks/open/" in seen.path else None)
        with pytest.raises(Exception, match="not recorded"):
            await poller.poll_once()
        assert site.telegram.unconfirmed == 2
        proxy.every(lambda seen: None)
        await poller.poll_once()
        await poller.poll_once()
        assert site.telegram.unconfirmed == 0
    await site.recover()
    assert len(site.telegram.pictures(77)) == 1
    assert len(site.replicate.predictions) == 1


@clause("P-26")
async def test_p26_a_bot_with_a_webhook_does_not_poll(telegram_site: TelegramSite) -> None:
    site = telegram_site
    with pytest.raises(PollingRefused, match="--delete-webhook"):
        await UpdatePoller(site.bot, wait_s=0).run(asyncio.Event())
    assert not isinstance(await site.bucket.get(POLLER_KEY), Missing)
    wrong = TelegramBot(site.flow, BotApi("1:wrong", site.telegram.url))
    with pytest.raises(PollingRefused, match="token"):
        await UpdatePoller(wrong, wait_s=0).run(asyncio.Event())


class SlowModel(Standin):
    """A cog server whose model runs until the test lets it end."""

    def __init__(self) -> None:
        super().__init__()
        self.may_end = threading.Event()

    def call(self, request: Request) -> Call:
        return "predict", lambda: self._predict(request.path.rpartition("/")[2])

    def _predict(self, prediction_id: str) -> Reply:
        self.may_end.wait(30)
        picture = "data:image/png;base64," + base64.b64encode(PHOTO).decode()
        return json_reply(200, {"id": prediction_id, "status": "succeeded", "output": picture})


@clause("P-38")
async def test_p38_while_a_model_runs_updates_are_handled(
    make_telegram_site: MakeTelegramSite,
) -> None:
    """cog answers when its model is done; other chats, and the next update of the same chat, do
    not wait for it. Each chat's own updates are answered in their order."""
    with SlowModel() as model:
        site = make_telegram_site(public_url="", cog_url=model.url)
        telegram = site.telegram
        telegram.webhook_url = ""
        telegram.queue(telegram.photo_message(PHOTO, chat_id=1))
        async with polling(site.bot):
            await wait_until(lambda: "predict" in model.calls, "the model to run")
            first = [
                telegram.message(text="/help", chat_id=1),
                telegram.message(text="/mode", chat_id=1),
            ]
            telegram.queue(telegram.message(text="/help", chat_id=2), *first)
            await wait_until(lambda: telegram.texts(2), "the answer in another chat")
            await wait_until(lambda: len(telegram.texts(1)) == 3, "the answers in the same chat")
            await wait_until(lambda: not telegram.unconfirmed, "the updates to be confirmed")
            assert telegram.pictures(1) == []
            help_text, mode = texts.help_text("en", limit_mb=10), texts.mode("en", "test/invert")
            assert telegram.texts(1) == [texts.received("en"), help_text, mode]
            telegram.queue(telegram.photo_message(PHOTO, chat_id=3))
            await wait_until(lambda: model.calls.count("predict") == 2, "a second photo")
            model.may_end.set()
            await wait_until(lambda: telegram.pictures(1) and telegram.pictures(3), "the pictures")
    assert await site.open_tasks() == []


@clause("P-38")
async def test_p38_a_photo_wakes_the_loop_of_passes(make_telegram_site: MakeTelegramSite) -> None:
    """The loop has found nothing to do and waits for ten minutes: its picture does not."""
    site = make_telegram_site(public_url="")
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(reconcile_forever(site.flow, stop, every_s=600))
        passes = ("passes", "complete")
        await wait_until(lambda: site.flow.deps.counts.events[passes], "a pass over nothing")
        await site.bot.take(site.telegram.photo_message(PHOTO))
        assert site.telegram.pictures(77) == []
        await wait_until(lambda: site.telegram.pictures(77), "the picture", timeout_s=30)
        stop.set()
