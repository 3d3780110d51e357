"""Serves one queue: waits for work, takes it, sends what the jobs say and how they end.

One Source an engine. All it sends goes out once a turn of the event loop: reports, then outcomes,
and in the same call the wish for as many next jobs as there are slots. So a busy queue costs one
call a batch, and a quiet one is waited for on a socket of its own.

Where the server does not answer, nothing is decided: what was asked is asked again, and what was
started into the void is adopted. It never gives up on a queue.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, ParamSpec, TypeVar

from jobwire.job.engine import Engine
from jobwire.job.errors import BackendUnavailable
from jobwire.job.messages import (
    LeasedJob,
    Outcome,
    Released,
    RenewAnswer,
    ReportAnswer,
    SettleAnswer,
    Settled,
    Token,
)
from jobwire.worker.app import NO_HANDLER, App
from jobwire.worker.backend import BackendState
from jobwire.worker.late_starts import LateStarts
from jobwire.worker.metrics import WorkerMetrics
from jobwire.worker.outcomes import StopReason
from jobwire.worker.run import Run
from jobwire.worker.runner import Runner
from jobwire.worker.send_queue import OutcomeBatch, ReportBatch, SendQueue
from jobwire.worker.slots import Slots
from jobwire.worker.task_pool import TaskPool
from jobwire.worker.watchdog import Watchdog

_log: Final = logging.getLogger("jobwire.worker")

WAIT_S: Final = 2.0
"""How long one wait for work lasts; a lost connection that nobody noticed costs no more."""

_MAX_BATCH: Final = 200
"""Jobs in one call: past that, calls only get longer."""

_MAX_CALLS: Final = 2
"""Calls in flight: one is on its way while the other's answer is worked on."""

