"""J-31, J-32, J-33: a started job is leased, and only its owner writes to it."""

from __future__ import annotations

import asyncio
import threading
from typing import cast

import pytest

from jobwire.job.errors import BackendUnavailable
from jobwire.job.messages import (
    Canceled,
    Done,
    Failed,
    JobError,
    Released,
    RenewAnswer,
    Report,
    ReportAnswer,
    RetryLater,
    SettleAnswer,
)
from jobwire.local import LocalValkey
from jobwire.valkey import Connection
from tests.support import Proxy, clause, wait_until, wait_until_sync
from tests.support.raw import Raw, Recording
from tests.support.streams import StreamsLab

QUEUE = "jobs:stream"
TRANSIENT = JobError("handler_error", "the handler failed", retryable=True)
FINAL = JobError("no_such_city", "there is no city of that name")


# ── J-31 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-31")
async def test_j31_the_steps_are_written_in_order(lab: StreamsLab, raw: Raw) -> None:
    worker = await lab.worker()
    job_id = await lab.submit()
    ((entry, _),) = raw.entries(QUEUE)
    job, events = f"job:{job_id}", f"job:{job_id}:events"
    with Recording(raw) as seen:
        (leased,) = await worker.take(1)
        await worker.settle([(leased, Done('"x"'))], 0)
    steps = [
        command
        for command in seen.on(job, events, QUEUE)
        if command.startswith(("HSET", "XADD", "XACK", "XDEL"))
    ]
    starts = [
        f"HSET {job} updated_ts",
        f"XADD {events} * type running",
        f"HSET {job} updated_ts",
        f"XADD {events} * type done",
        f"XACK {QUEUE} workers {entry}",
        f"XDEL {QUEUE} {entry}",
    ]
    assert len(steps) == len(starts)
    for step, wanted in zip(steps, starts, strict=True):
        assert step.startswith(wanted)
    assert "status running" in steps[0]
    assert "status done" in steps[2]
    assert 'result "x"' in steps[2].replace("\\", "")
    assert raw.length(QUEUE) == 0, "so that its length is the backlog"


# ── J-32 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-32")
async def test_j32_a_lease_is_renewed_while_the_loop_is_blocked(lab: StreamsLab, raw: Raw) -> None:
    """The renewer needs no event loop: it renews a lease while the loop is blocked."""
    worker, leased = await lab.start()
    renewer = worker.lease_renewer()
    assert renewer.period_s == renewer.lease_s / 3
    over = threading.Event()
    answers: list[RenewAnswer] = []

    def keep() -> None:
        while not over.wait(0.02):
            answers.extend(renewer.renew([leased]))

    entry = str(leased.wire)

    def idle_ms() -> int:
        rows = raw.call("XPENDING", QUEUE, "workers", entry, entry, 1)
        return cast("list[tuple[str, str, int, int]]", rows)[0][2]

    thread = threading.Thread(target=keep, daemon=True)
    thread.start()
    # A handler that blocks the loop, for longer than the lease.
    for _ in range(3):
        idle = round(1000 * lab.lease_s)
        raw.call("XCLAIM", QUEUE, "workers", worker.consumer, 0, entry, "IDLE", idle, "JUSTID")
        wait_until_sync(lambda: idle_ms() < 500 * lab.lease_s, "the next renewal")
    over.set()
    await asyncio.to_thread(thread.join, 30)
    assert await lab.maintain("reclaim") == 0
    assert await (await lab.worker()).take(1) == []
    renewer.close()
    assert set(answers) == {RenewAnswer.RENEWED}
    assert (await worker.settle([(leased, Done("1"))], 0)).answers == [SettleAnswer.SETTLED]


@clause("J-32")
async def test_j32_renewal_does_not_claim_an_entry_back(lab: StreamsLab, raw: Raw) -> None:
    worker, leased = await lab.start()
    raw.call("XCLAIM", QUEUE, "workers", "foreign", 0, str(leased.wire))
    renewer = worker.lease_renewer()
    assert renewer.renew([leased]) == [RenewAnswer.LOST]
    renewer.close()
    assert raw.pending(QUEUE) == {leased.wire: "foreign"}


@clause("J-32")
async def test_j32_renew_reports_cancel_and_end(lab: StreamsLab) -> None:
    worker = await lab.worker()
    job_ids = [await lab.submit() for _ in range(3)]
    leased = await worker.take(3)
    await lab.queue.cancel(job_ids[0])
    await worker.settle([(leased[1], Done("1"))], 0)
    renewer = worker.lease_renewer()
    assert renewer.renew(leased) == [RenewAnswer.CANCEL, RenewAnswer.ENDED, RenewAnswer.RENEWED]
    renewer.close()
    await worker.settle([(leased[0], Canceled()), (leased[2], Done("1"))], 0)


