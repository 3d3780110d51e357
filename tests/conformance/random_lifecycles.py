"""Random lifecycles against a model: after any order of steps the engine answers as the model
does, and each job ends at most once.

A wire's test file draws the steps with Hypothesis and runs them here. The model has the
rules of the domain model only. It keeps every token ever issued, so zombies write all the time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from hypothesis import strategies as st

from jobwire.job.engine import Engine, LeaseRenewer
from jobwire.job.messages import (
    Canceled,
    CancelOutcome,
    Done,
    Failed,
    JobError,
    JobId,
    JobRequest,
    LeasedJob,
    Outcome,
    Released,
    RenewAnswer,
    Report,
    ReportAnswer,
    RetryLater,
    SettleAnswer,
    Submitted,
)
from jobwire.job.states import TERMINAL, State
from tests.conformance.lab import TASK, Lab

WORKERS = 2
TRANSIENT = JobError("handler_error", "try me again", retryable=True)
OUTCOMES: tuple[Outcome, ...] = (
    Done('"x"'),
    Failed(JobError("no", "no")),
    Canceled(),
    RetryLater(0, TRANSIENT),
    Released(),
)

Step: TypeAlias = tuple[str, int, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "submit",
                "take",
                "take",
                "settle",
                "settle",
                "zombie",
                "again",
                "cancel",
                "report",
                "keep",
                "silence",
            ]
        ),
        st.integers(0, 1_000),
        st.integers(0, 1_000),
    ),
    min_size=10,
    max_size=80,
)


@dataclass
class Life:
    """The model's state of one job."""

    id: JobId
    state: State = State.WAITING
    attempt: int = 1
    deliveries: int = 0
    token: str = ""
    """Of the latest delivery; empty after a sweep has reclaimed the job."""
    wanted: bool = True
    """False once a cancel was requested."""


@dataclass
class Delivery:
    worker: int
    leased: LeasedJob
    life: Life
    outcome: Outcome | None = None
    """The outcome it was settled with, if it was."""


@dataclass
class Model:
    lab: Lab
    workers: list[Engine]
    renewers: list[LeaseRenewer]
    lives: list[Life] = field(default_factory=list[Life])
    deliveries: list[Delivery] = field(default_factory=list[Delivery])

    async def run(self, drawn: list[Step]) -> None:
        for verb, one, other in drawn:
            await getattr(self, verb)(one, other)
        await self.check()

    async def check(self) -> None:
        for life in self.lives:
            snapshot = await self.lab.snapshot(life.id)
            assert (snapshot.state, snapshot.attempt) == (life.state, life.attempt)
            assert await self.lab.ends(life.id) == (life.state in TERMINAL)

    # The steps. `one` and `other` choose among whatever there is.

    async def submit(self, one: int, other: int) -> None:
        answer = await self.lab.queue.submit(JobRequest(TASK, "{}"))
        assert isinstance(answer, Submitted)
        self.lives.append(Life(answer.job_id))

    async def take(self, one: int, other: int) -> None:
        worker, limit = one % WORKERS, 1 + other % 3
        waiting = {life.id: life for life in self.lives if life.state is State.WAITING}
        leased = await self.workers[worker].take(limit)
        assert len(leased) == min(limit, len(waiting))
        for each in leased:
            life = waiting.pop(each.job.id)
            life.state, life.token = State.RUNNING, each.token
            life.deliveries += 1
            assert (each.job.attempt, each.job.deliveries) == (life.attempt, life.deliveries)
            self.deliveries.append(Delivery(worker, each, life))

    async def settle(self, one: int, other: int) -> None:
        """By the holder: a few at a time, each with an outcome of its own."""
        worker = one % WORKERS
        own = [each for each in self.deliveries if each.worker == worker and self.holds(each)]
        batch = [(each, OUTCOMES[(other + at) % len(OUTCOMES)]) for at, each in enumerate(own[:3])]
        settled = await self.workers[worker].settle(
            [(each.leased, outcome) for each, outcome in batch], 0
        )
        assert settled.answers == [SettleAnswer.SETTLED] * len(batch)
        for each, outcome in batch:
            each.outcome = outcome
            self.apply(each.life, outcome)

    async def again(self, one: int, other: int) -> None:
        """A settled delivery is settled once more, as after a lost answer."""
        settled = [each for each in self.deliveries if each.outcome is not None]
        if settled:
            each = settled[one % len(settled)]
            assert each.outcome is not None
            await self.settle_again(each, each.outcome)

    async def zombie(self, one: int, other: int) -> None:
        """A worker that lost its job settles it."""
        lost = [each for each in self.deliveries if each.outcome is None and not self.holds(each)]
        if lost:
            await self.settle_again(lost[one % len(lost)], OUTCOMES[other % len(OUTCOMES)])

    async def settle_again(self, each: Delivery, outcome: Outcome) -> None:
        answer = SettleAnswer.LOST
        if each.life.state in TERMINAL:
            answer = SettleAnswer.ALREADY
        if each.life.token == each.leased.token:
            answer = SettleAnswer.SETTLED
        settled = await self.workers[each.worker].settle([(each.leased, outcome)], 0)
        assert settled.answers == [answer]

    async def cancel(self, one: int, other: int) -> None:
        if not self.lives:
            return
        life = self.lives[one % len(self.lives)]
        answer = await self.lab.queue.cancel(life.id)
        if life.state in TERMINAL:
            assert answer is CancelOutcome.FINISHED
        elif life.state is State.RUNNING:
            assert answer is CancelOutcome.REQUESTED
            life.wanted = False
        else:
            assert answer is CancelOutcome.CANCELED
            life.state = State.CANCELED

    async def report(self, one: int, other: int) -> None:
        if self.deliveries:
            each = self.deliveries[one % len(self.deliveries)]
            answers = await self.workers[each.worker].report([(each.leased, Report("log", "1"))])
            wanted = ReportAnswer.WRITTEN if self.holds(each) else ReportAnswer.LOST
            assert answers == [wanted]

    async def keep(self, one: int, other: int) -> None:
        if not self.deliveries:
            return
        each = self.deliveries[one % len(self.deliveries)]
        answer = RenewAnswer.LOST
        if each.life.state in TERMINAL:
            answer = RenewAnswer.ENDED
        elif self.holds(each):
            answer = RenewAnswer.RENEWED if each.life.wanted else RenewAnswer.CANCEL
        assert list(self.renewers[each.worker].renew([each.leased])) == [answer]

    async def silence(self, one: int, other: int) -> None:
        """The leases of a worker expire, and maintenance requeues its jobs."""
        worker = one % WORKERS
        await self.lab.silence(self.workers[worker])
        await self.lab.sweep()
        for each in self.deliveries:
            if each.worker == worker and self.holds(each):
                each.life.token = ""
                each.life.state = State.WAITING if each.life.wanted else State.CANCELED

    # The rules.

    def holds(self, each: Delivery) -> bool:
        return each.life.state is State.RUNNING and each.life.token == each.leased.token

    def apply(self, life: Life, outcome: Outcome) -> None:
        match outcome:
            case Done():
                life.state = State.DONE
            case Failed():
                life.state = State.FAILED
            case Canceled():
                life.state = State.CANCELED
            case RetryLater() | Released() if not life.wanted:
                life.state = State.CANCELED
            case RetryLater():
                life.state = State.WAITING
                life.attempt += 1
            case Released():
                life.state = State.WAITING
                life.deliveries -= 1
            case _:
                raise AssertionError(f"{outcome} is not among OUTCOMES")
