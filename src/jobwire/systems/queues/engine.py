"""The worker's side of a BullMQ queue: implements the Engine protocol (B-2 … B-7, B-14 … B-17).

One per queue; the engines of a worker share `WorkerConnections`. Each method sends its scripts when
called, many in one write. It keeps no state of jobs besides the tokens of calls in flight.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Sequence, Set
from dataclasses import replace
from typing import Final, cast

import msgspec

from jobwire.job.engine import (
    MaintenanceResult,
    MaintenanceTask,
    MissingRequirements,
    Traits,
    no_missing_requirements,
)
from jobwire.job.errors import BackendUnavailable, RefusedError
from jobwire.job.messages import (
    CHILD_KIND,
    NO_RECORD,
    Canceled,
    CancelRequest,
    Children,
    ChildRequest,
    Done,
    Failed,
    JobError,
    JobId,
    JobRecord,
    LeasedJob,
    Outcome,
    Postponed,
    RateLimited,
    Released,
    RenewAnswer,
    Report,
    ReportAnswer,
    RetryLater,
    SettleAnswer,
    Settled,
    TaskDefinition,
    Token,
    WaitsForChildren,
)
from jobwire.job.states import State
from jobwire.systems.queues import settle_args
from jobwire.systems.queues.announcement import Announcement
from jobwire.systems.queues.children import child_flow, read_children
from jobwire.systems.queues.codec import (
    BrokenJob,
    Empty,
    JobHash,
    Limited,
    TakeAnswer,
    Took,
    number_of,
)
from jobwire.systems.queues.consumer import BullConsumer, SettledAttempt
from jobwire.systems.queues.contract import (
    RATE_LIMITED,
    RESERVED_KINDS,
    SETTLED_TTL_MS,
    Keys,
    Opt,
    Refusal,
)
from jobwire.systems.queues.flows import add_flow
from jobwire.systems.queues.idle_queues import IdleQueue
from jobwire.systems.queues.lease_renewal import BullLeaseRenewer, read_renewed
from jobwire.systems.queues.leased_jobs import end_of, failure_of, leased_job
from jobwire.systems.queues.new_jobs import flow_tree
from jobwire.systems.queues.options import BullJobOptions, Parent
from jobwire.systems.queues.queue import NewBullJob, QueueProducer
from jobwire.systems.queues.replies import raises_unavailable, settle_answer, unavailable
from jobwire.systems.queues.reports import wire_report
from jobwire.systems.queues.settle_args import End, FailedAttempt
from jobwire.systems.queues.worker_connections import WorkerConnections
from jobwire.valkey import ServerError, ValkeyError

_log = logging.getLogger("jobwire.bullmq")

_BATCH: Final = 100
"""Jobs that one script starts or ends: more would delay the calls of other clients."""

_PROMOTE_MS: Final = 5_000
"""How often due jobs are looked for while the rate limit is reached."""

Sent = Awaitable[SettleAnswer]
Ended = SettledAttempt | Refusal | ServerError


class BullEngine:
    wire: str = "bullmq"
    traits = Traits(
        uses=frozenset({"postpone", "rate_limit", "children", "update_data"}),
        settle_memory_s=SETTLED_TTL_MS / 1000,
        tells_ended=False,
        renews_expired=False,
        releases_uncounted=False,
        canceled_state=State.FAILED,
        keeps_canceled=False,
        cancels_at_release=False,
        reports_once=False,
    )
    reserved_kinds = RESERVED_KINDS

    def __init__(self, shared: WorkerConnections, queue: str) -> None:
        self.name = queue
        self.queues = (queue,)
        self.keys = Keys(queue, shared.settings.prefix)
        self._shared = shared
        self._settings = shared.settings
        self.traits = replace(
            self.traits,
            any_progress=shared.settings.any_progress,
            max_result_bytes=shared.settings.max_result_bytes,
        )
        self._announcement: Announcement | None = None
        self._consumer: BullConsumer | None = None
        self._queue: QueueProducer | None = None
        self._idle = IdleQueue(self.keys)
        self._unseen = True
        """There may be jobs that no answer has shown."""
        self._woken = False
        self._not_before_ms = 0
        """The queue's rate limit is reached until then."""
        self._promote_ms = 0
        """When delayed jobs are promoted next, while the rate limit is reached."""
        self._blocked = False
        """The last take started nothing since the queue is paused or at its concurrency."""
        self._settles = 0
        """How many batches were settled: each may end such a block, and writes no marker."""
        self._refused_children: dict[JobId, str] = {}
        """Why a child of a running job was not added. The answer may come after the job was
        released, which runs again at once."""
        self._in_flight: set[str] = set()
        """Tokens of takes whose answers have not arrived."""
        self._listings: list[set[str]] = []
        """For each `recover_orphans` in flight, the tokens that were in flight at any time since it
        was sent: the jobs of those takes are returned by those takes."""

    def unknown_task(self, leased: LeasedJob) -> Outcome:
        """The wire gives a job to any worker of its queue, so there is no other to leave it to."""
        reason = f"no worker of the queue {self.name!r} has a handler for {leased.job.task!r}"
        return Failed(JobError("unknown_task", reason))

    # Registering, waiting, deregistering

    async def register(
        self,
        tasks: Sequence[TaskDefinition],  # noqa: ARG002 - the wire has no record of tasks
        slots: int,  # noqa: ARG002 - nor of slots
        missing_requirements: MissingRequirements = no_missing_requirements,  # noqa: ARG002
    ) -> None:
        """Connect, and become visible to `getWorkers`."""
        shared = self._shared
        await shared.register()
        self._consumer = BullConsumer(
            shared.connection,
            self.name,
            shared.settings,
            name=shared.worker_name,
            worker_id=shared.worker_id,
            now_ms=shared.now_ms,
        )
        self._queue = QueueProducer(
            shared.connection, self.name, shared.settings, now_ms=shared.now_ms
        )
        if self._settings.announce:
            place = (self.name, self._settings.prefix, shared.worker_name)
            self._announcement = Announcement(shared.config, *place)
            await self._announcement.open()

    def set_slots(self, slots: int) -> None:
        """Nothing to do: the wire has no record of slots."""

    @property
    def consumer(self) -> BullConsumer:
        if self._consumer is None:
            raise RuntimeError(f"the engine of the queue {self.name!r} is not registered")
        return self._consumer

    async def wait(self, timeout_s: float, capacity: int = 1) -> bool:  # noqa: ARG002 - starts nothing
        """Wait until the queue's marker, a due time or a look tells of work."""
        try:
            if self._unseen and not self._woken:
                self._unseen = False
                await self._shared.idle.check([self._idle])
            if self._was_woken():
                return False
            now_ms = self._shared.now_ms()
            if self._not_before_ms > now_ms:
                self._idle.due_ms = None
                pause_s = max(0, min(self._not_before_ms, self._promote_ms) - now_ms) / 1000
                await self._sleep(min(timeout_s, pause_s))
                self._unseen = True
                return pause_s <= timeout_s and not self._was_woken()
            has_work = await self._shared.idle.wait(self._idle, timeout_s)
        except ValkeyError as error:
            self._unseen = True
            raise unavailable(error) from error
        self._unseen = self._unseen or has_work
        return not self._was_woken() and has_work

    async def _sleep(self, timeout_s: float) -> None:
        """Wait without looking at the queue; `wake` ends it."""
        self._idle.waiter = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.waiter
        except TimeoutError:
            pass
        finally:
            self._idle.waiter = None

    def _was_woken(self) -> bool:
        woken, self._woken = self._woken, False
        return woken

    async def wake(self) -> None:
        self._woken = True
        self._idle.resolve(False)

    async def deregister(self) -> None:
        """Release jobs whose start was answered into a broken connection, and leave."""
        if self._consumer is None:
            return
        try:
            while orphans := await self.recover_orphans(frozenset()):
                await self.settle([(leased, Released()) for leased in orphans], 0)
        finally:
            if self._announcement is not None:
                await self._announcement.close()
            await self._shared.deregister()

    # Taking

    def take(self, limit: int) -> Awaitable[list[LeasedJob]]:
        """Start up to `limit` jobs in one script."""
        now_ms = self._shared.now_ms()
        if now_ms < min(self._not_before_ms, self._promote_ms):
            return _nothing()
        tokens = self._shared.new_tokens(min(limit, _BATCH))
        for known in (self._in_flight, *self._listings):
            known.update(tokens)
        try:
            hold_ms = max(0, self._not_before_ms - now_ms)
            answers = self.consumer.take_many(tokens, hold_ms=hold_ms)
        except ValkeyError as error:
            self._in_flight.difference_update(tokens)
            raise unavailable(error) from error
        return self._taken(answers, tokens, self._settles)

    async def _taken(
        self, answers: Awaitable[list[TakeAnswer]], tokens: Sequence[str], settles: int
    ) -> list[LeasedJob]:
        try:
            found = await answers
        except ValkeyError as error:
            raise unavailable(error) from error
        finally:
            self._in_flight.difference_update(tokens)
        jobs: list[LeasedJob] = []
        self._blocked = False
        for token, answer in zip(tokens, found, strict=False):
            match answer:
                case Took(job):
                    jobs.append(leased_job(job, token, self.name, self._settings))
                case Empty(due_ms):
                    self._idle.due_ms = due_ms or None
                case Limited(wait_ms, due_ms):
                    now_ms = self._shared.now_ms()
                    self._not_before_ms = now_ms + wait_ms
                    self._promote_ms = min(due_ms or now_ms + _PROMOTE_MS, now_ms + _PROMOTE_MS)
                case BrokenJob(error):
                    _log.error(
                        "a job was not started queue=%(queue)s error=%(error)s",
                        {"queue": self.name, "error": error},
                    )
                case _:  # paused, or as many active as allowed
                    self._idle.due_ms = None
                    self._blocked = True
        self._unseen = len(jobs) == len(tokens) or (self._blocked and settles != self._settles)
        return jobs

    async def recover_orphans(self, known: Set[Token], idle_s: float = 0.0) -> list[LeasedJob]:
        """Active jobs whose lock is one of this worker's and that the worker does not know (B-15).
        A job that was not renewed for a whole lock time is left to the stalled check."""
        others = set(self._in_flight)
        self._listings.append(others)
        try:
            with raises_unavailable():
                idle_ms = round(idle_s * 1000)
                found = await self.consumer.recover(self._shared.token_prefix, known, idle_ms)
        finally:
            self._listings.remove(others)
        return [
            leased_job(job, token, self.name, self._settings)
            for token, job in found
            if token not in others
        ]

    # Reporting

    def report(self, batch: Sequence[tuple[LeasedJob, Report]]) -> Awaitable[list[ReportAnswer]]:
        """Write reports while the lock is this worker's. One that the wire does not accept is
        dropped."""
        sent: list[Awaitable[ReportAnswer]] = []
        for leased, report in batch:
            try:
                sent.append(self._send_report(leased, report))
            except RefusedError as error:
                _log.warning(
                    "report dropped job_id=%(job_id)s error=%(error)s",
                    {"job_id": leased.job.id, "error": error},
                )
                sent.append(_dropped())
            except ValkeyError as error:
                raise unavailable(error) from error
        return _collected(sent)

    def _send_report(self, leased: LeasedJob, report: Report) -> Awaitable[ReportAnswer]:
        job = cast(JobHash, leased.wire)
        if report.kind == CHILD_KIND:
            child = msgspec.json.decode(report.data_json, type=ChildRequest)
            return self._add_child(leased, child)
        kept = number_of(job.opts.get(Opt.KEEP_LOGS))
        written = self.consumer.report(
            job.id,
            leased.token,
            *wire_report(report, self._settings),
            keep_logs=kept or self._settings.max_log_lines,
        )
        return _reported(written)

    async def children(self, leased: LeasedJob) -> Children:
        with raises_unavailable():
            return await read_children(self._shared.connection, self.keys.job(leased.job.id))

    async def read_record(self, leased: LeasedJob) -> JobRecord:  # noqa: ARG002 - of the protocol
        """There is none: the wire has no place for it (D-18)."""
        return NO_RECORD

    def _add_child(self, leased: LeasedJob, child: ChildRequest) -> Awaitable[ReportAnswer]:
        """A child that the wire refuses fails its job: it would wait for it in vain."""
        shared = self._shared

        def open_queue(name: str) -> QueueProducer:
            return QueueProducer(shared.connection, name, shared.settings, now_ms=shared.now_ms)

        parent = Parent(self.name, leased.job.id)
        try:
            if child.opts or child.children:
                prefix = shared.settings.prefix
                root = flow_tree(
                    child_flow(child), child.queue, prefix, open_queue, "the child", parent
                )
                sent = add_flow(shared.connection, root, shared.settings, now_ms=shared.now_ms)
            else:
                options = BullJobOptions(job_id=child.job_id, parent=parent)
                job = NewBullJob(child.task, child.payload_json, options)
                sent = open_queue(child.queue).send(job)
        except RefusedError as error:
            self._refused_children[leased.job.id] = f"a child was refused: {error.message}"
            raise
        return self._child_added(leased, sent)

    async def _child_added(self, leased: LeasedJob, sent: Awaitable[object]) -> ReportAnswer:
        answer = await sent
        if answer is Refusal.HAS_PARENT:
            reason = "a child was refused: its id is that of a job with another parent"
            _log.warning(
                "child refused job_id=%(job_id)s reason=%(reason)s; the job fails",
                {"job_id": leased.job.id, "reason": reason},
            )
            self._refused_children[leased.job.id] = reason
        return ReportAnswer.LOST if answer is Refusal.NO_PARENT else ReportAnswer.WRITTEN

    # Settling

    def settle(self, batch: Sequence[tuple[LeasedJob, Outcome]], want: int) -> Awaitable[Settled]:
        """One script for all jobs that end, one for each other outcome and one for the next jobs,
        all in one write."""
        places: list[int] = []
        ends: list[End] = []
        others: list[tuple[int, Sent]] = []
        try:
            if self._refused_children:
                batch = [(leased, self._final(leased, outcome)) for leased, outcome in batch]
            for place, (leased, outcome) in enumerate(batch):
                end = end_of(leased, outcome, self._settings)
                if end is None:
                    others.append((place, self._send(leased, outcome)))
                else:
                    places.append(place)
                    ends.append(end)
            calls = [
                (places[part], self.consumer.settle(ends[part]))
                for part in settle_args.parts(ends, _BATCH)
            ]
            following = self.take(want) if want > 0 else _nothing()
        except ValkeyError as error:
            raise unavailable(error) from error
        self._settles += 1
        if self._blocked:
            self._unseen = True
            self._idle.resolve(True)
        return self._settled(batch, calls, others, following)

    async def _settled(
        self,
        batch: Sequence[tuple[LeasedJob, Outcome]],
        calls: Sequence[tuple[Sequence[int], Awaitable[Sequence[Ended]]]],
        others: Sequence[tuple[int, Sent]],
        following: Awaitable[list[LeasedJob]],
    ) -> Settled:
        answers = [SettleAnswer.SETTLED] * len(batch)
        failure: BackendUnavailable | None = None
        # All replies are awaited, whatever fails: a reply that is not read is a job forgotten.
        for place, answer in others:
            try:
                answers[place] = await answer
            except ValkeyError as error:
                failure = unavailable(error)
        for places, reply in calls:
            try:
                for place, ended in zip(places, await reply, strict=True):
                    if not isinstance(ended, SettledAttempt):
                        answers[place] = await self._not_settled(batch[place][0], ended)
            except ValkeyError as error:
                failure = unavailable(error)
        try:
            jobs = await following
        except BackendUnavailable as error:
            failure, jobs = error, []
        if failure is not None:
            raise failure
        return Settled(answers, jobs)

    async def _not_settled(self, leased: LeasedJob, answer: Refusal | ServerError) -> SettleAnswer:
        """A job whose children have not all succeeded cannot be completed: it fails."""
        job = cast(JobHash, leased.wire)
        if isinstance(answer, ServerError):
            _log.error(
                "the server refuses to end a job job_id=%(job_id)s error=%(error)s",
                {"job_id": job.id, "error": answer},
            )
            return SettleAnswer.REFUSED
        if answer is Refusal.PENDING_CHILDREN:
            failure = FailedAttempt("the job returned while children of it were pending")
        elif answer is Refusal.FAILED_CHILDREN:
            failure = FailedAttempt("the job returned although a child of it failed")
        else:
            return settle_answer(answer)
        return settle_answer(await self.consumer.fail(job, leased.token, failure))

    def _final(self, leased: LeasedJob, outcome: Outcome) -> Outcome:
        """A job whose child was refused cannot succeed."""
        reason = self._refused_children.pop(leased.job.id, "")
        if not reason or not isinstance(outcome, Done | WaitsForChildren):
            return outcome
        return Failed(JobError("bad_child", reason))

    def _send(self, leased: LeasedJob, outcome: Outcome) -> Sent:
        """Send an outcome that does not end the job."""
        consumer, job, token = self.consumer, cast(JobHash, leased.wire), leased.token
        match outcome:
            case RetryLater(after_s, error):
                delay_ms, failure = round(after_s * 1000), failure_of(error)
                if delay_ms > 0:
                    return _ended(consumer.delay(job, token, delay_ms, failure))
                return _ended(consumer.retry(job, token, failure))
            case Released():
                return _ended(consumer.release(job.id, token))
            case Postponed(until_ms):
                delay_ms = max(0, until_ms - self._shared.now_ms())
                return _ended(consumer.delay(job, token, delay_ms))
            case RateLimited(for_s):
                return self._limited(job, token, for_s)
            case WaitsForChildren():
                return self._waits(job, token, consumer.wait_for_children(job.id, token))
            case Done() | Failed() | Canceled():
                raise TypeError(f"{outcome!r} ends its job")

    def _limited(self, job: JobHash, token: str, for_s: float) -> Sent:
        """The limiter's key holds for all workers that have a limit; those without one ignore it,
        so this one also remembers it."""
        wait_ms = max(1, round(for_s * 1000))
        self._promote_ms = self._shared.now_ms()
        self._not_before_ms = self._promote_ms + wait_ms
        command = ("SET", self.keys.limiter, RATE_LIMITED, "PX", wait_ms)
        limiting = self._shared.connection.call(*command)
        return _ended(self.consumer.release(job.id, token), limiting)

    async def _waits(
        self, job: JobHash, token: str, answer: Awaitable[bool | Refusal]
    ) -> SettleAnswer:
        """Without a pending child the job runs again at once."""
        answered = await answer
        if answered is True:
            return SettleAnswer.SETTLED
        reason = self._refused_children.pop(JobId(job.id), "")
        if answered is False and reason:
            return settle_answer(await self.consumer.fail(job, token, FailedAttempt(reason)))
        if answered is False:
            return settle_answer(await self.consumer.release(job.id, token))
        if answered is Refusal.FAILED_CHILDREN:
            failure = FailedAttempt("a child of the job failed")
            return settle_answer(await self.consumer.fail(job, token, failure))
        return settle_answer(answered)

    # Leases, cancellation, maintenance

    async def renew(self, batch: Sequence[LeasedJob]) -> list[RenewAnswer]:
        """Renew locks on the connection of the event loop."""
        pairs = [(leased.job.id, str(leased.token)) for leased in batch]
        with raises_unavailable():
            answers = read_renewed(batch, await self.consumer.send_renewal(pairs))
        return [answers[leased.token] for leased in batch]

    def lease_renewer(self) -> BullLeaseRenewer:
        """Shared by all engines of the worker."""
        return self._shared.lease_renewer()

    def cancels(self) -> AsyncIterator[CancelRequest]:
        return self._shared.cancels()

    def maintenance(self) -> Sequence[MaintenanceTask]:
        """The stalled check (B-6); once per interval among all programs of the queue."""
        period_s = self._settings.stalled_interval_ms / 1000
        return [MaintenanceTask(f"stalled check of {self.name}", period_s, self._check_stalled)]

    async def _check_stalled(self) -> MaintenanceResult | None:
        with raises_unavailable():
            moved = await self.consumer.check_stalled()
        if moved:
            _log.warning(
                "stalled jobs requeued queue=%(queue)s jobs=%(jobs)s",
                {"queue": self.name, "jobs": len(moved)},
            )
        return MaintenanceResult(len(moved))


async def _ended(
    answer: Awaitable[SettledAttempt | Refusal], before: Awaitable[object] | None = None
) -> SettleAnswer:
    if before is not None:
        await before
    return settle_answer(await answer)


async def _nothing() -> list[LeasedJob]:
    return []


async def _dropped() -> ReportAnswer:
    return ReportAnswer.DROPPED


async def _reported(written: Awaitable[bool]) -> ReportAnswer:
    return ReportAnswer.WRITTEN if await written else ReportAnswer.LOST


async def _collected(sent: Sequence[Awaitable[ReportAnswer]]) -> list[ReportAnswer]:
    answers: list[ReportAnswer] = []
    failure: ValkeyError | None = None
    for answer in sent:
        try:
            answers.append(await answer)
        except ValkeyError as error:
            failure = error
    if failure is not None:
        raise unavailable(failure) from failure
    return answers
