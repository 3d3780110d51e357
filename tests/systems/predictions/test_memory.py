"""Pictures in hand stay within a budget: a function of 128 MB finishes any backlog (P-36)."""

from __future__ import annotations

import asyncio

from jobwire.systems.predictions.byte_budget import ByteBudget
from tests.support import clause
from tests.systems.predictions.conftest import MakeTelegramSite
from tests.systems.predictions.memory import enlarge_outputs, peak_of
from tests.systems.predictions.site import png
from tests.systems.predictions.telegram_site import TelegramSite

LIMIT_MB = 96
PHOTO = png(1, 2, 3)


async def paid(site: TelegramSite, count: int, **more: str) -> None:
    """Tasks whose predictions have ended, and whose webhooks were lost."""
    site.replicate.webhooks = "never"
    for chat_id in range(1, count + 1):
        await site.deliver(site.telegram.photo_message(PHOTO, chat_id=chat_id, **more))
    await asyncio.to_thread(site.replicate.wait_idle)
    site.clock.shift_s += 60


@clause("P-36")
async def test_p36_a_backlog_of_large_pictures_fits_a_small_function(
    make_telegram_site: MakeTelegramSite,
) -> None:
    site = make_telegram_site()
    await paid(site, 6)
    enlarge_outputs(site, 15)
    peak_mb = await asyncio.to_thread(peak_of, site)
    assert await site.open_tasks() == []
    assert [len(site.telegram.pictures(chat_id)) for chat_id in range(1, 7)] == [1] * 6
    assert peak_mb <= LIMIT_MB


@clause("P-36")
async def test_p36_webhooks_at_the_same_time_with_several_large_pictures_fit_too(
    make_telegram_site: MakeTelegramSite,
) -> None:
    site = make_telegram_site()
    await paid(site, 2, caption="two")
    enlarge_outputs(site, 19)
    predictions = site.replicate.predictions
    webhooks = [(await the_tid(site, each), site.replicate.webhook(each)) for each in predictions]
    peak_mb = await asyncio.to_thread(peak_of, site, *webhooks)
    assert await site.open_tasks() == []
    assert [len(site.telegram.pictures(chat_id)) for chat_id in (1, 2)] == [2, 2]
    assert peak_mb <= LIMIT_MB


async def the_tid(site: TelegramSite, prediction_id: str) -> str:
    task = await site.task(prediction_id)
    assert task is not None
    return str(task["jobwire"]["tid"])


@clause("P-36")
async def test_p36_the_budget_is_never_exceeded_and_nobody_starves() -> None:
    """Drivers with pictures of all sizes, some of them canceled while they wait."""
    budget, in_hand, most = ByteBudget(24), 0, 0

    async def drive(number: int) -> None:
        nonlocal in_hand, most
        with budget.in_hand() as hand:
            await hand.reserve(1)
            wanted = number * 7 % 30
            if not hand.grow(wanted):
                await hand.reserve(wanted)
            size = min(max(wanted, 1), 24)
            in_hand += size
            most = max(most, in_hand)
            try:
                await asyncio.sleep(0)
            finally:
                in_hand -= size

    drivers = [asyncio.create_task(drive(number)) for number in range(200)]
    await asyncio.sleep(0)
    for driver in drivers[::9]:
        driver.cancel()
    await asyncio.wait_for(asyncio.gather(*drivers, return_exceptions=True), 30)
    assert 0 < most <= 24
    await asyncio.wait_for(budget.take(24), 30)  # all of it was returned
