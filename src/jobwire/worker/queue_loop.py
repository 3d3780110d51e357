"""Serves the queues of an engine: waits for jobs, takes them, sends their reports and outcomes.

One QueueLoop per engine. Everything is sent once per turn of the event loop: reports, then
outcomes, and in the same call the request for as many next jobs as there are free slots. So a busy
queue costs one call per batch, and a quiet one is waited for on a socket of its own.

If the server does not answer, nothing is decided: the same calls are made again, and jobs that the
server started without our knowledge are recovered. The loop never gives up on a queue.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Mapping, Sequence
from contextvars import copy_context
from typing import Final, NamedTuple

from jobwire.job import retry
from jobwire.job.engine import Engine
from jobwire.job.errors import ContractError
from jobwire.job.messages import (
    Failed,
    JobError,
    LeasedJob,
    Outcome,
    Released,
    RenewAnswer,
    SettleAnswer,
    Settled,
    Token,
)
from jobwire.worker.app import NO_HANDLER, Handler, Routes
from jobwire.worker.backend import BackendState
from jobwire.worker.job_log import JobLog, fields
from jobwire.worker.late_starts import LateStarts
from jobwire.worker.limits import NOTHING, HandlerLimits, LoopLimits, Reserved
from jobwire.worker.metrics import TaskMetrics, WorkerMetrics
from jobwire.worker.outcomes import StopReason
from jobwire.worker.reports import OutcomeBatch, SendQueue
from jobwire.worker.run import Run
from jobwire.worker.runner import Runner
from jobwire.worker.slots import Slots
from jobwire.worker.task_pool import TaskPool
from jobwire.worker.watchdog import Watchdog, call

_log: Final = logging.getLogger("jobwire.worker")

WAIT_S: Final = 2.0
"""How long one wait for work lasts; the most that an undetected lost connection costs."""

_MAX_BATCH: Final = 200
"""Jobs in one call; more only make the call longer."""

_MAX_CALLS: Final = 2
"""Calls in flight: one is sent while the other's answer is handled."""

_OFFER: Final = 2
"""Slots that a wait offers: one for the job it waits for, and one more. If that one stays empty,
the queue is empty and no take has to ask."""

_IN_LINE_S: Final = 2.0
"""How long a job that a wait has started may wait for a slot before it is released."""

_SETTLED: Final = SettleAnswer.SETTLED  # for each job: reading it from the enum is slow
_REFUSED_BACKOFF: Final = retry.exponential(0.1, 1.0, jitter=0)
"""Between two tries to write an outcome that the server refuses."""


class _Served(NamedTuple):
    """One queue: the handler of each task, and the counts of its jobs."""

    tasks: Mapping[str, tuple[Handler, TaskMetrics]]
    other_tasks: tuple[Handler, TaskMetrics]


def _served(queue: str, routes: Routes, metrics: WorkerMetrics) -> _Served:
    catch_all = routes.catch_all or NO_HANDLER
    # Only registered tasks get a series: callers cannot fill the metrics with invented names.
    tasks = {
        task: (handler, metrics.task(queue, task)) for task, handler in routes.handlers.items()
    }
    return _Served(tasks, (catch_all, metrics.task(queue, catch_all.task)))


