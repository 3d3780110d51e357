"""R-1 on a real server that refuses the writes of one job or one report. There is a single worker,
so no other worker can recover its jobs."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest

from jobwire.job.errors import Fail
from jobwire.job.messages import JobId, JobRequest, Submitted
from jobwire.local import LocalValkey
from jobwire.maintenance import Maintenance
from jobwire.systems.jobs.contract import TERMINAL_EVENTS
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.jobs.queue import StreamsQueue
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Connection
from jobwire.worker import App, Context, Worker
from tests.support import Plain, clause, wait_until
from tests.support.raw import Raw
from tests.support.streams import StreamsLab
from tests.support.workers import ended, started

SETTINGS = StreamsSettings(lease_s=0.5, foreign_idle_s=0.5, store_tracebacks=True)
ODD = ("", "0", "-1", "1.5", "60.0", "1e3", "0x10", " 60 ", "nan", "inf", "1e300", "x", "1-1", "é")
HALF = "half a character: \ud800"
"""A lone surrogate: valid in a Python string, impossible in UTF-8."""


class Scenario:
    """One worker, and a raw client that reads its keys."""

    def __init__(self, plain: Plain) -> None:
        self.raw = Raw(plain)
        self.gate = asyncio.Event()
        self.begun: list[str] = []
        self.app = App()
        self.app.handler("gate")(self._wait)
        self.app.handler("quick")(self._return)

    async def _wait(self, ctx: Context) -> str:
        self.begun.append(ctx.job.id)
        await ctx.progress(50)
        await self.gate.wait()
        await ctx.progress(100)
        return "through"

    async def _return(self, ctx: Context) -> str:
        await ctx.progress(50)
        return "through"

    @asynccontextmanager
    async def working(self, url: str) -> AsyncGenerator[None]:
        async with Connection.open(url) as connection:
            engine = StreamsEngine(connection, SETTINGS)
            beside = [Maintenance(engine.maintenance()).run]
            worker = Worker(self.app, [engine], drain_s=1.0, grace_s=0.1, background=beside)
            running = await started(worker)
            try:
                yield
            finally:
                worker.stop()
                await ended(running)

    def enqueue(self, job_id: str, task: str = "quick", **fields: str) -> str:
        """Write the job as a foreign gateway would."""
        job = {"job_id": job_id, "task": task, "payload": "{}", "status": "queued"}
        times = {"created_ts": "1", "updated_ts": "1", "ttl_s": "600", "result": "", "error": ""}
        self.raw.write(f"job:{job_id}", {**job, **times, **fields})
        self.raw.add("jobs:stream", {"job_id": job_id, "task": task, "payload": "{}"})
        return job_id

    def status(self, job_id: str) -> str | None:
        return self.raw.field(f"job:{job_id}", "status")

    def kinds(self, job_id: str) -> list[str]:
        return [fields["type"] for _, fields in self.raw.entries(f"job:{job_id}:events")]

    def ends(self, job_id: str) -> list[str]:
        return [kind for kind in self.kinds(job_id) if kind in TERMINAL_EVENTS]

    async def until_ended(self, jobs: Sequence[str], status: str) -> None:
        await wait_until(lambda: all(self.status(job) == status for job in jobs), status)
        for job in jobs:
            assert self.ends(job) == [status], f"{job}: the state and one event, which agree"

    async def until_idle(self) -> None:
        await wait_until(lambda: not self.raw.pending("jobs:stream"), "nothing pending")
        assert self.raw.length("jobs:stream") == 0


@pytest.fixture
def scenario(plain: Plain) -> Scenario:
    return Scenario(plain)


async def submit(connection: Connection, task: str, count: int) -> list[JobId]:
    queue = StreamsQueue(connection, SETTINGS)
    answers = await queue.submit_many([JobRequest(task, "{}")] * count)
    return [answer.job_id for answer in answers if isinstance(answer, Submitted)]


READING = "%R~job:*"


class Rights:
    """A user of the server whose ACL excludes the keys of some jobs."""

    def __init__(self, plain: Plain, valkey: LocalValkey) -> None:
        self._plain = plain
        self._name = f"user-{secrets.token_hex(4)}"
        self.url = f"valkey://{self._name}:secret@{valkey.address}/0"
        plain.call("ACL", "SETUSER", self._name, "on", ">secret", "&*", "+@all", "~*")

    def forbid_bad_jobs(self, *but: str) -> None:
        allowed = ("~jobs:*", "~job:good*", *but)
        self._plain.call("ACL", "SETUSER", self._name, "resetkeys", *allowed)

    def allow_all(self) -> None:
        self._plain.call("ACL", "SETUSER", self._name, "~*")

    def gone(self) -> None:
        self._plain.call("ACL", "DELUSER", self._name)


@pytest.fixture
def rights(plain: Plain, valkey: LocalValkey) -> Rights:
    return Rights(plain, valkey)


@clause("R-1", "R-2")
async def test_r01_a_refused_outcome_is_retried_and_affects_no_other_job(
    scenario: Scenario, rights: Rights, caplog: pytest.LogCaptureFixture
) -> None:
    bad = scenario.enqueue("bad", "gate")
    good = [scenario.enqueue(f"good-{number}", "gate") for number in range(4)]
    async with scenario.working(rights.url):
        await wait_until(lambda: len(scenario.begun) == 5)
        rights.forbid_bad_jobs(READING)
        scenario.gate.set()
        await scenario.until_ended(good, "done")
        for job in good:
            assert scenario.kinds(job).count("progress") == 2, "writes of other jobs succeed"
        await wait_until(lambda: "outcome refused by the server" in caplog.text)
        assert scenario.status(bad) == "running"
        assert set(scenario.raw.pending("jobs:stream").values()), "it is still held"
        rights.allow_all()
        await scenario.until_ended([bad], "done")
        await scenario.until_idle()
    assert scenario.raw.field("job:bad", "result") == '"through"', "nothing was lost"
    assert len(scenario.begun) == 5, "and nothing was done twice"
    rights.gone()


@clause("R-1")
async def test_r01_a_refused_start_is_retried_and_affects_no_other_job(
    scenario: Scenario, rights: Rights
) -> None:
    rights.forbid_bad_jobs(READING)
    bad = scenario.enqueue("bad")
    good = [scenario.enqueue(f"good-{number}") for number in range(4)]
    async with scenario.working(rights.url):
        await scenario.until_ended(good, "done")
        assert scenario.status(bad) == "queued"
        rights.allow_all()
        await scenario.until_ended([bad], "done")
        await scenario.until_idle()
    rights.gone()


@clause("R-1")
async def test_r01_an_unreadable_job_is_not_treated_as_missing(
    scenario: Scenario, rights: Rights
) -> None:
    """The worker cannot tell whether the job waits or has ended, so it deletes nothing."""
    good, bad = scenario.enqueue("good", "gate"), scenario.enqueue("bad", "gate")
    async with scenario.working(rights.url):
        await wait_until(lambda: len(scenario.begun) == 2)
        waiting = scenario.enqueue("bad-too")
        rights.forbid_bad_jobs()
        scenario.gate.set()
        await scenario.until_ended([good], "done")
        await scenario.until_ended([scenario.enqueue("good-too")], "done")
        rights.allow_all()
        await scenario.until_ended([bad, waiting], "done")
        await scenario.until_idle()
    assert len(scenario.begun) == 2, "a finished job does not run again"
    rights.gone()


@clause("R-1", "J-7")
async def test_r01_an_unreadable_job_remains_among_the_unfinished_ones(
    scenario: Scenario, rights: Rights, connection: Connection
) -> None:
    """The lifetimes of jobs that are not in jobs:open are not extended: the job would expire."""
    queue = StreamsQueue(connection, SETTINGS)
    made = await queue.submit(JobRequest("gate", "{}", ttl_s=2))
    assert isinstance(made, Submitted)
    due_ms = float(str(scenario.raw.call("ZSCORE", "jobs:open", made.job_id)))
    async with Connection.open(rights.url) as limited, StreamsLab(limited) as lab:
        rights.forbid_bad_jobs()
        await wait_until(lambda: scenario.raw.now_ms() >= due_ms, "the job to be due")
        await lab.maintain("extend_ttl")
        assert scenario.raw.call("ZRANGE", "jobs:open", "0", "-1") == [made.job_id]
        rights.allow_all()
    rights.gone()


@clause("R-1", "J-30")
async def test_r01_an_orphan_of_the_worker_itself_is_recovered(
    scenario: Scenario, valkey: LocalValkey, connection: Connection
) -> None:
    """An operator resets a job by hand while it runs: the fence excludes its worker, which is also
    the only one that could run the job again. Reclaim skips a worker's own entries."""
    async with scenario.working(valkey.url):
        (job,) = await submit(connection, "gate", 1)
        await wait_until(lambda: scenario.begun == [job])
        scenario.raw.call("HSET", f"job:{job}", "status", "queued")
        scenario.gate.set()
        await scenario.until_ended([job], "done")
        await scenario.until_idle()
    assert scenario.begun == [job, job]


