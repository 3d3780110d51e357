"""The worker's side of BullMQ queues: implements the Engine protocol (B-2 … B-7, B-14 … B-17,
B-27).

One serves all queues of a worker on one server: a script takes jobs of many queues, and one ends
jobs of many. `queue_state` knows which of them may have jobs. Each method sends its scripts when
called, many in one write. It keeps no state of jobs besides the tokens of calls in flight, and of
running jobs by queue.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import groupby
from typing import Final, cast

import msgspec

from jobwire.job.engine import (
    NO_LIMITS,
    MaintenanceTask,
    MissingRequirements,
    Room,
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
    Restarted,
    RetryLater,
    SettleAnswer,
    Settled,
    Suspended,
    TaskDefinition,
    Token,
    WaitsForChildren,
)
from jobwire.job.states import State
from jobwire.systems.queues import settle_args
from jobwire.systems.queues.announcement import MOST_ANNOUNCED
from jobwire.systems.queues.children import child_flow, read_children
from jobwire.systems.queues.codec import BrokenQueue, JobHash, TakeAnswer, Took, number_of
from jobwire.systems.queues.consumer import BullConsumer, SettledAttempt, settle_in, take_from
from jobwire.systems.queues.contract import (
    RATE_LIMITED,
    RESERVED_KINDS,
    SETTLED_TTL_MS,
    Opt,
    Refusal,
)
from jobwire.systems.queues.flows import add_flow
from jobwire.systems.queues.lease_renewal import (
    BullLeaseRenewer,
    read_renewed,
    renewal_refused,
)
from jobwire.systems.queues.leased_jobs import end_of, failure_of, leased_job
from jobwire.systems.queues.new_jobs import flow_tree
from jobwire.systems.queues.options import BullJobOptions, Parent
from jobwire.systems.queues.queue import NewBullJob, QueueProducer
from jobwire.systems.queues.queue_state import QueueState, share_out
from jobwire.systems.queues.replies import (
    is_of_keys,
    raises_unavailable,
    settle_answer,
    unavailable,
)
from jobwire.systems.queues.reports import wire_report
from jobwire.systems.queues.settle_args import End, FailedAttempt
from jobwire.systems.queues.worker_connections import WorkerConnections
from jobwire.valkey import ServerError, ValkeyError

_log = logging.getLogger("jobwire.bullmq")

_SHORTEST_MS, _LONGEST_MS = 250, 5_000
"""How long a job is delayed whose handler is at its limit."""
_BATCH: Final = 100
"""Jobs that one script starts or ends: more would delay the calls of other clients."""

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

    def __init__(self, shared: WorkerConnections, *queues: str) -> None:
        self.name = queues[0] if len(queues) == 1 else f"{len(queues)} BullMQ queues"
        self.queues = queues
        self._shared = shared
        self._settings = shared.settings
        self.traits = replace(
            self.traits,
            any_progress=shared.settings.any_progress,
            max_result_bytes=shared.settings.max_result_bytes,
        )
        self._served = {name: QueueState(shared, name, self._on_change) for name in queues}
        self._slots = 1
        self._room: Mapping[str, int] = NO_LIMITS.queues
        """How many more jobs of a queue may be started; others are not limited."""
        self._is_registered = False
        self._waiter: asyncio.Future[bool] | None = None
        self._woken = False
        self._watches = False
        """Queues without jobs are watched, also while others have some."""
        self._refused_children: dict[tuple[str, JobId], str] = {}
        """Why a child of a running job, by queue and id, was not added. The answer may come after
        the job was released, which runs again at once."""
        self._in_flight: set[str] = set()
        """Tokens of takes whose answers have not arrived."""
        self._listings: list[set[str]] = []
        """For each `recover_orphans` in flight, the tokens that were in flight at any time since it
        was sent: the jobs of those takes are returned by those takes."""

    def unknown_task(self, leased: LeasedJob) -> Outcome:
        """The wire gives a job to any worker of its queue, so there is no other to leave it to."""
        job = leased.job
        reason = f"no worker of the queue {job.source!r} has a handler for {job.task!r}"
        return Failed(JobError("unknown_task", reason))

    def set_room(self, room: Room) -> None:
        self._room = room.queues

    def no_room(self, leased: LeasedJob) -> Outcome:
        """The wire cannot choose among the jobs of a queue: where handlers without a limit share
        it, such a job is delayed, each time for twice as long."""
        now_ms = self._shared.now_ms()
        waited_ms = now_ms - leased.job.created_ms
        return Postponed(now_ms + round(min(_LONGEST_MS, max(_SHORTEST_MS, waited_ms))))

    def _is_open(self, queue: QueueState) -> bool:
        """Whether any of its jobs may be started."""
        return self._room.get(queue.name, 1) > 0

    # Registering, waiting, deregistering

    async def register(
        self,
        tasks: Sequence[TaskDefinition],  # noqa: ARG002 - the wire has no record of tasks
        slots: int,
        missing_requirements: MissingRequirements = no_missing_requirements,  # noqa: ARG002
    ) -> None:
        """Connect, and become visible to `getWorkers`."""
        self._slots = slots
        await self._shared.register()
        self._is_registered = True
        announced = MOST_ANNOUNCED if self._settings.announce else 0
        for number, queue in enumerate(self._served.values()):
            await queue.open(announce=number < announced)
        if 0 < announced < len(self._served):
            _log.warning(
                "worker announced for some of its queues announced=%(announced)s "
                "others=%(others)s; getWorkers of those does not list it",
                {"announced": announced, "others": len(self._served) - announced},
            )

    def set_slots(self, slots: int) -> None:
        self._slots = slots

    async def wait(self, timeout_s: float, capacity: int = 1) -> bool:  # noqa: ARG002 - starts nothing
        """Wait until a queue's marker, a due time or a look tells of work."""
        if self._was_woken():
            return False
        self._watches = True
        for queue in self._served.values():
            queue.watch() if self._is_open(queue) else queue.unwatch()
        if not any(queue.is_ready and self._is_open(queue) for queue in self._served.values()):
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._waiter
            except TimeoutError:
                return False
            except ValkeyError as error:
                raise unavailable(error) from error
            finally:
                self._waiter = None
        return not self._was_woken()

    def _on_change(self, error: ValkeyError | None = None) -> None:
        """A queue may have a job, or the server does not answer."""
        if self._waiter is None or self._waiter.done():
            return
        if error is None:
            self._waiter.set_result(True)
        else:
            self._waiter.set_exception(error)

    def _was_woken(self) -> bool:
        woken, self._woken = self._woken, False
        return woken

    async def wake(self) -> None:
        self._woken = True
        self._watches = False
        for queue in self._served.values():
            queue.unwatch()
        self._on_change()

    async def deregister(self) -> None:
        """Release jobs whose start was answered into a broken connection, and leave."""
        if not self._is_registered:
            return
        tried: set[Token] = set()  # a release that the server refuses is not repeated
        try:
            while orphans := await self.recover_orphans(tried):
                tried.update(leased.token for leased in orphans)
                await self.settle([(leased, Released()) for leased in orphans], 0)
        finally:
            for queue in self._served.values():
                await queue.close()
            await self._shared.deregister()

    # Taking

    def take(self, limit: int) -> Awaitable[list[LeasedJob]]:
        """Start up to `limit` jobs of all queues that may have some, in one script."""
        limit = min(limit, _BATCH)
        now_ms = self._shared.now_ms()
        served = [queue for queue in self._served.values() if self._is_open(queue)]
        parts = share_out(served, limit, self._slots, now_ms)
        if not parts:
            return _nothing()
        left = limit
        for queue, part in parts:  # those behind it are first the next time
            if left <= 0:
                break  # there is no token for it
            left -= max(1, part)
            self._served[queue.name] = self._served.pop(queue.name)
        tokens = self._shared.new_tokens(limit)
        for known in (self._in_flight, *self._listings):
            known.update(tokens)
        settles = [queue.settles for queue, _ in parts]
        try:
            answers = take_from(
                [
                    (queue.consumer, part, queue.hold_ms(now_ms), self._room.get(queue.name, limit))
                    for queue, part in parts
                ],
                tokens,
            )
        except ValkeyError as error:
            self._in_flight.difference_update(tokens)
            raise unavailable(error) from error
        return self._taken(answers, [queue for queue, _ in parts], tokens, settles)

    async def _taken(
        self,
        answers: Awaitable[list[list[TakeAnswer]]],
        queues: Sequence[QueueState],
        tokens: Sequence[str],
        settles: Sequence[int],
    ) -> list[LeasedJob]:
        try:
            found = await answers
        except ServerError as error:
            if not await self._set_refused_aside(queues):
                raise unavailable(error) from error
            return []
        except ValkeyError as error:
            raise unavailable(error) from error
        finally:
            self._in_flight.difference_update(tokens)
        jobs: list[LeasedJob] = []
        for queue, own, settled in zip(queues, found, settles, strict=True):
            for answer in own:
                if isinstance(answer, Took):
                    token = tokens[answer.number]
                    queue.held.add(token)
                    jobs.append(leased_job(answer.job, token, queue.name, self._settings))
            queue.answered(own, settled)
            if self._watches:
                queue.watch()
        return jobs

    async def _set_refused_aside(self, queues: Sequence[QueueState]) -> bool:
        """After a script was refused as a whole: whether the reason is in some of its queues, as by
        access rules of the server. The others need not wait for them."""
        call = self._shared.connection.call
        answers = await asyncio.gather(
            *(call("EXISTS", queue.keys.meta) for queue in queues), return_exceptions=True
        )
        refused = [
            (queue, answer)
            for queue, answer in zip(queues, answers, strict=True)
            if isinstance(answer, ServerError)
        ]
        if not 0 < len(refused) < len(self._served):
            return False
        for queue, answer in refused:
            queue.answered([BrokenQueue(str(answer))], queue.settles)
            if self._watches:
                queue.watch()
        return True

    async def recover_orphans(self, known: Set[Token], idle_s: float = 0.0) -> list[LeasedJob]:
        """Active jobs whose lock is one of this worker's and that the worker does not know (B-15).
        A job that was not renewed for a whole lock time is left to the stalled check."""
        others = set(self._in_flight)
        self._listings.append(others)
        queues = [*self._served.values()]
        try:
            found = await asyncio.gather(
                *(self._find_orphans(queue, known, round(idle_s * 1000)) for queue in queues)
            )
        finally:
            self._listings.remove(others)
        for queue in queues:
            queue.held &= known | others
        return [
            leased_job(job, token, queue.name, self._settings)
            for queue, rows in zip(queues, found, strict=True)
            for token, job in rows
            if token not in others
        ]

    async def _find_orphans(
        self, queue: QueueState, known: Set[Token], idle_ms: int
    ) -> list[tuple[str, JobHash]]:
        try:
            return await queue.consumer.recover(self._shared.token_prefix, known, idle_ms)
        except ServerError as error:
            if len(self._served) == 1:
                raise unavailable(error) from error
            # The other queues need not wait until its keys are repaired.
            _log.error(
                "orphans cannot be found queue=%(queue)s error=%(error)s",
                {"queue": queue.name, "error": error},
            )
            return []
        except ValkeyError as error:
            raise unavailable(error) from error

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
        written = self._consumer(leased).report(
            job.id,
            leased.token,
            *wire_report(report, self._settings),
            keep_logs=kept or self._settings.max_log_lines,
        )
        return _reported(written)

    async def children(self, leased: LeasedJob) -> Children:
        with raises_unavailable():
            key = self._queue(leased).keys.job(leased.job.id)
            return await read_children(self._shared.connection, key)

    def _queue(self, leased: LeasedJob) -> QueueState:
        return self._served[leased.job.source]

    def _consumer(self, leased: LeasedJob) -> BullConsumer:
        return self._served[leased.job.source].consumer

    async def read_record(self, leased: LeasedJob) -> JobRecord:  # noqa: ARG002 - of the protocol
        """There is none: the wire has no place for it (D-18)."""
        return NO_RECORD

    def _add_child(self, leased: LeasedJob, child: ChildRequest) -> Awaitable[ReportAnswer]:
        """A child that the wire refuses fails its job: it would wait for it in vain."""
        shared = self._shared

        def open_queue(name: str) -> QueueProducer:
            return QueueProducer(shared.connection, name, shared.settings, now_ms=shared.now_ms)

        parent = Parent(leased.job.source, leased.job.id)
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
            reason = f"a child was refused: {error.message}"
            self._refused_children[leased.job.source, leased.job.id] = reason
            raise
        return self._child_added(leased, sent)

    async def _child_added(self, leased: LeasedJob, sent: Awaitable[object]) -> ReportAnswer:
        try:
            answer = await sent
        except ServerError as error:
            if not is_of_keys(error):
                raise
            self._refuse_child(leased, f"a child was refused: {error}")
            return ReportAnswer.WRITTEN
        if answer is Refusal.HAS_PARENT:
            reason = "a child was refused: its id is that of a job with another parent"
            self._refuse_child(leased, reason)
        return ReportAnswer.LOST if answer is Refusal.NO_PARENT else ReportAnswer.WRITTEN

    def _refuse_child(self, leased: LeasedJob, reason: str) -> None:
        _log.warning(
            "child refused job_id=%(job_id)s reason=%(reason)s; the job fails",
            {"job_id": leased.job.id, "reason": reason},
        )
        self._refused_children[leased.job.source, leased.job.id] = reason

    # Settling

    def settle(self, batch: Sequence[tuple[LeasedJob, Outcome]], want: int) -> Awaitable[Settled]:
        """One script for all jobs that end, one for each other outcome and one for the next jobs,
        all in one write."""
        ended: list[tuple[str, int, End]] = []
        others: list[tuple[int, Sent]] = []
        queues: set[QueueState] = set()
        try:
            if self._refused_children:
                batch = [(leased, self._final(leased, outcome)) for leased, outcome in batch]
            for place, (leased, outcome) in enumerate(batch):
                end = end_of(leased, outcome, self._settings)
                queue = self._queue(leased)
                queues.add(queue)
                queue.held.discard(leased.token)
                if end is None:
                    others.append((place, self._send(leased, outcome)))
                else:
                    ended.append((queue.name, place, end))
            calls = self._send_ends(ended)
            for queue in queues:
                queue.settled()
            following = self.take(want) if want > 0 else _nothing()
        except ValkeyError as error:
            raise unavailable(error) from error
        return self._settled(batch, calls, others, following)

    def _send_ends(
        self, ended: Sequence[tuple[str, int, End]]
    ) -> list[tuple[Sequence[int], Awaitable[Sequence[Ended]]]]:
        """In parts: the places in the batch, and the answers."""
        ended = sorted(ended, key=lambda each: each[0])
        calls: list[tuple[Sequence[int], Awaitable[Sequence[Ended]]]] = []
        for part in settle_args.parts([end for _, _, end in ended], _BATCH):
            own = ended[part]
            ends = [(self._served[name].consumer, end) for name, _, end in own]
            calls.append(([place for _, place, _ in own], self._ended(ends, settle_in(ends))))
        return calls

    async def _ended(
        self, ends: Sequence[tuple[BullConsumer, End]], sent: Awaitable[Sequence[Ended]]
    ) -> Sequence[Ended]:
        """The answers. Where the server refuses the script because of one queue, the jobs of each
        queue end in a script of their own."""
        try:
            return await sent
        except ServerError as error:
            if not is_of_keys(error):
                raise
            refused = error
        queues = [[*own] for _, own in groupby(ends, key=lambda each: each[0].keys.queue)]
        if len(queues) == 1:
            return [refused] * len(ends)
        parts = [self._ended(own, settle_in(own)) for own in queues]
        return [each for part in await asyncio.gather(*parts) for each in part]

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
                answers[place] = await _unless_refused(batch[place][0], answer)
            except ValkeyError as error:
                failure = unavailable(error)
        for places, reply in calls:
            try:
                for place, ended in zip(places, await reply, strict=True):
                    if not isinstance(ended, SettledAttempt):
                        leased = batch[place][0]
                        not_settled = self._not_settled(leased, ended)
                        answers[place] = await _unless_refused(leased, not_settled)
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
            return _refused(leased, answer)
        if answer is Refusal.PENDING_CHILDREN:
            failure = FailedAttempt("the job returned while children of it were pending")
        elif answer is Refusal.FAILED_CHILDREN:
            failure = FailedAttempt("the job returned although a child of it failed")
        else:
            return settle_answer(answer)
        return settle_answer(await self._consumer(leased).fail(job, leased.token, failure))

    def _final(self, leased: LeasedJob, outcome: Outcome) -> Outcome:
        """A job whose child was refused cannot succeed."""
        reason = self._refused_children.pop((leased.job.source, leased.job.id), "")
        if not reason or not isinstance(outcome, Done | WaitsForChildren):
            return outcome
        return Failed(JobError("bad_child", reason))

    def _send(self, leased: LeasedJob, outcome: Outcome) -> Sent:
        """Send an outcome that does not end the job."""
        consumer, job, token = self._consumer(leased), cast(JobHash, leased.wire), leased.token
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
                return self._limited(leased, for_s)
            case WaitsForChildren():
                return self._waits(leased, consumer.wait_for_children(job.id, token))
            case Done() | Failed() | Canceled():
                raise TypeError(f"{outcome!r} ends its job")
            case Suspended() | Restarted():
                # No handler can declare these on this wire: the worker refuses to start.
                raise TypeError(f"the wire has no {type(outcome).__name__}")

    def _limited(self, leased: LeasedJob, for_s: float) -> Sent:
        """The limiter's key holds for all workers that have a limit; those without one ignore it,
        so this one also remembers it."""
        wait_ms = max(1, round(for_s * 1000))
        queue = self._queue(leased)
        queue.hold(wait_ms)
        command = ("SET", queue.keys.limiter, RATE_LIMITED, "PX", wait_ms)
        limiting = self._shared.connection.call(*command)
        return _ended(queue.consumer.release(leased.job.id, leased.token), limiting)

    async def _waits(self, leased: LeasedJob, answer: Awaitable[bool | Refusal]) -> SettleAnswer:
        """Without a pending child the job runs again at once."""
        consumer, job, token = self._consumer(leased), cast(JobHash, leased.wire), leased.token
        answered = await answer
        if answered is True:
            return SettleAnswer.SETTLED
        reason = self._refused_children.pop((leased.job.source, leased.job.id), "")
        if answered is False and reason:
            return settle_answer(await consumer.fail(job, token, FailedAttempt(reason)))
        if answered is False:
            return settle_answer(await consumer.release(job.id, token))
        if answered is Refusal.FAILED_CHILDREN:
            failure = FailedAttempt("a child of the job failed")
            return settle_answer(await consumer.fail(job, token, failure))
        return settle_answer(answered)

    # Leases, cancellation, maintenance

    async def renew(self, batch: Sequence[LeasedJob]) -> list[RenewAnswer]:
        """Renew locks on the connection of the event loop."""
        jobs: dict[str, list[LeasedJob]] = {}
        for leased in batch:
            jobs.setdefault(leased.job.source, []).append(leased)
        answers: dict[str, RenewAnswer] = {}
        with raises_unavailable():
            sent = [
                (name, self._served[name].consumer.send_renewal([(e.job.id, e.token) for e in own]))
                for name, own in jobs.items()
            ]
            for name, reply in sent:
                try:
                    answers |= read_renewed(jobs[name], await reply)
                except ServerError as error:
                    answers |= renewal_refused(name, jobs[name], error)
        return [answers[leased.token] for leased in batch]

    def lease_renewer(self) -> BullLeaseRenewer:
        """Shared by all engines of the worker."""
        return self._shared.lease_renewer()

    def cancels(self) -> AsyncIterator[CancelRequest]:
        return self._shared.cancels()

    def maintenance(self) -> Sequence[MaintenanceTask]:
        """The stalled check (B-6); once per interval among all programs of the queue."""
        period_s = self._settings.stalled_interval_ms / 1000
        return [
            MaintenanceTask(f"stalled check of {name}", period_s, queue.check_stalled)
            for name, queue in self._served.items()
        ]


async def _ended(
    answer: Awaitable[SettledAttempt | Refusal], before: Awaitable[object] | None = None
) -> SettleAnswer:
    if before is not None:
        _, answered = await asyncio.gather(before, answer)
        return settle_answer(answered)
    return settle_answer(await answer)


async def _unless_refused(leased: LeasedJob, answer: Sent) -> SettleAnswer:
    """The answer; the job is kept where the server refuses the keys of its queue."""
    try:
        return await answer
    except ServerError as error:
        if not is_of_keys(error):
            raise
        return _refused(leased, error)


def _refused(leased: LeasedJob, error: ServerError) -> SettleAnswer:
    _log.error(
        "the server refuses to end a job queue=%(queue)s job_id=%(job_id)s error=%(error)s",
        {"queue": leased.job.source, "job_id": leased.job.id, "error": error},
    )
    return SettleAnswer.REFUSED


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
            if is_of_keys(error):
                _log.error("report dropped error=%(error)s", {"error": error})
                answers.append(ReportAnswer.DROPPED)
            else:
                failure = error
    if failure is not None:
        raise unavailable(failure) from failure
    return answers