class QueueLoop:
    """The queues of one engine."""

    def __init__(
        self,
        engine: Engine,
        routes: Mapping[str, Routes],
        slots: Slots,
        limits: HandlerLimits,
        runner: Runner,
        tasks: TaskPool,
        watchdog: Watchdog,
        grace_s: float,
        metrics: WorkerMetrics,
    ) -> None:
        self.engine = engine
        self.loop = asyncio.get_running_loop()
        self.grace_s = grace_s
        self.lease_s = float("inf")
        """How long a lease holds; set by the lease renewal thread before the first job."""
        self.runs: dict[Token, Run] = {}
        """All leased jobs, from their start to the answer of their settle; the lease renewal
        thread reads it."""
        self.idle = asyncio.Event()
        """Nothing is leased, and no call is in flight that could bring a job."""
        self.idle.set()
        self.send_queue = SendQueue(engine, watchdog, self._turn_soon, self._mark_unavailable)
        self._queues = {name: _served(name, own, metrics) for name, own in routes.items()}
        self._first_queue = next(iter(self._queues.values()))
        self._runner = runner
        self.threads = runner.threads
        self._tasks = tasks
        self._watchdog = watchdog
        self._backend = BackendState(engine.name, tasks, self._recover)
        self._job_log = JobLog(self.loop)
        group = engine.wire if engine.traits.takes_turns else ""
        self._share = slots.share(self._take_soon, group)
        self._slots = slots
        self._limits = limits
        self._room = LoopLimits(limits, routes, self._room_again)
        self._has_limits = bool(self._room)
        self._turn_due = False
        self._context = copy_context()
        """Without the log fields of a job."""
        self._calls = 0
        self._prefetches = engine.traits.prefetches
        self._arrived = 0
        """How many jobs the last wait may have started; the next take returns them."""
        self._reserved = 0
        """Slots held for them."""
        self._waited_from_s = 0.0
        """When the last wait was sent: jobs that it started may be as old as that."""
        self._late = LateStarts(self._renew, self._backend, tasks, runner)
        self._in_doubt = False
        """The answer to a call was lost that may have started jobs."""
        self._caught_up = asyncio.Event()
        """The last take returned fewer jobs than slots: wait again."""
        self._stopping = False
        self._resumed = asyncio.Event()
        """The worker is not paused."""
        self._resumed.set()

    @property
    def available(self) -> bool:
        """Whether its server answers. For any thread."""
        return self._backend.available

    # ── taking ───────────────────────────────────────────────────────────────────────────────────

    async def serve(self) -> None:
        """Wait for jobs and take them, until stopped."""
        while not self._stopping:
            await self._resumed.wait()
            await self._backend.wait()
            share = self._share
            if share.holds_all:  # nothing to wait for but a free slot
                await share.acquire()
                share.release()
                continue  # the server may have become unavailable meanwhile
            offered = share.offer(_OFFER) if self._prefetches else 0
            if await self._wait_for_work(offered):
                if not offered and not await self._reserve_one():
                    continue
                share.want(True)
                self._caught_up.clear()
                self._turn()
                await self._caught_up.wait()

    async def _wait_for_work(self, offered: int) -> bool:
        """Wait; with `offered` slots the wait may start jobs. Without any it only watches, and
        other queues keep all slots until there is work."""
        self._waited_from_s = time.monotonic()
        if self._has_limits:
            self.engine.set_room(self._room.offer())
        wait = self.engine.wait(WAIT_S, offered)
        try:
            woken = await self._watchdog.watched(f"{self.engine.name}: wait", wait, WAIT_S)
        except asyncio.CancelledError:
            self._share.accept(offered, 0)
            raise
        except Exception as error:  # noqa: BLE001 - a queue is never given up
            self._lose_answer(error, self._share.accept(offered, offered))
            return False
        if not woken or self._stopping:
            self._share.accept(offered, 0)
            return False
        self._arrived, self._reserved = offered, self._share.accept(offered, offered)
        return True

    async def _reserve_one(self) -> bool:
        """Reserve a slot for the next take; False if nothing can be taken any more."""
        await self._share.acquire()
        if self._stopping or not (self._backend.available and self._resumed.is_set()):
            self._share.release()
            return False
        self._reserved = 1
        return True

    async def stop_taking(self) -> None:
        """Take no more; jobs that arrive from now on are released."""
        self._stopping = True
        self._share.want(False)
        self._caught_up.set()
        await self._wake()

    def pause(self) -> None:
        """Take no more until `resume`; jobs that a wait or a take has started by now are run."""
        if self._resumed.is_set():
            self._resumed.clear()
            self._tasks.start(self._wake())

    def resume(self) -> None:
        """Take jobs again."""
        self._resumed.set()
        self._turn_soon()

    async def _wake(self) -> None:
        """End a wait in progress."""
        try:
            await self._watchdog.watched(f"{self.engine.name}: wake", self.engine.wake())
        except Exception as error:  # noqa: BLE001 - the wait ends by itself soon
            _log.warning(
                "wake failed engine=%(engine)s error=%(error)s; the wait ends at its timeout",
                {"engine": self.engine.name, "error": error},
            )

    def _take_soon(self) -> bool:
        """Slots are free: take jobs in the next turn; False if this loop cannot."""
        if self._calls >= _MAX_CALLS or not self._backend.available or not self._resumed.is_set():
            return False
        self._turn_soon()
        return True

    def _room_again(self) -> None:
        """A handler that was at its limit is below it."""
        if not self._stopping and self._backend.available:
            self._share.want(True)
            self._turn_soon()

    def _reserve_room(self) -> Reserved:
        """For the jobs of the call that follows."""
        room, reserved = self._room.reserve()
        self.engine.set_room(room)
        return reserved

    def _turn_soon(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            self.loop.call_soon(self._turn, context=self._context)

    def _turn(self) -> None:
        """Send everything that is queued."""
        self._turn_due = False
        self._share.begin_turn()
        if not self._backend.available:
            self._share.pass_on()
            return
        if (sending := self.send_queue.send_reports()) is not None:
            self._tasks.start(sending)
        if self._calls >= _MAX_CALLS:
            self._share.pass_on()
            return
        asked_s = time.monotonic()
        ends = self.send_queue.take_outcomes(_MAX_BATCH)
        share = self._share
        want = 0
        if share.wants_more and self._resumed.is_set():
            want = share.take_turn(min(_MAX_BATCH, self._slots.total) - self._reserved)
        else:
            share.pass_on()
        if share.wants_more and (self._arrived or self._reserved or (want and not ends)):
            # Jobs that a wait has started are handed out by a take, not by a settle.
            taken_from_s = self._waited_from_s if self._arrived else asked_s
            held = want + self._reserved
            limit = max(held, self._arrived)
            self._arrived = self._reserved = want = 0
            self._call_sent()
            room = self._reserve_room() if self._has_limits else NOTHING
            taking = call(self.engine.take, limit)
            self._tasks.start(self._taken(taking, limit, held, room, taken_from_s))
        if ends:
            batch = [(run.leased, outcome) for run, outcome in ends]
            self._call_sent()
            room = self._reserve_room() if want and self._has_limits else NOTHING
            settling = call(self.engine.settle, batch, want)
            self._tasks.start(self._settled(settling, ends, want, room, asked_s))

    async def _taken(
        self,
        answer: Awaitable[list[LeasedJob]],
        limit: int,
        held: int,
        room: Reserved,
        asked_s: float,
    ) -> None:
        try:
            leased = await self._watchdog.watched(f"{self.engine.name}: take", answer)
        except Exception as error:  # noqa: BLE001 - a queue is never given up
            self._lose_answer(error, held, room)
            self._call_answered()
            return
        await self._begin(leased, limit, held, room, asked_s)

    def _call_sent(self) -> None:
        self._calls += 1
        self.idle.clear()

    def _call_answered(self) -> None:
        self._calls -= 1
        if not (self._calls or self.runs or self._in_doubt):
            self.idle.set()

    async def _begin(
        self, leased: Sequence[LeasedJob], limit: int, held: int, room: Reserved, asked_s: float
    ) -> None:
        """Start the jobs that came for a call for up to `limit`, made at `asked_s`, in `held`
        slots; those beyond wait in line for a slot. The calling task may become a handler's own:
        nothing may follow this call."""
        count = len(leased)
        if room:
            for own, reserved in room.items():
                own.give_back(reserved)
        if count < limit:
            self._share.want(False)
            self._caught_up.set()
        if count < held:
            self._share.release(held - count)
        runs: list[Run] = []
        if leased:
            now_s, now_ms = time.monotonic(), time.time() * 1000
            for each in leased:
                run = self._add_run(each, has_slot=held > 0)
                held -= 1
                if not run.is_over:
                    run.began_s = now_s
                    run.leased_s = asked_s
                    run.metrics.started(_waited_s(each, now_ms))
                    if not run.has_slot:
                        self._wait_in_line(run)
                    elif each.records:
                        self._tasks.start(self._begin_recorded(run))
                    else:
                        runs.append(run)
        if self._has_limits and self._room.answered():
            self._tasks.start(self._wake())
        self._call_answered()
        ready = self._runner.begin(runs)
        if self.send_queue or self._share.wants_more:
            self._turn_soon()
        await self._runner.drive(ready)

    def _add_run(self, leased: LeasedJob, *, has_slot: bool = True) -> Run:
        """A run for the job, whose lease is renewed from here on; over already if it must not
        run."""
        job = leased.job
        served = self._queues.get(job.source, self._first_queue)
        handler, metrics = served.tasks.get(job.task, served.other_tasks)
        run = Run(leased, handler, self, metrics)
        self.runs[leased.token] = run
        if not has_slot:
            run.has_slot = False
        if leased.preset_outcome is not None:
            run.skip(leased.preset_outcome)
        elif self._stopping:
            run.skip(Released())
        elif handler is NO_HANDLER:
            run.skip(self.engine.unknown_task(leased))
        elif handler.concurrency is not None:
            limit = self._limits.of(handler)
            if limit is None or not limit.admit():
                run.skip(self.engine.no_room(leased))
            else:
                run.admitted_by = limit
        return run

    async def _begin_recorded(self, run: Run) -> None:
        """Read what the job has from earlier runs, then begin it (D-3)."""
        while not run.is_over:
            await self._backend.wait()
            reading = self.engine.read_record(run.leased)
            try:
                record = await self._watchdog.watched(f"{self.engine.name}: record", reading)
            except ContractError as error:
                run.skip(Failed(JobError(error.code, error.message)))
            except Exception as error:  # noqa: BLE001 - a queue is never given up
                self._mark_unavailable(error)
            else:
                if not run.is_over:
                    run.job_record, run.progress_attempt = record, record.progress_attempt
                    run.replay = run.steps.replay
                    await self._runner.drive(self._runner.begin([run]))
                return

    def _wait_in_line(self, run: Run) -> None:
        """Begin the run with the next free slot: other queues took the one that was offered for
        it. If none is free soon, other workers get the job."""

        def begin() -> bool:
            if run.is_over:
                return False
            run.has_slot = True
            if run.leased.records:
                self._tasks.start(self._begin_recorded(run))
            else:
                self._tasks.start(self._runner.drive(self._runner.begin([run])))
            return True

        def give_up() -> None:
            if not run.has_slot:
                run.halt(StopReason.RELEASE)

        self._share.when_free(begin)
        self.loop.call_later(_IN_LINE_S, give_up)

    # ── settling ─────────────────────────────────────────────────────────────────────────────────

    def decided(self, run: Run, outcome: Outcome | None) -> None:
        """Settle the run so; None: forget it, another worker has the job."""
        began_s = run.began_s
        ran_s = None if began_s is None else time.monotonic() - began_s
        run.metrics.ended(outcome, ran_s)
        self._job_log.ended(run, outcome, ran_s)
        if outcome is None:
            self._forget(run)
        else:
            self.send_queue.add_outcome(run, outcome)

    def code_ended(self, run: Run) -> None:
        """The run's code has ended: its slot is free."""
        if run.has_slot:
            self._share.release()
        self._runner.ended(run)
        if run.admitted_by is not None:
            run.admitted_by.ended()
        if self._share.wants_more:
            self._turn_soon()

    async def _settled(
        self,
        answer: Awaitable[Settled],
        ends: OutcomeBatch,
        want: int,
        room: Reserved,
        asked_s: float,
    ) -> None:
        try:
            settled = await self._watchdog.watched(f"{self.engine.name}: settle", answer)
        except Exception as error:  # noqa: BLE001 - a queue is never given up
            self.send_queue.requeue(ends)
            self._lose_answer(error, want, room)
            self._call_answered()
            return
        for (run, outcome), result in zip(ends, settled.answers, strict=True):
            if result is not _SETTLED:
                if result is SettleAnswer.REFUSED:
                    self._retry_write_later(run, outcome)
                    continue
                name = type(outcome).__name__
                _log.warning(
                    "outcome not written outcome=%(outcome)s reason=%(reason)s",
                    {"outcome": name, "reason": result},
                    extra=fields(run),
                )
                if result is SettleAnswer.LOST:
                    run.metrics.lost()
            self._forget(run)
        await self._begin(settled.leased, want, want, room, asked_s)

    def _retry_write_later(self, run: Run, outcome: Outcome) -> None:
        """The server answers but refuses the write: keep the job and retry until the cause is
        repaired."""
        if not run.refusals:
            _log.error("outcome refused by the server; will retry", extra=fields(run))
        run.refusals += 1
        pause_s = retry.delay_s(_REFUSED_BACKOFF, run.refusals, 0.0)
        self.loop.call_later(pause_s, self._retry_write, run, outcome)

    def _retry_write(self, run: Run, outcome: Outcome) -> None:
        self.send_queue.requeue([(run, outcome)])
        self._turn_soon()

    def _forget(self, run: Run) -> None:
        self.runs.pop(run.leased.token, None)
        if not (self.runs or self._calls or self._in_doubt):
            self.idle.set()

    # ── cancels, lost leases, release ────────────────────────────────────────────────────────────

    def lease_answers(self, answers: Sequence[tuple[Token, RenewAnswer]]) -> None:
        """Stop the runs whose lease was not simply renewed."""
        for token, answer in answers:
            if (run := self.runs.get(token)) is not None:
                if self.engine.traits.tells_ended:
                    run.lost_by = answer
                run.halt(StopReason.CANCEL if answer is RenewAnswer.CANCEL else StopReason.LOST)

    async def listen(self) -> None:
        """Stop canceled jobs, forever."""
        while True:
            try:
                async for request in self.engine.cancels():
                    self.lease_answers([(request.token, RenewAnswer.CANCEL)])
            except Exception as error:  # noqa: BLE001 - lease renewal reports cancels, too
                _log.warning(
                    "cancel requests delayed until the next renewal engine=%(engine)s "
                    "error=%(error)s",
                    {"engine": self.engine.name, "error": error},
                )
            await asyncio.sleep(1)

    def release_all(self) -> None:
        """Release every job that still runs."""
        for run in list(self.runs.values()):
            run.halt(StopReason.RELEASE)

    # ── when the server does not answer ──────────────────────────────────────────────────────────

    def _mark_unavailable(self, error: Exception) -> None:
        """Send nothing until the server answers again."""
        self._share.want(False)
        self._caught_up.set()
        reserved, self._reserved, self._arrived = self._reserved, 0, 0
        self._backend.mark_unavailable(error)
        if reserved:
            self._in_doubt = True
            self._share.release(reserved)

    def _lose_answer(self, error: Exception, held: int, room: Reserved = NOTHING) -> None:
        """The same after a call that may have started jobs for `held` slots. Other queues use the
        slots meanwhile: their servers may answer for as long as this one does not."""
        self._mark_unavailable(error)
        for own, reserved in room.items():
            own.give_back(reserved)
            own.notify_refused()
        if held:
            self._in_doubt = True
            self._share.release(held)

    async def _recover(self) -> None:
        """Recover jobs that the server started while its answers were lost, and go on."""
        orphans: list[LeasedJob] = []
        losses, asked_s = -1, 0.0
        while losses != self._backend.losses:
            # J-30: a wait that fails during this search may have started a job that the search
            # left out, since its answer was still awaited. Without a second search that job would
            # wait for the end of its lease.
            losses, asked_s = self._backend.losses, time.monotonic()
            orphans = await self._find_orphans(0.0)
        _log.info(
            "server available again engine=%(engine)s orphans=%(orphans)s; its orphans run here",
            {"engine": self.engine.name, "orphans": len(orphans)},
        )
        self._in_doubt = False
        self._backend.mark_available()
        await self._run_orphans(orphans, asked_s)

    async def recover_own_orphans(self) -> None:
        """Take up jobs that are pending under this worker's name and were not renewed for a lease,
        forever. Other workers would reclaim them, but need not exist (R-1)."""
        lease_s = self.lease_s
        while True:
            await asyncio.sleep(lease_s)
            if not self._backend.available or self._stopping:
                continue
            asked_s = time.monotonic()
            try:
                orphans = await self._find_orphans(lease_s)
            except Exception as error:  # noqa: BLE001 - the next search follows
                _log.warning(
                    "search for orphans failed engine=%(engine)s after_s=%(after_s)s "
                    "error=%(error)s; will retry",
                    {"engine": self.engine.name, "after_s": lease_s, "error": error},
                )
                continue
            if orphans:
                _log.warning(
                    "orphans recovered engine=%(engine)s orphans=%(orphans)s; they run here",
                    {"engine": self.engine.name, "orphans": len(orphans)},
                )
                self._tasks.start(self._run_orphans(orphans, asked_s))

    async def _find_orphans(self, idle_s: float) -> list[LeasedJob]:
        search = self.engine.recover_orphans(frozenset(self.runs), idle_s)
        return await self._watchdog.watched(f"{self.engine.name}: recover", search)

    async def _run_orphans(self, orphans: Sequence[LeasedJob], asked_s: float) -> None:
        """Run as many orphans as slots are free; release the rest."""
        held = self._share.try_acquire(len(orphans))
        self._call_sent()
        for leased in orphans[held:]:
            # No slot is free; the run needs one only to release it again.
            self._share.force_acquire()
            self._add_run(leased).halt(StopReason.RELEASE)
        self._turn_soon()
        await self._begin(orphans[:held], held, held, NOTHING, asked_s)

    async def _renew(self, runs: Sequence[Run]) -> list[Run]:
        """Renew the leases of runs; returns those that are still ours."""
        asked_s = time.monotonic()
        try:
            renewing = self.engine.renew([run.leased for run in runs])
            answers = await self._watchdog.watched(f"{self.engine.name}: renew", renewing)
        except Exception as error:
            self._mark_unavailable(error)
            raise
        for run, answer in zip(runs, answers, strict=True):
            if answer is RenewAnswer.RENEWED:
                run.leased_s = asked_s
            elif answer is not RenewAnswer.REFUSED:
                self.lease_answers([(run.leased.token, answer)])
        return [run for run in runs if not run.is_over]

    def renew_first(self, run: Run) -> None:
        """The run's lease may have run out before its code has begun: renew it first."""
        self._late.add(run)


def _waited_s(leased: LeasedJob, now_ms: float) -> float | None:
    """How long the job waited for its first start; None if this is a later one."""
    # The delivery that ended in a wait is not counted, but it left a record.
    first = leased.job.deliveries <= 1 and leased.job.attempt <= 1 and not leased.records
    return (now_ms - leased.job.created_ms) / 1000 if first else None
