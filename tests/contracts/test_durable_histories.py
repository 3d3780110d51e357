"""D-21: random histories of suspended jobs against a model: none stuck, none with two entries; a
record has exactly what was recorded, and a job with branches waits only while each of them does.
`make chaos` runs more of them (CHAOS_HISTORIES); CHAOS_SEED repeats one.
"""

from __future__ import annotations

import os
import random

from jobwire.job.messages import (
    ERROR_FIELD,
    RECORD_KIND,
    RESULT_FIELD,
    SUBMIT_KIND,
    Done,
    JobError,
    JobId,
    LeasedJob,
    Outcome,
    Released,
    Report,
    Restarted,
    RetryLater,
    Suspended,
)
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.valkey import Connection
from tests.support import clause
from tests.support.raw import Raw
from tests.support.streams import StreamsLab

QUEUE = "histories"
STREAM = f"jobs:stream:{QUEUE}"
SIGNALS = ("a", "b")
CHILD = "k:1@child"
NAMES = (*(f"g:{name}" for name in SIGNALS), "c:1@child")


ACTS = (
    *("take", "take", "suspend", "suspend", "signal", "child", "release", "repeat", "reclaim"),
    *(
        "reconcile",
        "cancel",
        "error",
        "error",
        "result",
        "retry",
        "restart",
        "branches",
        "branches",
    ),
)
STEPS = ("x", "y", "z")
ERROR = '[0,1,{"type":"a:B","message":"no","attempt":1}]'


