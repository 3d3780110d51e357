"""kill -9 of the process after each of its calls, in submit and in settle: nothing is lost or
repeated.

Every call of the child goes through servers of this test, which execute it, kill the child and
drop the answer. So every row of the crash table is covered, whatever steps the code has.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jobwire.objects import BucketConfig
from jobwire.systems.predictions.intent import Photo
from tests.support import clause
from tests.support.s3_proxy import Forward, Mishap, Reply, S3Proxy, Seen
from tests.systems.predictions.process import Gate, Processes
from tests.systems.predictions.site import ROUNDS, Addresses, Site, rounds, through

LIMIT_S = 300 if ROUNDS <= 2 else 3600


@pytest.fixture
def processes() -> Iterator[Processes]:
    with Processes() as started:
        yield started


@pytest.fixture
def gate(site: Site) -> Gate:
    gate = Gate()
    site.replicate.gate = gate.passed
    site.chat.gate = gate.passed
    return gate


@pytest.fixture
def proxy(site: Site, gate: Gate) -> Iterator[S3Proxy]:
    with S3Proxy(site.bucket.config) as started:

        def choose(seen: Seen) -> Mishap:
            def carry_out(forward: Forward) -> Reply | None:
                reply = forward()
                return None if gate.passed(f"{seen.method} {_shown(seen.path)}") else reply

            return carry_out

        started.every(choose)
        yield started


@pytest.mark.timeout(LIMIT_S)
@clause("P-13", "P-16", "P-17")
async def test_p13_a_kill_after_any_call_of_submit_loses_and_repeats_nothing(
    site: Site, moto: BucketConfig, processes: Processes, gate: Gate, proxy: S3Proxy
) -> None:
    killed_at: list[str] = []
    for number in range(rounds(site, moto)):
        # Without webhooks only reconcile finds the outcome. With them, the receiver may write the
        # task before the child does, so that the child has no `PUT task`: every second round.
        site.replicate.webhooks = "once" if number % 2 else "never"
        photos: list[Photo] = []
        for call in range(1, 60):
            photo = site.photo()
            gate.arm(call)
            addresses = _at(site, proxy)
            code = await asyncio.to_thread(processes.submit, addresses, photo, gate)
            if code == 0:
                break
            assert code == -signal.SIGKILL
            killed_at.append(gate.calls[-1])
            await site.flow.submit(photo)  # the update is redelivered
            # The gate counts all calls: the receiver of webhooks must be idle.
            await asyncio.to_thread(site.replicate.wait_idle)
            photos.append(photo)
        else:
            raise AssertionError("submit has no end")
        await _assert_once(site, photos)
    # All points of the crash table were reached.
    for point in ("PUT open", "PUT intent", "send", "file", "PUT input", "create", "PUT task"):
        assert point in killed_at, killed_at


@pytest.mark.timeout(LIMIT_S)
@clause("P-14", "P-16", "P-17")
async def test_p14_a_kill_after_any_call_of_settle_loses_and_repeats_nothing(
    site: Site, moto: BucketConfig, processes: Processes, gate: Gate, proxy: S3Proxy
) -> None:
    killed_at: list[str] = []
    site.replicate.webhooks = "never"
    for number in range(rounds(site, moto)):
        photos: list[Photo] = []
        for call in range(1, 60):
            photo = site.photo()
            tid = await site.flow.submit(photo)
            await asyncio.to_thread(site.replicate.wait_idle)
            (prediction,) = site.paid(photo)
            webhook = site.replicate.webhook(str(prediction["id"]))
            gate.arm(call)
            code = await asyncio.to_thread(
                processes.webhook, _at(site, proxy), tid, webhook.headers, webhook.body, gate
            )
            if code == 0:
                break
            assert code == -signal.SIGKILL
            killed_at.append(gate.calls[-1])
            if number % 2:
                again = site.replicate.webhook(str(prediction["id"]))
                await site.receiver_status(tid, again)
            photos.append(photo)
        else:
            raise AssertionError("settle has no end")
        await _assert_once(site, photos)
    for point in ("PUT intent", "file", "PUT output", "PUT task", "edit_picture", "DELETE open"):
        assert point in killed_at, killed_at


def _at(site: Site, proxy: S3Proxy) -> Addresses:
    return replace(through(site.addresses, proxy.config.endpoint), shift_s=site.clock.shift_s)


async def _assert_once(site: Site, photos: list[Photo]) -> None:
    """Recover the photos of all crash points of a round; the n-th is the n-th call's."""
    await site.recover()
    for call, photo in enumerate(photos, 1):
        await site.verify_once(photo, spare_texts=1, detail=f"killed after call {call}")


def _shown(path: str) -> str:
    for part, name in (
        ("tasks/open/", "open"),
        ("tasks/intents/", "intent"),
        ("images/input/", "input"),
        ("images/output/", "output"),
        ("tasks/", "task"),
        ("users/", "user"),
    ):
        if part in path:
            return name
    return Path(path).name
