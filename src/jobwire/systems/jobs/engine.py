"""The worker's side of the Streams wire: implements the Engine protocol (J-30 … J-40).

A queue loop has one, which serves all queues of a worker (J-53). Each method runs one script for a
whole batch, sent when called; nothing here creates a task, blocks the shared socket, or repeats a
call that may have been executed.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import Final, cast

from jobwire.job.engine import (
    NO_LIMITS,
    MaintenanceTask,
    MissingRequirements,
    Room,
    StepRules,
    Traits,
    no_missing_requirements,
)
from jobwire.job.errors import BackendUnavailable, ContractError
from jobwire.job.ids import random_fraction
from jobwire.job.messages import (
    NO_CHILDREN,
    CancelRequest,
    Children,
    JobRecord,
    LeasedJob,
    Outcome,
    Released,
    RenewAnswer,
    Report,
    ReportAnswer,
    ServedQueue,
    SettleAnswer,
    Settled,
    TaskDefinition,
    Token,
)
from jobwire.systems.jobs import contract, settle_args
from jobwire.systems.jobs.blocking_reader import BlockingReader
from jobwire.systems.jobs.codec import json_or_text, number, read_child
from jobwire.systems.jobs.consumer_names import expire_leases, new_consumer
from jobwire.systems.jobs.contract import RecordField, StreamsKeys
from jobwire.systems.jobs.entries import entry_name, read_leased, split_name
from jobwire.systems.jobs.lease_renewal import (
    RENEW_LEASE,
    StreamsLeaseRenewer,
    read_renewed,
    renew_args,
)
from jobwire.systems.jobs.maintenance import StreamsMaintenance
from jobwire.systems.jobs.own_registration import OwnRegistration
from jobwire.systems.jobs.replies import LazyReply, backend_unavailable, collect, server_ms
from jobwire.systems.jobs.scripts import SCRIPTS, script
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.systems.jobs.shared_cancels import SharedCancels
from jobwire.valkey import Arg, Connection, Reply, Script, ServerError, ValkeyError
from jobwire.valkey.stream_ids import START, read_position

_log = logging.getLogger("jobwire.streams")

_TAKE: Final = script("take")
_RECLAIM: Final = script("reclaim")
_RECOVER_ORPHANS: Final = script("recover_orphans")
_RELEASE: Final = script("release")
_DEREGISTER: Final = script("deregister")

_BATCH: Final = 500
"""Jobs in one script: more would delay the calls of other clients."""
_REFUSED: Final = "refused"
"""Reason for an entry that was not started and stays pending."""
_RETURNED: Final = "returned"
"""Reason for an entry that was read beyond the limit or of a paused queue, and is queued again."""
_WRONG_TYPE: Final = "WRONGTYPE"
_FULL: Final = "OOM"
"""Error code of a server that has reached its `maxmemory`."""
_SCAN_LIMIT: Final = 100
"""Pending entries that one reclaim reads."""
_YIELD_S: Final = 10.0
"""How long this worker lets others go first after it put a job with an unknown task back (J-37):
the server gives a new entry to the reader that has blocked longest, so the waits become short."""
_YIELD_WAIT_S: Final = 0.1
# Random (J-33). One per call: the script appends the entry for each job.
_new_token: Final = partial(secrets.token_hex, 16)


_TRAITS: Final = Traits(
    uses=frozenset({"durable"}),
    prefetches=True,
    takes_turns=True,
    catch_all=False,
    shares_handlers=True,
    on_failure=True,
)


class StreamsEngine:
    name: str = "jobs"
    wire: str = "streams"
    # The script that takes jobs gets the worker's tasks by name, so there is no catch-all.
    traits = _TRAITS
    reserved_kinds = contract.RESERVED_KINDS

    def __init__(
        self,
        connection: Connection,
        settings: StreamsSettings | None = None,
        *,
        consumer: str | None = None,
        queues: Sequence[str] = (contract.DEFAULT_QUEUE,),
        task_queues: Mapping[str, str] | None = None,
        former_queue: str = "",
        replaces_pid: int | None = None,
        before_register: Callable[[], Awaitable[None]] | None = None,
        shared_cancels: SharedCancels | None = None,
    ) -> None:
        """It reads `queues`, and `former_queue` if there is one when it registers; `task_queues`
        has the queue in which jobs of a task are enqueued, if it is not the default one. Leases of
        the dead process `replaces_pid` expire at once. `shared_cancels` reads the cancel requests
        of several engines."""
        self._before_register = before_register
        self._shared_cancels = shared_cancels
        self._is_registered_only = False
        self._replaces_pid = replaces_pid
        self._must_reclaim = self._has_joined = False
        self._former_queue = former_queue
        self.queues = tuple(queues)
        self._task_queues = task_queues or {}
        self.settings = settings or StreamsSettings()
        self.keys = StreamsKeys(self.settings.key_prefix)
        if self.settings.shard:
            self.name = f"jobs, shard {self.settings.shard}"
        if shared_cancels is not None:
            shared_cancels.add(self.keys.control)
        self.traits = replace(_TRAITS, steps=_step_rules(self.settings))
        self.consumer = consumer or new_consumer()
        self._connection = connection
        self._declared = (self.keys.queue,)
        self._head = settle_args.head(self.settings, self.consumer)
        self._tasks: tuple[Arg, ...] = ()
        self._definitions: Sequence[TaskDefinition] = ()
        self._missing_requirements = no_missing_requirements
        grace_ms = round(self.settings.unknown_task_grace_s * 1000)
        self._unknown = (
            grace_ms if self.settings.end_unknown_tasks else -1,
            round(self.settings.foreign_idle_s * 1000),
        )
        """After how many ms a job whose task no worker has is ended (-1: never), and a foreign
        consumer is gone."""
        self._reader = BlockingReader(connection, self.keys, self.queues, self.consumer)
        self._registration = OwnRegistration(self.settings, self.consumer)
        self._maintenance = StreamsMaintenance(
            connection,
            self.settings,
            self.consumer,
            self._registration,
            self._reclaim_if_idle,
            self._pause,
        )
        self._in_flight: set[str] = set()
        """Tokens of calls whose replies have not arrived, and of started jobs waiting for them."""
        self._listings: dict[str, set[str]] = {}
        """For each `recover_orphans` in flight the tokens of calls that were in flight at any time
        since it was sent: the jobs of those calls are returned by those calls (R-5)."""
        self._prefetched: list[LeasedJob] = []
        """Jobs that a wait has started, for the next take."""
        self._prefetched_all = False
        """The queues held no more than these."""
        self._last = dict.fromkeys(self.queues, START)
        """The last entry of each queue that this worker received, and started or dropped."""
        self._first_queue = 0
        """With which queue the next take begins: each has its turn."""
        self._paused: frozenset[str] = frozenset()
        """Those of its queues that are paused, as last read."""
        self._room: Mapping[str, int] = NO_LIMITS.tasks
        """How many more jobs of a task may be started; others are not limited."""
        self._queue_room: Mapping[str, int] = {}
        """The same of queues in which all tasks are limited."""
        self._closed: frozenset[str] = frozenset()
        """Those of them without room: they are not read."""
        self._yielding_until_s = 0.0
        self._cursors = dict.fromkeys(self.queues, "-")
        self._reclaim_at_s = 0.0

    def unknown_task(self, leased: LeasedJob) -> Outcome:  # noqa: ARG002 - of the protocol
        """`take` puts jobs off whose task this worker lacks (J-37); others may have come by
        `recover_orphans`, and go back to the queue in the same way."""
        return Released()

    def set_room(self, room: Room) -> None:
        """A queue of which nothing may be started is not read. Where other tasks share the queue,
        jobs beyond the room are put off (J-37)."""
        if self._is_registered_only:
            return
        self._room = room.tasks
        tasks_of: dict[str, list[str]] = {}
        for task in self._tasks:
            name = cast(str, task)
            tasks_of.setdefault(self._task_queues.get(name, contract.DEFAULT_QUEUE), []).append(
                name
            )
        self._queue_room = {
            queue: sum(self._room[task] for task in tasks_of[queue])
            for queue in self.queues
            if tasks_of.get(queue) and self._room.keys() >= set(tasks_of[queue])
        }
        self._closed = frozenset(queue for queue, free in self._queue_room.items() if not free)
        self._reader.pause(self._paused | self._closed)

    def no_room(self, leased: LeasedJob) -> Outcome:  # noqa: ARG002 - of the protocol
        """It was offered to two calls: other workers get it."""
        return Released()

    # Registering, waiting, deregistering

    async def register(
        self,
        tasks: Sequence[TaskDefinition],
        slots: int,
        missing_requirements: MissingRequirements = no_missing_requirements,
    ) -> None:
        """Join the group and publish a registration with `tasks`. A shard that is silent or refuses
        writes is joined by a later `wait`, unless it is the first."""
        self._tasks = tuple(task.name for task in tasks)
        self._definitions, self._missing_requirements = tasks, missing_requirements
        self._registration.set_slots(slots)
        self._fill_registration()
        try:
            # Loaded before the first call, so that a settle never overtakes a report.
            await self._connection.load_scripts(SCRIPTS.values())
        except ValkeyError as error:
            raise backend_unavailable(error) from error
        if self._before_register is not None:
            await self._before_register()
        if not self.settings.shard:
            await self._join()
        elif self._connection.connected:
            with contextlib.suppress(BackendUnavailable):  # the first `wait` reports it
                await self._join()

    async def _join(self) -> None:
        await self._join_former_queue()
        await self._reader.make_groups()
        if self._replaces_pid is not None:
            pid = self._replaces_pid
            self._must_reclaim = await expire_leases(self._connection, self.settings, pid) > 0
        await self._maintenance.heartbeat()
        self._has_joined = True

    def _fill_registration(self) -> None:
        self._registration.fill(
            self._definitions, self._missing_requirements, self.queues, self._task_queues
        )

    def set_slots(self, slots: int) -> None:
        self._registration.set_slots(slots)

    async def _join_former_queue(self) -> None:
        """J-53: it is read while it exists; the janitor removes a queue that is not used."""
        former = self._former_queue
        if self._is_registered_only or not former or former in self.queues:
            return
        (exists,) = await collect([self._connection.call("SISMEMBER", self.keys.queues, former)])
        if exists:
            self.queues = (*self.queues, former)
            self._reader = BlockingReader(self._connection, self.keys, self.queues, self.consumer)
            self._last[former], self._cursors[former] = START, "-"
            self._fill_registration()

    def describe_process(self, served: Sequence[ServedQueue]) -> None:
        """Name the queues of all wires in the registration. Before `register`."""
        self._registration.describe_process(served)

    def only_register(self) -> None:
        """Take no jobs: the worker reads other shards, and is registered in this one (G-4)."""
        self._is_registered_only = True
        self._reader.pause(self.queues)

    async def make_groups(self) -> None:
        """Create the consumer groups that are missing (J-30)."""
        await self._reader.make_groups()

    async def wait(self, timeout_s: float, capacity: int = 1) -> bool:
        """Wait until there is a job to take or to reclaim. A fetched entry is started at once, by a
        take that is pipelined behind the blocking read. Without `capacity` nothing is fetched."""
        if not self._has_joined:
            await self._join()
        if self._prefetched or self._must_reclaim:
            self._must_reclaim = False
            return True
        if not capacity:
            return await self._reader.watch(timeout_s)
        now_s = asyncio.get_running_loop().time()
        if now_s < self._yielding_until_s:
            timeout_s = min(timeout_s, _YIELD_WAIT_S * (0.2 + random_fraction()))
        token = _new_token()
        args = self._take_args(capacity, token, behind_read=True)
        self._issued(token)
        try:
            call = ("EVALSHA", _TAKE.sha, len(self._declared), *self._declared, *args)
            is_ready, answer = await self._reader.wait(timeout_s, call)
        finally:
            self._in_flight.discard(token)
        if answer is not None:
            self._prefetched = self._read(answer)
            self._prefetched_all = len(self._prefetched) < capacity
            dropped = cast("tuple[Reply, list[str]]", answer)[1]
            started = (_entry_name(leased) for leased in self._prefetched)
            self._reader.mark_handled({*started, *dropped[1::3]})
            if self._reader.fetched:
                self._yielding_until_s = now_s + _YIELD_S  # its task is unknown: it was put back
        return is_ready or bool(self._prefetched)

    async def wake(self) -> None:
        """Make a `wait` return now; a fetched entry stays for `take` or `deregister`."""
        await self._reader.wake()

    async def deregister(self) -> None:
        """Release what is still pending under this consumer, and remove the registration."""
        self._registration.withdraw()
        self._prefetched = []  # recovered and released below
        args: list[Arg] = [*self._head]
        for fetched in self._reader.take_fetched():
            args += settle_args.select_queue_args(fetched.queue, 3)
            args += (fetched.job_id, fetched.entry, "")
        if len(args) > len(self._head):
            await collect([self._run(_RELEASE, args)])
        # Jobs that were started and whose replies were lost with a connection.
        while orphans := await self._orphans(frozenset(), 0.0, leaving=True):
            await self.settle([(leased, Released()) for leased in orphans], 0)
        await collect([self._run(_DEREGISTER, [self.consumer, *self.queues])])

    # Taking

    def take(self, limit: int) -> Awaitable[list[LeasedJob]]:
        """Start up to `limit` jobs; once per third of a lease, expired leases first (J-34)."""
        if self._is_registered_only:
            return _no_jobs()
        if self._prefetched:
            prefetched, self._prefetched = self._prefetched[:limit], self._prefetched[limit:]
            rest = 0 if self._prefetched_all else limit - len(prefetched)
            return self._joined(prefetched, self._take(rest) if rest else None)
        now_s = asyncio.get_running_loop().time()
        if now_s < self._reclaim_at_s or self._reader.fetched:
            return self._take(limit)
        self._reclaim_at_s = now_s + self.settings.lease_s / 3
        return self._take_reclaimed(self._reclaim(limit), limit)

    def _take(self, limit: int) -> Awaitable[list[LeasedJob]]:
        fetched = self._reader.take_fetched()
        token = _new_token()
        args = self._take_args(limit, token, behind_read=False)
        for entry in fetched:
            args += ("", entry.queue, "")
            args += (entry.entry, entry.job_id, entry.task)
        payloads = {entry.name: entry.payload for entry in fetched}
        return LazyReply(self._start(_TAKE, args, token), lambda reply: self._read(reply, payloads))

    def _take_args(self, limit: int, token: str, *, behind_read: bool) -> list[Arg]:
        head = (*self._head, min(limit, _BATCH), token, contract.CONSUMER_PREFIX)
        queues = self.queues
        if self._closed:
            queues = [each for each in queues if each not in self._closed] or queues[:1]
        count = len(queues)
        args = [*head, *self._unknown, len(self._tasks), count, len(self._room), *self._tasks]
        for limited in self._room.items():
            args += limited
        self._first_queue = (self._first_queue + 1) % count if count > 1 else 0
        for at in range(self._first_queue - count, self._first_queue):
            queue = queues[at]
            most = self._queue_room.get(queue, "") if self._queue_room else ""
            args += (queue, self._last[queue].id if behind_read else "", most)
        return args

    def _reclaim(self, limit: int) -> Awaitable[Reply]:
        token = _new_token()
        terms = settle_args.reclaim_terms(self.settings, late_s=0.0)
        args = [*self._head, min(limit, _BATCH), token, *terms, _SCAN_LIMIT]
        args += (settle_args.reconnected(self._connection, self.settings), 0, "only")
        for queue_and_cursor in self._cursors.items():
            args += queue_and_cursor
        return self._start(_RECLAIM, args, token)

    async def _take_reclaimed(self, reply: Awaitable[Reply], limit: int) -> list[LeasedJob]:
        (answer,) = await collect([reply])
        cursors, started, dropped, _ = cast(
            "tuple[list[str], list[Reply], list[Reply], int]", answer
        )
        self._cursors.update(zip(cursors[::2], cursors[1::2], strict=True))
        jobs = self._read_started(started, cast("list[str]", dropped))
        if any(cursor != "-" for cursor in cursors[1::2]):
            self.reclaim_soon()
        if jobs:
            _log.info(
                "leases of other workers expired jobs=%(jobs)s; running them here",
                {"jobs": len(jobs)},
            )
        if len(jobs) >= limit:
            return jobs
        return await self._joined(jobs, self._take(limit - len(jobs)))

    def _joined(
        self, jobs: list[LeasedJob], rest: Awaitable[list[LeasedJob]] | None
    ) -> Awaitable[list[LeasedJob]]:
        """Started jobs, and those of a call in flight. Until all are returned to the worker no
        listing may return them as well (R-5)."""
        tokens = [leased.token for leased in jobs]
        for token in tokens:
            self._issued(token)

        async def joined() -> list[LeasedJob]:
            try:
                return jobs if rest is None else [*jobs, *await rest]
            finally:
                self._in_flight.difference_update(tokens)

        return joined()

    def reclaim_soon(self) -> None:
        """Make the next take reclaim, whenever the last one did."""
        self._reclaim_at_s = 0.0

    async def _reclaim_if_idle(self) -> None:
        """Wake a worker that waits with a free slot, so that it reclaims."""
        self.reclaim_soon()
        await self._reader.wake_if_idle()

    async def children(self, leased: LeasedJob) -> Children:  # noqa: ARG002 - of the protocol
        """There are none: no job waits for others here."""
        return NO_CHILDREN

    async def read_record(self, leased: LeasedJob) -> JobRecord:
        """The record of a job, and the attempt of its latest result (D-3)."""
        job_id, call = leased.job.id, self._connection.call
        calls = [
            call("HGETALL", self.keys.steps(job_id)),
            call("HGET", self.keys.job(job_id), contract.Extra.PROGRESS_ATTEMPT),
            call("TIME"),
        ]
        try:
            reply, attempt, time = await collect(calls)
            fields = await self._with_kept_results(cast("dict[str, str]", reply))
        except BackendUnavailable as error:
            cause = error.__cause__
            if isinstance(cause, ServerError) and cause.code == _WRONG_TYPE:
                raise ContractError("the job's record is unreadable", clause="D-3") from error
            raise
        progress = number(cast("str | None", attempt)) or 1
        return JobRecord(fields, progress, server_ms(time))

    async def _with_kept_results(self, fields: dict[str, str]) -> dict[str, str]:
        """The record with the results of children that were too large for it (D-15)."""
        kept = [name for name in fields if name.startswith(RecordField.ENDED_CHILD)]
        kept = [
            name for name in kept if fields[name].endswith('"]') and fields[name].count(",") == 1
        ]
        children = [read_child(fields, name) for name in kept]
        field = (contract.Field.RESULT, contract.Field.ERROR)
        calls = [self._connection.call("HMGET", self.keys.job(id_), *field) for id_ in children]
        for name, values in zip(kept, await collect(calls, none_if_refused=True), strict=True):
            result, error = cast("list[str | None] | None", values) or (None, None)
            if (content := error or result) is not None:
                text = json_or_text(content).decode()
                fields[name] = f"{fields[name][:-1]},{text}]"
        return fields

    def _queue_of(self, task: str) -> str:
        """The queue of a task, if this worker knows it: as a gateway routes it (J-53)."""
        if task in contract.SOURCE_TASKS or task in self.settings.tasks:
            return contract.DEFAULT_QUEUE
        return self._task_queues.get(task, "")

    async def recover_orphans(self, known: Set[Token], idle_s: float = 0.0) -> list[LeasedJob]:
        """Jobs that are pending under this consumer and unknown to the worker (J-30)."""
        return await self._orphans(known, idle_s, leaving=False)

    async def _orphans(self, known: Set[Token], idle_s: float, *, leaving: bool) -> list[LeasedJob]:
        token = _new_token()
        unstarted = [fetched.name for fetched in self._reader.fetched]
        unstarted += [leased.token for leased in self._prefetched]
        args = [*self._head, _BATCH, token, round(idle_s * 1000), int(leaving)]
        args += (len(self.queues), *self.queues, *known, *unstarted)
        others = set(self._in_flight)
        listing = self._start(_RECOVER_ORPHANS, args, token)
        self._listings[token] = others
        try:
            (reply,) = await collect([listing])
        finally:
            del self._listings[token]
        awaited = tuple(others)
        return [
            leased
            for leased in self._read_started(*cast("tuple[list[Reply], list[str]]", reply))
            if leased.token not in known and not leased.token.startswith(awaited)
        ]

    def _read(self, reply: Reply, payloads: Mapping[str, str] | None = None) -> list[LeasedJob]:
        """The jobs that a take has started, and which of the queues are paused."""
        started, dropped, *paused = cast(
            "tuple[list[Reply], list[str], *tuple[list[str], ...]]", reply
        )
        if paused or self._paused:
            # The script looks at the queues that are read.
            self._pause((*(paused[0] if paused else ()), *(self._paused & self._closed)))
        return self._read_started(started, dropped, payloads)

    def _read_started(
        self,
        started: Sequence[Reply],
        dropped: Sequence[str],
        payloads: Mapping[str, str] | None = None,
    ) -> list[LeasedJob]:
        """The jobs that a script has started; dropped entries are logged."""
        for at in range(0, len(dropped), 3):
            reason, entry, job_id = dropped[at : at + 3]
            if reason == _REFUSED:
                _log.error(
                    "server refused to start a job job_id=%(job_id)s; will retry later",
                    {"job_id": job_id},
                )
            elif reason == _RETURNED:
                _log.debug(
                    "queue entry returned entry_id=%(entry_id)s job_id=%(job_id)s",
                    {"entry_id": entry, "job_id": job_id},
                )
            else:
                _log.info(
                    "queue entry dropped entry_id=%(entry_id)s job_id=%(job_id)s reason=%(reason)s",
                    {"entry_id": entry, "job_id": job_id, "reason": reason},
                )
        jobs = [read_leased(row, payloads or {}) for row in started]
        # In each queue they are in the order of their entries.
        several = len(self.queues) > 1
        for leased in jobs if several else jobs[-1:]:
            self._note_last(leased.job.source, cast(str, leased.wire))
        for name in dropped[1::3] if several else dropped[-2:-1]:
            self._note_last(*split_name(name))
        return jobs

    def _note_last(self, queue: str, entry: str) -> None:
        self._last[queue] = max(self._last.get(queue, START), read_position(entry) or START)

    def _pause(self, names: Collection[str]) -> None:
        """Read no paused queues in the next wait; one in progress ends where needed (`cancels`)."""
        if self._is_registered_only:
            return
        paused = frozenset(names).intersection(self.queues)
        if paused != self._paused:
            self._paused = paused
            self._reader.pause(paused | self._closed)
            _log.info(
                "paused queues changed queues=%(queues)s",
                {"queues": ", ".join(sorted(paused)) or "none"},
            )

    def _start(self, verb: Script, args: Sequence[Arg], token: str) -> Awaitable[Reply]:
        """Run a script that starts jobs under tokens that begin with `token`."""
        reply = self._run(verb, args)
        self._issued(token)
        future = cast("asyncio.Future[Reply]", reply)
        future.add_done_callback(lambda _: self._in_flight.discard(token))
        return reply

    def _issued(self, token: str) -> None:
        self._in_flight.add(token)
        for others in self._listings.values():
            others.add(token)

    def _run(self, verb: Script, args: Sequence[Arg]) -> Awaitable[Reply]:
        try:
            return self._connection.run(verb, self._declared, args)
        except ValkeyError as error:  # too many calls are queued already
            raise backend_unavailable(error) from error

    # Reporting and settling

    def report(self, batch: Sequence[tuple[LeasedJob, Report]]) -> Awaitable[list[ReportAnswer]]:
        """Append events. A full server drops them and the handlers go on; any other refusal
        (READONLY, LOADING, MISCONF) is raised, and the caller sends the reports again."""
        sent: list[tuple[list[int], Awaitable[Reply]]] = []
        for verb, places, args in settle_args.reports(batch, _BATCH, self._queue_of):
            sent.append((places, self._run(verb, [*self._head, *args])))
        return self._reported(sent, len(batch))

    async def _reported(
        self, sent: Sequence[tuple[list[int], Awaitable[Reply]]], count: int
    ) -> list[ReportAnswer]:
        answers = [ReportAnswer.DROPPED] * count
        failure: ValkeyError | None = None
        for places, reply in sent:
            try:
                batch_answers = settle_args.read_reported(await reply)
            except ValkeyError as error:
                # J-9: a full server drops events before anything else.
                if isinstance(error, ServerError) and error.code == _FULL:
                    _log.warning(
                        "server is full reports=%(reports)s error=%(error)s; dropped",
                        {"reports": len(places), "error": error},
                    )
                else:
                    failure = error
                continue
            for place, answer in zip(places, batch_answers, strict=True):
                answers[place] = answer
        if failure is not None:
            raise backend_unavailable(failure) from failure
        return answers

    def settle(self, batch: Sequence[tuple[LeasedJob, Outcome]], want: int) -> Awaitable[Settled]:
        """One script per kind of outcome and one for the next jobs, all in one write."""
        sent: list[tuple[list[int], Awaitable[Reply]]] = []
        for verb, places, args in settle_args.calls(batch, self.settings, _BATCH):
            sent.append((places, self._run(verb, [*self._head, *args])))
            if verb is settle_args.RETRY or verb is settle_args.SUSPEND:
                self.promote_soon()
        return self._settled(sent, self.take(want) if want > 0 else None, len(batch))

    async def _settled(
        self,
        sent: Sequence[tuple[list[int], Awaitable[Reply]]],
        following: Awaitable[list[LeasedJob]] | None,
        count: int,
    ) -> Settled:
        answers = [SettleAnswer.GONE] * count
        jobs: list[LeasedJob] = []
        failure: BackendUnavailable | None = None
        # All replies are awaited, whatever fails: a reply that is not read is a job forgotten.
        for places, reply in sent:
            try:
                batch_answers = settle_args.read_settled(await reply) if places else ()
            except ValkeyError as error:
                failure = backend_unavailable(error)
                continue
            for place, answer in zip(places, batch_answers, strict=True):
                answers[place] = answer
        if following is not None:
            try:
                jobs = await following
            except BackendUnavailable as error:
                failure = error
        if failure is not None:
            raise failure
        return Settled(answers, jobs)

    # Leases, cancellation, maintenance

    async def renew(self, batch: Sequence[LeasedJob]) -> list[RenewAnswer]:
        """Renew leases on the connection of the event loop."""
        calls = [self._run(RENEW_LEASE, args) for args in renew_args(self.consumer, batch)]
        return [answer for reply in await collect(calls) for answer in read_renewed(reply)]

    def lease_renewer(self) -> StreamsLeaseRenewer:
        """Renews leases from a thread."""
        config = self._connection.config
        return StreamsLeaseRenewer(config, self.settings, self.consumer, self._registration)

    async def cancels(self) -> AsyncIterator[CancelRequest]:
        """Tokens as they are published; `renew` also answers requests that were missed here."""
        if self._shared_cancels is not None:
            async for request in self._cancels_of(self._shared_cancels):
                yield request
            return
        try:
            async with self._connection.subscribe(self.keys.control) as messages:
                async for message in messages:
                    if message is None:
                        continue
                    if message[1] == contract.QUEUES_CHANGED:
                        await self._read_paused()
                    else:
                        yield CancelRequest(Token(message[1]))
        except ValkeyError as error:
            raise backend_unavailable(error) from error

    async def _cancels_of(self, shared: SharedCancels) -> AsyncIterator[CancelRequest]:
        try:
            async with shared.messages(self.keys.control) as messages:
                while True:
                    message = await messages.get()
                    if isinstance(message, ValkeyError):
                        raise backend_unavailable(message) from message
                    if message == contract.QUEUES_CHANGED:
                        await self._read_paused()
                    else:
                        yield CancelRequest(Token(message))
        except ValkeyError as error:
            raise backend_unavailable(error) from error

    async def _read_paused(self) -> None:
        """J-53: a queue was paused or resumed: a wait in progress is to read the others."""
        reply = await self._connection.call("SMEMBERS", self.keys.paused)
        self._pause(cast("Collection[str]", reply))
        await self._reader.wake_if_idle()

    def promote_soon(self) -> None:
        """A job was put off by this process: find out when the next one is due."""
        self._maintenance.promote_soon.set()

    def maintenance(self) -> Sequence[MaintenanceTask]:
        """The maintenance tasks of all queues."""
        return self._maintenance.all()


async def _no_jobs() -> list[LeasedJob]:
    return []


def _step_rules(settings: StreamsSettings) -> StepRules:
    return StepRules(
        settings.max_step_bytes,
        settings.max_record_bytes,
        settings.max_records,
        max_payload_bytes=contract.MAX_PAYLOAD_BYTES,
        shared_queue=contract.DEFAULT_QUEUE,
    )


def _entry_name(leased: LeasedJob) -> str:
    return entry_name(leased.job.source, cast(str, leased.wire))