class History:
    """One parent, whose workers may be late, repeat what they sent, or lose their lease."""

    def __init__(self, lab: StreamsLab, raw: Raw, chance: random.Random) -> None:
        self.lab, self.raw, self.chance = lab, raw, chance
        self.workers: list[StreamsEngine] = []
        self.held: list[tuple[StreamsEngine, LeasedJob]] = []
        """All leases that were ever taken, the latest last: the others are those of zombies."""
        self.sent: list[tuple[StreamsEngine, LeasedJob, Outcome]] = []
        self.canceled = False
        self.record: set[str] = set()
        """What the record must have of steps and signals."""
        self.groups: list[tuple[str, ...]] = []
        """What the branches of the job lacked when it was suspended last."""
        self.settled: set[str] = set()
        """The tokens of leases that are over: what is settled with them has no effect."""

    async def begin(self) -> None:
        self.workers = [await self.lab.worker("parent", queues=[QUEUE]) for _ in range(2)]
        self.children = await self.lab.worker("child", queues=["children"])
        self.names = NAMES
        """What the job may wait for: one that has begun anew has other children than before."""
        self.parent = await self.lab.submit(task="parent", queue=QUEUE)
        await self.take(self.workers[0])
        worker, leased = self.held[-1]
        child = f'["{self.parent[:-1]}x","child","{{}}"]'
        (answer,) = await worker.report([(leased, Report(SUBMIT_KIND, child, CHILD))])
        assert answer == "written"

    async def take(self, worker: StreamsEngine) -> None:
        self.held += [(worker, leased) for leased in await worker.take(1)]

    async def settle(self, worker: StreamsEngine, leased: LeasedJob, outcome: Outcome) -> None:
        self.sent.append((worker, leased, outcome))
        answers = await worker.settle([(leased, outcome)], 0)
        if answers.answers == ["settled"] and leased.token not in self.settled:
            self.settled.add(leased.token)
            self.model(outcome)

    def model(self, outcome: Outcome) -> None:
        """What the outcome must have done."""
        match outcome:
            case Suspended():
                self.groups = [each.names for each in outcome.alone()]
            case RetryLater():
                self.record -= {ERROR_FIELD + name for name in outcome.again}
            case Restarted():
                kept = {f"g:{name}" for name in SIGNALS} - {f"g:{name}" for name in outcome.read}
                self.record &= kept
                self.names = NAMES[:2]
            case _:
                pass

    async def write(self, worker: StreamsEngine, leased: LeasedJob, field: str) -> None:
        """As a run does: a step has an error or a result, and a result stays."""
        name = field[2:]
        if {ERROR_FIELD + name, RESULT_FIELD + name} & self.record:
            return
        value = ERROR if field.startswith(ERROR_FIELD) else "[0,1,2]"
        if await worker.report([(leased, Report(RECORD_KIND, value, field))]) == ["written"]:
            self.record.add(field)

    async def end_child(self) -> None:
        for leased in await self.children.take(1):
            await self.children.settle([(leased, Done("1"))], 0)

    async def act(self) -> None:
        chance = self.chance
        worker, leased = chance.choice(self.held[-2:])
        match chance.choice(ACTS):
            case "take":
                await self.take(chance.choice(self.workers))
            case "suspend":
                names = tuple(chance.sample(self.names, chance.randint(1, len(self.names))))
                await self.settle(worker, leased, Suspended("signal", "x", 3600, "", names))
            case "signal":
                name = chance.choice(SIGNALS)
                if await self.lab.queue.signal(self.parent, name, "1") == "recorded":
                    self.record.add(f"g:{name}")
            case "error":
                await self.write(worker, leased, ERROR_FIELD + chance.choice(STEPS))
            case "result":
                await self.write(worker, leased, RESULT_FIELD + chance.choice(STEPS))
            case "retry":
                again = tuple(chance.sample(STEPS, chance.randint(0, 2)))
                error = JobError("handler_error", "no", True)
                await self.settle(worker, leased, RetryLater(0, error, again))
            case "restart":
                if chance.random() < 0.3:
                    read = tuple(chance.sample(SIGNALS, chance.randint(0, 2)))
                    await self.settle(worker, leased, Restarted("{}", read))
            case "branches":
                counts = (chance.randint(1, 2), chance.randint(1, len(self.names)), 1)
                groups = [
                    Suspended("signal", "x", 3600, "", tuple(chance.sample(self.names, count)))
                    for count in counts
                ]
                await self.settle(worker, leased, groups[0].beside(groups[1:]))
            case "child":
                await self.end_child()
            case "release":
                await self.settle(worker, leased, Released())
            case "repeat":
                if self.sent:  # its reply was lost
                    again = chance.choice(self.sent[-3:])
                    await again[0].settle([again[1:]], 0)
            case "reclaim":
                entry = self.raw.field(f"job:{self.parent}", "entry_id")
                if entry and self.raw.call("XPENDING", STREAM, "workers", entry, entry, 1):
                    args = ("workers", worker.consumer, 0, entry, "IDLE", 10**6, "JUSTID")
                    self.raw.call("XCLAIM", STREAM, *args)
                    other = next(each for each in self.workers if each is not worker)
                    other.reclaim_soon()
                    await self.take(other)
            case "cancel":
                if chance.random() < 0.2:
                    self.canceled = True
                    await self.lab.queue.cancel(JobId(self.parent))
            case _:
                await self.lab.maintain("reconcile")
        self.check()

    def check(self) -> None:
        """It has exactly one place: an entry, or its place among the suspended jobs."""
        entries = [fields for _, fields in self.raw.entries(STREAM)]
        suspended = self.raw.members("jobs:suspended")
        if self.canceled and self.raw.field(f"job:{self.parent}", "status") == "canceled":
            assert (entries, suspended) == ([], []), "a canceled job has no place"
            return
        stored = self.raw.fields(f"job:{self.parent}:steps")
        steps = {each for each in stored if each[:2] in (ERROR_FIELD, RESULT_FIELD, "g:")}
        assert steps == self.record, "the record"
        for names in self.groups if suspended else ():
            assert not set(names) <= stored.keys(), f"{names} are there, and the job waits"
        assert len(entries) + len(suspended) == 1, (entries, suspended)

    async def finish(self) -> None:
        """Everything comes; whoever runs the job waits for all once more, and then ends it."""
        for name in SIGNALS:
            await self.lab.queue.signal(self.parent, name, "1")
        await self.end_child()
        for outcome in (Suspended("signal", "x", 3600, "", self.names), Done("1")):
            for worker in self.workers:
                await self.take(worker)
            # Of all leases one may count; the others are refused.
            for worker, leased in list(self.held):
                await self.settle(worker, leased, outcome)
        status = self.raw.field(f"job:{self.parent}", "status")
        assert status == ("canceled" if self.canceled else "done"), "stuck"
        assert await self.lab.ends(JobId(self.parent)) == 1
        assert not self.raw.exists("jobs:suspended", f"job:{self.parent}:awaits")
        assert self.raw.entries(STREAM) == []


@clause("D-21", "D-8")
async def test_d21_no_history_leaves_a_job_stuck_or_with_two_entries(
    connection: Connection, raw: Raw
) -> None:
    seed = os.environ.get("CHAOS_SEED", "1")
    for number in range(int(os.environ.get("CHAOS_HISTORIES", "15"))):
        async with StreamsLab(connection, max_deliveries=1_000) as lab:
            history = History(lab, raw, random.Random(f"{seed} {number}"))
            try:
                await history.begin()
                for _ in range(25):
                    await history.act()
                await history.finish()
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, history {number}: {error}") from error
        raw.call("FLUSHALL")
