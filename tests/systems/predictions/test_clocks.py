"""Processes whose clocks differ: age is judged by the store's clock (P-39)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from email.utils import formatdate, parsedate_to_datetime

import pytest

from jobwire.objects import Bucket
from jobwire.systems.predictions import build
from jobwire.systems.predictions.flow import Flow
from jobwire.systems.predictions.reconcile import reconcile
from jobwire.systems.predictions.settings import PredictionsSettings
from jobwire.systems.predictions.store_clock import StoreClock
from tests.standins.chat_client import HttpChat
from tests.standins.replicate import SECRET
from tests.support import clause
from tests.support.s3_proxy import Forward, Mishap, Reply, S3Proxy, Seen, stored_but_dropped
from tests.systems.predictions.site import ShiftedClock, Site, build_flow, through


class StoreTime:
    """The store with its time moved ahead: minutes pass at once, for every process."""

    def __init__(self, proxy: S3Proxy) -> None:
        self.proxy = proxy
        self.shift_s = 0
        proxy.every(self._choose)

    def _choose(self, _seen: Seen) -> Mishap:
        return self._forward

    def _forward(self, forward: Forward) -> Reply:
        reply = forward()
        headers = tuple(
            (name, self._moved(value) if name.lower() == "date" else value)
            for name, value in reply.headers
        )
        return Reply(reply.status, headers, reply.body)

    def _moved(self, date: str) -> str:
        moment = parsedate_to_datetime(date).timestamp() + self.shift_s
        return formatdate(moment, usegmt=True)


@pytest.fixture
def store_time(site: Site) -> Iterator[StoreTime]:
    with S3Proxy(site.bucket.config) as proxy:
        yield StoreTime(proxy)


def flow_with_clock(site: Site, store_time: StoreTime, wrong_by_s: float) -> Flow:
    """A process with a clock of its own, which is wrong."""
    addresses = through(site.addresses, store_time.proxy.config.endpoint)
    bucket = Bucket(store_time.proxy.config)
    return build_flow(addresses, StoreClock(bucket, ShiftedClock(wrong_by_s)), bucket)


@clause("P-39")
@pytest.mark.parametrize("wrong_by_s", [400, -400])
async def test_p39_clocks_that_differ_cause_no_second_charge(
    site: Site, store_time: StoreTime, wrong_by_s: int
) -> None:
    """The answer to create is lost and the provider's list lags. The other process must not take
    the difference of the clocks for minutes of waiting, nor ask the list from the wrong time on."""
    one = flow_with_clock(site, store_time, wrong_by_s)
    other = flow_with_clock(site, store_time, -wrong_by_s)
    site.replicate.webhooks, site.replicate.listed = "never", False
    site.replicate.plan("create", stored_but_dropped)
    photo = site.photo()
    await one.submit(photo)
    await asyncio.to_thread(site.replicate.wait_idle)
    for _ in range(2):
        store_time.shift_s += 30
        await reconcile(other)
        await reconcile(one)
    assert len(site.paid(photo)) == 1
    site.replicate.listed = True
    store_time.shift_s += 70
    await reconcile(other)
    await site.verify_once(photo)


@clause("P-39")
async def test_p39_a_flow_has_the_stores_clock(site: Site, store_time: StoreTime) -> None:
    settings = PredictionsSettings(provider="cog", webhook_secret=SECRET)
    bucket = Bucket(store_time.proxy.config)
    flow = build.build_flow(settings, bucket, HttpChat(site.chat.url), bot="bot")
    store_time.shift_s = 5000
    before_ms = flow.deps.clock.now_ms()
    await flow.record(site.photo())
    assert flow.deps.clock.now_ms() - before_ms > 4_990_000
