"""Cron entries on a real server: each due time creates one job in the whole fleet (J-52)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from typing import cast

import pytest

from jobwire.cron import BadCron, parse
from jobwire.job.messages import AlreadyRun, JobRequest, NotDue, Submitted
from jobwire.local import LocalValkey
from jobwire.systems.jobs import contract
from jobwire.systems.jobs.contract import StreamsKeys
from jobwire.systems.jobs.cron_store import StreamsCronStore
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Connection
from jobwire.worker.app import App
from jobwire.worker.context import Context
from jobwire.worker.scheduler import CronEntry, CronScheduler, due_ms
from tests.support import Plain, clause, wait_until
from tests.support.servers import plain_client

KEYS = StreamsKeys()
HOUR_MS = 3_600_000


def _daily() -> CronEntry:
    """Due once a day, hours from now: it does not become due while a test runs."""
    text = f"0 {(time.gmtime().tm_hour + 12) % 24} * * *"
    return CronEntry("cleanup", parse(text), f"UTC {text}", "tidy", '{"deep":true}')


CLEANUP = _daily()
OLD = "UTC 59 4 * * *"
"""An earlier schedule of the entry."""


@contextlib.asynccontextmanager
async def scheduling(calendar: StreamsCronStore, *entries: CronEntry) -> AsyncGenerator[None]:
    """Run a scheduler inside of the block."""
    task = asyncio.create_task(CronScheduler(entries, calendar).run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def _now_ms(plain: Plain) -> int:
    seconds, micros = plain.time()
    return seconds * 1000 + micros // 1000


def _missed_since(plain: Plain, entry: CronEntry, ago_ms: int) -> int:
    """Store the state of a fleet that was down for that long; returns the last due time that it
    missed."""
    now_ms = _now_ms(plain)
    _remember(plain, entry.text, now_ms - ago_ms)
    return entry.times.last_ms(now_ms)


def _remember(plain: Plain, text: str, seen_ms: int, asked_ago_ms: int = 0) -> None:
    """The stored state of the entry with this schedule."""
    state = f"{seen_ms} {_now_ms(plain) - asked_ago_ms}"
    plain.hset(KEYS.cron(CLEANUP.name), text, state)
    plain.expire(KEYS.cron(CLEANUP.name), 3600)


def _queued(plain: Plain) -> list[dict[str, str]]:
    entries = cast("list[tuple[str, dict[str, str]]]", plain.xrange(KEYS.queue))
    return [fields for _, fields in entries]


def _seen(plain: Plain, name: str) -> int:
    state = cast("str | None", plain.hget(KEYS.cron(name), CLEANUP.text))
    return int((state or "0").split()[0])


@clause("J-52")
async def test_j52_the_last_of_all_missed_runs_is_submitted(
    connection: Connection, plain: Plain
) -> None:
    missed_ms = _missed_since(plain, CLEANUP, 100 * HOUR_MS)
    async with scheduling(StreamsCronStore(connection), CLEANUP):
        await wait_until(lambda: _queued(plain))
        await wait_until(lambda: _seen(plain, "cleanup") >= missed_ms)
    (entry,) = _queued(plain)
    assert (entry["task"], entry["payload"]) == ("tidy", '{"deep":true}')
    run = f"jobs:cron-run:cleanup:{missed_ms}"
    assert plain.hget(KEYS.job(entry["job_id"]), "idempotency_key") == run
    assert plain.get(KEYS.idempotency(run)) == entry["job_id"]


@clause("J-52")
@pytest.mark.parametrize(
    ("seen_before_ms", "runs"),
    [(0, 0), (1, 1), (23 * HOUR_MS, 1), (24 * HOUR_MS, 1), (1000 * HOUR_MS, 1)],
    ids=["nothing due", "one due", "almost a period", "a period", "many periods"],
)
async def test_j52_after_any_downtime_a_restart_submits_the_missed_run_once(
    connection: Connection, plain: Plain, seen_before_ms: int, runs: int
) -> None:
    """All workers were down since before the last due time; then two start, one after the other."""
    last_ms = CLEANUP.times.last_ms(_now_ms(plain))
    calendar = StreamsCronStore(connection)
    for _ in range(2):
        seen_ms = max(_seen(plain, "cleanup"), last_ms - seen_before_ms)
        _remember(plain, CLEANUP.text, seen_ms)
        async with scheduling(calendar, CLEANUP):
            await wait_until(lambda: plain.ttl(KEYS.cron("cleanup")) > 3600)  # it has looked
            for each in ("heard", "submitted"):  # answers arrive in order: after the scheduler's
                await calendar.enroll(each, "")
        assert len(_queued(plain)) == runs


@clause("J-52")
async def test_j52_ten_schedulers_create_one_job(connection: Connection, plain: Plain) -> None:
    missed_ms = _missed_since(plain, CLEANUP, 25 * HOUR_MS)
    calendar = StreamsCronStore(connection)
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(10):
            await stack.enter_async_context(scheduling(calendar, CLEANUP))
        await wait_until(lambda: _seen(plain, "cleanup") >= missed_ms)
        await calendar.enroll("another", "so that all ten have been served")
    runs = [plain.hget(KEYS.job(each["job_id"]), "idempotency_key") for each in _queued(plain)]
    assert runs == [f"jobs:cron-run:cleanup:{missed_ms}"]


@clause("J-52")
async def test_j52_a_new_or_changed_entry_starts_now(connection: Connection, plain: Plain) -> None:
    """Deployed at noon, a job of every night must not run at noon."""
    calendar = StreamsCronStore(connection)
    seen = await calendar.enroll(CLEANUP.name, CLEANUP.text)
    assert seen.due_ms == seen.now_ms
    assert due_ms(CLEANUP.times, seen) is None
    plain.delete(KEYS.cron("cleanup"))
    _remember(plain, OLD, seen.now_ms - 100 * HOUR_MS)
    changed = await calendar.enroll(CLEANUP.name, CLEANUP.text)
    assert changed.due_ms == changed.now_ms >= seen.now_ms
    again = await calendar.enroll(CLEANUP.name, CLEANUP.text)
    assert again.due_ms == changed.due_ms
    assert plain.ttl(KEYS.cron("cleanup")) > contract.CRON_TTL_S - 60


@clause("J-52")
async def test_j52_old_and_new_schedules_together_lose_nothing(
    connection: Connection, plain: Plain
) -> None:
    """During a rolling update, workers with the old and with the new schedule of an entry run
    together: the check of one must not reset the state of the other."""
    calendar = StreamsCronStore(connection)
    missed_ms = _missed_since(plain, CLEANUP, 25 * HOUR_MS)
    seen_ms = _seen(plain, "cleanup")
    await calendar.enroll("cleanup", OLD)
    seen = await calendar.enroll("cleanup", CLEANUP.text)
    assert seen.due_ms == seen_ms, "a due time stays due"
    request = JobRequest("tidy", "{}")
    made = await calendar.submit_due("cleanup", CLEANUP.text, missed_ms, request)
    assert isinstance(made, Submitted)
    _remember(plain, OLD, missed_ms - 1)
    assert await calendar.submit_due("cleanup", OLD, missed_ms, request) == AlreadyRun(), (
        "the same time"
    )
    assert len(_queued(plain)) == 1


@clause("J-52")
async def test_j52_a_schedule_that_was_dropped_starts_over_when_it_returns(
    connection: Connection, plain: Plain
) -> None:
    calendar = StreamsCronStore(connection)
    long_ago_ms = _now_ms(plain) - 100 * HOUR_MS
    _remember(plain, OLD, long_ago_ms, asked_ago_ms=contract.CRON_GONE_MS + 1000)
    await calendar.enroll("cleanup", CLEANUP.text)
    assert list(cast("dict[str, str]", plain.hgetall(KEYS.cron("cleanup")))) == [CLEANUP.text]
    # A worker that was suspended meanwhile uses its old state.
    answer = await calendar.submit_due("cleanup", OLD, long_ago_ms + 1, JobRequest("tidy", "{}"))
    assert answer == AlreadyRun()
    back = await calendar.enroll("cleanup", OLD)
    assert back.due_ms == back.now_ms


@clause("J-52")
async def test_j52_a_due_time_stays_handled_after_its_job_expired(
    connection: Connection, plain: Plain
) -> None:
    """A worker that was suspended for days between check and submit creates no second run."""
    calendar = StreamsCronStore(connection)
    missed_ms = _missed_since(plain, CLEANUP, 25 * HOUR_MS)
    request = JobRequest("tidy", "{}")
    made = await calendar.submit_due("cleanup", CLEANUP.text, missed_ms, request)
    assert isinstance(made, Submitted)
    plain.delete(KEYS.job(made.job_id), KEYS.idempotency(f"jobs:cron-run:cleanup:{missed_ms}"))
    assert await calendar.submit_due("cleanup", CLEANUP.text, missed_ms, request) == AlreadyRun()
    older = missed_ms - 24 * HOUR_MS
    assert await calendar.submit_due("cleanup", CLEANUP.text, older, request) == AlreadyRun()
    assert len(_queued(plain)) == 1


@clause("J-52")
async def test_j52_the_servers_clock_decides_what_is_due(
    connection: Connection, plain: Plain
) -> None:
    """A worker whose clock is ahead submits too early, and no job is created."""
    calendar = StreamsCronStore(connection)
    future_ms = _now_ms(plain) + HOUR_MS
    answer = await calendar.submit_due("cleanup", CLEANUP.text, future_ms, JobRequest("tidy", "{}"))
    assert answer == NotDue()
    assert plain.keys("*") == []


@clause("J-52")
async def test_j52_a_full_queue_is_waited_for(connection: Connection, plain: Plain) -> None:
    missed_ms = _missed_since(plain, CLEANUP, 25 * HOUR_MS)
    plain.xadd(KEYS.queue, {"job_id": "x", "task": "x", "payload": "{}"})
    async with scheduling(StreamsCronStore(connection, StreamsSettings(max_queue=1)), CLEANUP):
        await wait_until(lambda: plain.ttl(KEYS.cron("cleanup")) > 3600)  # it has looked
        assert _seen(plain, "cleanup") < missed_ms
        plain.xtrim(KEYS.queue, maxlen=0)
        await wait_until(lambda: _queued(plain))
    assert [each["task"] for each in _queued(plain)] == ["tidy"]


@clause("J-52")
async def test_j52_an_outage_delays_the_schedule(own_valkey: LocalValkey) -> None:
    async with Connection.open(own_valkey.url) as connection:
        with plain_client(own_valkey, "before") as plain:
            missed_ms = _missed_since(plain, CLEANUP, 25 * HOUR_MS)
        own_valkey.stop()
        async with scheduling(StreamsCronStore(connection), CLEANUP):
            own_valkey.start()
            with plain_client(own_valkey, "after") as plain:
                await wait_until(lambda: _queued(plain))
                assert _seen(plain, "cleanup") >= missed_ms


# ── registration ─────────────────────────────────────────────────────────────────────────────────


async def _tidy(ctx: Context) -> None:
    """A handler."""


async def _count(ctx: Context[dict[str, int]]) -> None:
    """A handler with a typed payload."""


@clause("J-52")
def test_j52_a_handler_gets_a_schedule() -> None:
    app = App()
    app.cron("@daily", name="nightly")(
        app.cron("*/5 * * * *", tz="Europe/Berlin")(app.handler("tidy")(_tidy))
    )
    first, second = app.crons
    assert (first.name, first.task, first.text) == ("tidy", "tidy", "Europe/Berlin */5 * * * *")
    assert (second.name, second.task, second.text) == ("nightly", "tidy", "UTC 0 0 * * *")
    assert list(app.handlers) == ["tidy"]


def test_a_plain_function_becomes_a_handler() -> None:
    app = App()
    assert app.cron("@hourly", payload={"deep": True})(_tidy) is _tidy
    (entry,) = app.crons
    assert (entry.task, entry.payload_json) == ("_tidy", '{"deep":true}')
    assert list(app.handlers) == ["_tidy"]


def test_invalid_entries_raise_at_registration() -> None:
    app = App()
    with pytest.raises(BadCron, match="minute '61'"):
        app.cron("61 * * * *")
    app.cron("@hourly")(_tidy)
    with pytest.raises(ValueError, match="already; give this one a name="):
        app.cron("@daily")(_tidy)
    with pytest.raises(ValueError, match="the payload is not valid: payload"):
        app.cron("@daily", payload={"n": "many"})(_count)