_LONGEST_PAUSE_S: Final = 1.0
"""Between two tries to write an outcome that the server refuses."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


class QueueLoop:
    """One queue of a worker."""

    def __init__(
        self,
        engine: Engine,
        app: App,
        slots: Slots,
        runner: Runner,
        tasks: TaskPool,
        watchdog: Watchdog,
        grace_s: float,
        tally: WorkerMetrics,
    ) -> None:
        self.engine = engine
        self.loop = asyncio.get_running_loop()
        self.grace_s = grace_s
        self.lease_s = float("inf")
        """How long a lease holds; set by the renewal thread's owner before the first job."""
        self.runs: dict[Token, Run] = {}
        """Everything held, from its start to the answer of its settle; the keeper reads it."""
        self.idle = asyncio.Event()
        """Nothing is held, and no call is on its way that could bring something."""
        self.idle.set()
        self._handlers = app.handlers
        self._runner = runner
        self._tasks = tasks
        self._watchdog = watchdog
        # Only tasks that we have are counted by name: nobody can fill the tally with invented ones.
        self._accounts = {task: tally.task(engine.name, task) for task in app.handlers}
        self._unknown = tally.task(engine.name, "")
        self._backend = BackendState(engine.name, tasks, self._recover)
        self._share = slots.share(self._turn_soon)
        self._at_once = min(_MAX_BATCH, slots.total)
        self._send_queue = SendQueue()
        self._turn_due = False
        self._calls = 0
        self._reserved = self._share.try_acquire(1)
        """Slots that are kept for what a wait may bring."""
        self._waited_from_s = 0.0
        """When the last wait was sent: what it has started may be as old as that."""
        self._late = LateStarts(self._renew, self._backend, tasks, runner)
        self._in_doubt = 0
        """Slots of calls whose answer was lost: jobs may have been started for them."""
        self._caught_up = asyncio.Event()
        """There was less work than slots for it: time to wait again."""
        self._stopping = False

    # ── taking ───────────────────────────────────────────────────────────────────────────────────

    async def serve(self) -> None:
        """Wait for work and take it, until told to stop."""
        while not self._stopping:
            await self._backend.wait()
            if not self._reserved:
                await self._share.acquire()
                self._reserved = 1
                continue  # the server may have been lost meanwhile
            # One more than may come, where nobody else wants it: if it stays empty, nothing else is
            # in line, and nobody has to ask.
            if self._reserved == 1 and not self._share.contested:
                self._reserved += self._share.try_acquire(1)
            if not self._stopping and await self._work_comes():
                self._share.wants_more = True
                self._caught_up.clear()
                self._turn()
                await self._caught_up.wait()

    async def _work_comes(self) -> bool:
        self._waited_from_s = time.monotonic()
        wait = self.engine.wait(WAIT_S, self._reserved)
        try:
            woken = await self._watchdog.watched(f"{self.engine.name}: wait", wait, WAIT_S)
        except Exception as error:  # noqa: BLE001 - a queue is never given up
            self._in_doubt, self._reserved = self._in_doubt + self._reserved, 0
            self._lost(error)
            return False
        return woken and not self._stopping

    async def stop_taking(self) -> None:
        """Take no more; what is on its way to us is given back when it comes."""
        self._stopping = True
        self._share.wants_more = False
        self._caught_up.set()
        try:
            await self._watchdog.watched(f"{self.engine.name}: wake", self.engine.wake())
        except Exception as error:  # noqa: BLE001 - the wait ends by itself soon
            _log.warning("%s: cannot be woken: %s", self.engine.name, error)

    def _turn_soon(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Send everything that has come together."""
        self._turn_due = False
        if not self._backend.available:
            return
        if said := self._send_queue.reports():
            batch = [(run.leased, report) for run, reports in said for report in reports]
            self._tasks.start(self._reported(_sent(self.engine.report, batch), said))
        if self._calls >= _MAX_CALLS:
            return
        asked_s = time.monotonic()
        ends = self._send_queue.outcomes(_MAX_BATCH)
        want = (
            self._share.try_acquire(self._at_once - self._reserved) if self._share.wants_more else 0
        )
        if self._share.wants_more and (self._reserved or (want and not ends)):
            # What a wait has fetched is handed out by a take, not by a settle.
            taken_from_s = self._waited_from_s if self._reserved else asked_s
            want, self._reserved = want + self._reserved, 0
            self._called()
            self._tasks.start(self._taken(_sent(self.engine.take, want), want, taken_from_s))
            want = 0
        if ends:
            batch = [(run.leased, outcome) for run, outcome in ends]
            self._called()
            settling = _sent(self.engine.settle, batch, want)
            self._tasks.start(self._settled(settling, ends, want, asked_s))

    async def _taken(self, answer: Awaitable[list[LeasedJob]], want: int, asked_s: float) -> None:
        try:
            held = await self._watchdog.watched(f"{self.engine.name}: take", answer)
        except Exception as error:  # noqa: BLE001 - a queue is never given up
            self._in_doubt += want
            self._lost(error)
            self._answered()
            return
        await self._begin(held, want, asked_s)

    def _called(self) -> None:
        self._calls += 1
        self.idle.clear()

    def _answered(self) -> None:
        self._calls -= 1
        if not (self._calls or self.runs or self._in_doubt):
            self.idle.set()

    async def _begin(self, held: Sequence[LeasedJob], want: int, asked_s: float) -> None:
        """Start what came for `want` slots, asked for at `asked_s`. Uses up the task that calls
        it."""
        if len(held) < want:
            self._share.release(want - len(held))
            self._share.wants_more = False
            self._caught_up.set()
        runs: list[Run] = []
        if held:
            now_s, now_ms = time.monotonic(), time.time() * 1000
            for one in held:
                run = self._leased(one)
                if not run.is_over:
                    run.began_s = now_s
                    run.leased_s = asked_s
                    run.account.started(_waited_s(one, now_ms))
                    runs.append(run)
        self._answered()
        ready = self._runner.begin(runs)
        if self._send_queue or self._share.wants_more:
            self._turn_soon()
        await self._runner.drive(ready)

    def _leased(self, held: LeasedJob) -> Run:
        """A run for it, whose lease is kept from here on; over already where it is not to run."""
        task = held.job.task
        handler = self._handlers.get(task, NO_HANDLER)
        run = Run(held, handler, self, self._accounts.get(task, self._unknown))
        self.runs[held.token] = run
        if held.preset_outcome is not None:
            run.skip(held.preset_outcome)
        elif handler is NO_HANDLER or self._stopping:
            run.skip(Released())
        return run

    # ── sending ──────────────────────────────────────────────────────────────────────────────────

    def has_reports(self, run: Run) -> None:
        """A run has something to say."""
        self._send_queue.has_reports(run)
        self._turn_soon()

    def decided(self, run: Run, outcome: Outcome | None) -> None:
        """A run's outcome is decided."""
        began_s = run.began_s
        run.account.ended(outcome, None if began_s is None else time.monotonic() - began_s)
        if outcome is None:
            self._forget(run)
        else:
            self._send_queue.decided(run, outcome)
            self._turn_soon()

    def code_ended(self, run: Run) -> None:
        """A run's code has ended: its slot is free."""
        self._share.release()
        self._runner.ended(run)
        if self._share.wants_more:
            self._turn_soon()

    async def _settled(
        self, answer: Awaitable[Settled], ends: OutcomeBatch, want: int, asked_s: float
    ) -> None:
        try:
            settled = await self._watchdog.watched(f"{self.engine.name}: settle", answer)
        except Exception as error:  # noqa: BLE001 - a queue is never given up
            self._in_doubt += want
            self._send_queue.requeue(ends)
            self._lost(error)
            self._answered()
            return
        for (run, outcome), said in zip(ends, settled.answers, strict=True):
            if said is SettleAnswer.REFUSED:
                self._retry_write_later(run, outcome)
                continue
            if said is not SettleAnswer.SETTLED:
                name = type(outcome).__name__
                _log.warning("job %s: %s was not written: %s", run.leased.job.id, name, said)
            if said is SettleAnswer.LOST:
                run.account.lost()
            self._forget(run)
        await self._begin(settled.leased, want, asked_s)

    def _retry_write_later(self, run: Run, outcome: Outcome) -> None:
        """The server is there and will not write it: the job stays ours, and is asked again until
        somebody has mended what stands in the way."""
        if not run.refusals:
            _log.error("job %s: the server refuses to write its outcome", run.leased.job.id)
        run.refusals += 1
        pause_s = min(_LONGEST_PAUSE_S, 0.05 * 2 ** min(run.refusals, 9))
        self.loop.call_later(pause_s, self._retry_write, run, outcome)

    def _retry_write(self, run: Run, outcome: Outcome) -> None:
        self._send_queue.requeue([(run, outcome)])
        self._turn_soon()

    def _forget(self, run: Run) -> None:
        self.runs.pop(run.leased.token, None)
        if not (self.runs or self._calls or self._in_doubt):
            self.idle.set()

    async def _reported(self, answer: Awaitable[list[ReportAnswer]], said: ReportBatch) -> None:
        try:
            answers = await self._watchdog.watched(f"{self.engine.name}: report", answer)
        except BackendUnavailable as error:
            for run, reports in said:
                self._send_queue.acknowledged(run, reports)
            self._lost(error)
            return
        except Exception as error:  # noqa: BLE001 - a report never fails a job
            _log.error("%s: reports were dropped", self.engine.name, exc_info=error)
            answers = [ReportAnswer.DROPPED for _, reports in said for _ in reports]
        first = 0
        for run, reports in said:
            self._heard(run, answers[first : first + len(reports)])
            first += len(reports)
        self._turn_soon()

    def _heard(self, run: Run, answers: Sequence[ReportAnswer]) -> None:
        run.acknowledged(len(answers))
        self._send_queue.acknowledged(run)
        if ReportAnswer.LOST in answers:
            run.halt(StopReason.LOST)
        elif ReportAnswer.DROPPED in answers and not run.warned:
            run.warned = True  # one line a job is enough
            _log.warning("job %s: a report was dropped", run.leased.job.id)

    # ── what the world says about a held job ─────────────────────────────────────────────────────

    def lease_answers(self, answers: Sequence[tuple[Token, RenewAnswer]]) -> None:
        """What the keeper learned, where it was not just "kept"."""
        for token, answer in answers:
            if (run := self.runs.get(token)) is not None:
                run.halt(StopReason.CANCEL if answer is RenewAnswer.CANCEL else StopReason.LOST)

    async def listen(self) -> None:
        """Cancel what somebody wants canceled, for ever."""
        while True:
            try:
                async for asked in self.engine.cancels():
                    self.lease_answers([(asked.token, RenewAnswer.CANCEL)])
            except Exception as error:  # noqa: BLE001 - the keeper tells it too
                _log.warning("%s: cancel wishes come late: %s", self.engine.name, error)
            await asyncio.sleep(1)

    def release_all(self) -> None:
        """Give back everything that still runs."""
        for run in list(self.runs.values()):
            run.halt(StopReason.RELEASE)

    # ── when the server does not answer ──────────────────────────────────────────────────────────

    def _lost(self, error: Exception) -> None:
        """Send nothing until the server answers again."""
        self._share.wants_more = False
        self._caught_up.set()
        self._backend.mark_unavailable(error)

    async def _recover(self) -> None:
        """Adopt what the server started for us while its answers were lost, and go on."""
        mine: list[LeasedJob] = []
        losses, asked_s = -1, 0.0
        while losses != self._backend.losses:
            # J-30: a wait that breaks while we look may have started a job that was not looked for,
            # since its answer was still awaited. Nobody would look again before its lease is over.
            losses, asked_s = self._backend.losses, time.monotonic()
            mine = await self._adopted(0.0)
        _log.info("%s: answers again; %d job(s) adopted", self.engine.name, len(mine))
        room, self._in_doubt = self._in_doubt, 0
        self._backend.mark_available()
        await self._hold(mine, room, asked_s)

    async def recover_own_orphans(self, lease_s: float) -> None:
        """Take up what is pending under our name, though nobody here has kept it for a lease, for
        ever. Others would have taken it over, had they been there: it must not need them (R-1)."""
        while True:
            await asyncio.sleep(lease_s)
            if not self._backend.available or self._stopping:
                continue
            asked_s = time.monotonic()
            try:
                mine = await self._adopted(lease_s)
            except Exception as error:  # noqa: BLE001 - the next look comes
                _log.warning("%s: cannot look for forgotten jobs: %s", self.engine.name, error)
                continue
            if mine:
                _log.warning("%s: %d forgotten job(s) taken up", self.engine.name, len(mine))
                self._tasks.start(self._hold(mine, 0, asked_s))

    async def _adopted(self, idle_s: float) -> list[LeasedJob]:
        adopting = self.engine.recover_orphans(frozenset(self.runs), idle_s)
        return await self._watchdog.watched(f"{self.engine.name}: adopt", adopting)

    async def _hold(self, mine: Sequence[LeasedJob], room: int, asked_s: float) -> None:
        """Run what was adopted, in `room` slots that are kept for it and as many as are free."""
        room += self._share.try_acquire(len(mine) - room)
        self._called()
        for held in mine[room:]:
            # More than we have room for; the slot is drawn only to be given back.
            self._share.force_acquire()
            self._leased(held).halt(StopReason.RELEASE)
        self._turn_soon()
        await self._begin(mine[:room], room, asked_s)

    async def _renew(self, runs: Sequence[Run]) -> list[Run]:
        """Renew the leases of runs; those that are still ours."""
        asked_s = time.monotonic()
        try:
            renewing = self.engine.renew([run.leased for run in runs])
            answers = await self._watchdog.watched(f"{self.engine.name}: renew", renewing)
        except Exception as error:
            self._lost(error)
            raise
        for run, answer in zip(runs, answers, strict=True):
            if answer is RenewAnswer.RENEWED:
                run.leased_s = asked_s
            else:
                self.lease_answers([(run.leased.token, answer)])
        return [run for run in runs if not run.is_over]

    def renew_first(self, run: Run) -> None:
        """A run's lease may have run out before its code has begun."""
        self._late.add(run)


def _waited_s(held: LeasedJob, now_ms: float) -> float | None:
    """How long it lay in line before its first start."""
    first = held.job.deliveries <= 1 and held.job.attempt <= 1
    return (now_ms - held.job.created_ms) / 1000 if first else None


def _sent(verb: Callable[_P, Awaitable[_T]], *args: _P.args, **options: _P.kwargs) -> Awaitable[_T]:
    """Call an engine. It is sent when called, so it may fail before there is anything to await."""
    try:
        return verb(*args, **options)
    except Exception as error:  # noqa: BLE001 - raised where the answer is awaited
        return _failed(error)


async def _failed(error: Exception) -> Any:
    raise error