@clause("J-32")
async def test_j32_the_renewer_survives_a_broken_connection(
    valkey: LocalValkey, proxy: Proxy
) -> None:
    async with Connection.open(proxy.url(valkey.url)) as connection, StreamsLab(connection) as lab:
        worker, leased = await lab.start()
        renewer = worker.lease_renewer()
        assert renewer.renew([leased]) == [RenewAnswer.RENEWED]
        proxy.cut()
        with pytest.raises(BackendUnavailable):
            renewer.renew([leased])
        assert renewer.renew([leased]) == [RenewAnswer.RENEWED]
        renewer.close()

        async def settled() -> bool:
            try:
                answers = (await worker.settle([(leased, Done("1"))], 0)).answers
            except BackendUnavailable:
                return False
            return answers == [SettleAnswer.SETTLED]

        await wait_until(settled, "the settle to be answered")


# ── J-33 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-33")
async def test_j33_a_foreign_consumer_that_claimed_the_entry_fences_every_write(
    lab: StreamsLab, raw: Raw
) -> None:
    """Status and owner are still those of the worker; only the pending entry shows the loss."""
    worker, leased = await lab.start()
    raw.call("XCLAIM", QUEUE, "workers", "foreign", 0, str(leased.wire))
    key = f"job:{leased.job.id}"
    before = raw.fields(key), raw.entries(f"{key}:events"), raw.entries(QUEUE)
    assert (before[0]["status"], before[0]["owner"]) == ("running", leased.token)

    assert await worker.report([(leased, Report("log", "1"))]) == [ReportAnswer.LOST]
    for outcome in (Done("1"), Failed(FINAL), Canceled(), RetryLater(0, TRANSIENT), Released()):
        settled = await worker.settle([(leased, outcome)], 0)
        assert settled.answers == [SettleAnswer.LOST]
    assert (raw.fields(key), raw.entries(f"{key}:events"), raw.entries(QUEUE)) == before
    assert raw.pending(QUEUE) == {leased.wire: "foreign"}


@clause("J-33")
async def test_j33_a_foreign_settle_is_not_taken_for_our_own(lab: StreamsLab, raw: Raw) -> None:
    """A foreign worker claimed the entry and ended the job; it does not write `owner`."""
    worker, leased = await lab.start()
    key = f"job:{leased.job.id}"
    raw.call("XCLAIM", QUEUE, "workers", "foreign", 0, str(leased.wire))
    raw.call("HSET", key, "status", "done", "result", '"theirs"')
    raw.add(f"{key}:events", {"type": "done", "ts": "1", "step": "x", "data": "{}"})
    raw.call("XACK", QUEUE, "workers", str(leased.wire))
    for outcome in (Done("1"), Failed(FINAL), RetryLater(0, TRANSIENT), Released()):
        settled = await worker.settle([(leased, outcome)], 0)
        assert settled.answers == [SettleAnswer.ALREADY]
    assert raw.field(key, "result") == '"theirs"'


@clause("J-33")
async def test_j33_another_delivery_to_the_same_worker_has_another_token(lab: StreamsLab) -> None:
    worker, first = await lab.start()
    await worker.settle([(first, Released())], 0)
    (second,) = await worker.take(1)
    assert first.token != second.token
    assert await worker.report([(first, Report("log", "1"))]) == [ReportAnswer.LOST]
    for outcome in (Done("1"), Failed(FINAL), RetryLater(0, TRANSIENT)):
        assert (await worker.settle([(first, outcome)], 0)).answers == [SettleAnswer.LOST]
    assert (await worker.settle([(second, Done("1"))], 0)).answers == [SettleAnswer.SETTLED]


@clause("J-33")
async def test_j33_an_entry_that_returns_to_its_first_worker_is_another_delivery(
    connection: Connection, raw: Raw
) -> None:
    """Another worker reclaims the job and dies in turn: same job, same entry, same consumer
    name."""
    async with StreamsLab(connection, lease_s=20.0) as lab:
        first, second = await lab.worker(), await lab.worker()
        await lab.submit()
        (zombie,) = await first.take(1)
        deliveries = [zombie]
        for loser, winner in ((first, second), (second, first)):
            await lab.silence(loser)
            winner.reclaim_soon()
            (leased,) = await winner.take(1)
            deliveries.append(leased)
        living = deliveries[-1]
        assert len({leased.wire for leased in deliveries}) == 1
        assert raw.pending(QUEUE) == {living.wire: first.consumer}
        assert await first.report([(zombie, Report("log", "1"))]) == [ReportAnswer.LOST]
        renewer = first.lease_renewer()
        assert renewer.renew([zombie, living]) == [RenewAnswer.LOST, RenewAnswer.RENEWED]
        renewer.close()
        for outcome in (Done("1"), Failed(FINAL), Canceled(), RetryLater(0, TRANSIENT), Released()):
            settled = await first.settle([(zombie, outcome)], 0)
            assert settled.answers == [SettleAnswer.LOST]
        assert (await first.settle([(living, Done("1"))], 0)).answers == [SettleAnswer.SETTLED]


@clause("J-33")
async def test_j33_tokens_are_random(lab: StreamsLab) -> None:
    worker = await lab.worker()
    tokens: list[str] = []
    for _ in range(20):
        await lab.submit()
        (leased,) = await worker.take(1)
        tokens.append(leased.token)
        await worker.settle([(leased, Done("1"))], 0)
    heads = [token.partition("-")[0] for token in tokens]
    assert len(set(heads)) == 20
    assert {len(head) for head in heads} == {32}