@clause("R-1", "R-2", "J-39")
async def test_r01_a_corrupt_job_neither_stops_the_queue_nor_ends_without_its_event(
    scenario: Scenario, valkey: LocalValkey, connection: Connection
) -> None:
    """A foreign program wrote text where the contract has a number: the default applies."""
    names = ("ttl_s", "created_ts", "updated_ts", "deliveries", "timeout_s", "max_attempts")
    texts = ("attempt", "owner", "worker", "started_ts", "reports", "unknown_ts", "result")
    pairs = [(name, value) for name in (*names, *texts) for value in ODD]
    # A copy of another job has the entry id of that job.
    pairs += [("entry_id", value) for value in ODD if value]
    # A job with so many deliveries has reached the limit of every worker.
    pairs = [pair for pair in pairs if pair not in (("deliveries", "1e300"), ("deliveries", "inf"))]
    broken = [
        scenario.enqueue(f"corrupt-{number}", **{name: value})
        for number, (name, value) in enumerate(pairs)
    ]
    async with scenario.working(valkey.url):
        good = await submit(connection, "quick", 5)
        await scenario.until_ended([*good, *broken], "done")
        await scenario.until_idle()
    for job in broken:
        assert 0 < scenario.raw.ttl_s(f"job:{job}") <= SETTINGS.job_ttl_s
        assert 0 < scenario.raw.ttl_s(f"job:{job}:events") <= SETTINGS.job_ttl_s


@clause("R-1", "J-6")
async def test_r01_unencodable_text_fails_only_its_own_job(
    scenario: Scenario, valkey: LocalValkey, connection: Connection
) -> None:
    class Unspeakable(str):
        __slots__ = ()

        def __getitem__(self, _: object) -> str:
            raise ZeroDivisionError

    mistakes: dict[str, BaseException] = {
        "half": ValueError(HALF),
        "half a code": Fail(HALF, HALF),
        "an exception": Fail("bad", ValueError("as a message")),  # pyright: ignore[reportArgumentType] - that is the mistake
        "a trap": Fail("bad", "x"),
    }
    mistakes["a trap"].message = Unspeakable("x")  # pyright: ignore[reportAttributeAccessIssue] - it has one
    for task, mistake in mistakes.items():

        @scenario.app.handler(task)
        async def fail(_: Context, mistake: BaseException = mistake) -> None:
            await scenario.gate.wait()
            raise mistake

    async with scenario.working(valkey.url):
        good = await submit(connection, "gate", 3)
        bad = [job for task in mistakes for job in await submit(connection, task, 1)]
        await wait_until(lambda: all(scenario.status(job) == "running" for job in (*good, *bad)))
        scenario.gate.set()
        await scenario.until_ended(good, "done")
        await scenario.until_ended(bad, "error")
        await scenario.until_idle()
