"""A worker's end of the Streams wire: keeps the heart's Engine (J-30 … J-40).

The worker's loop has one. Every verb is one script for a whole batch, sent when called; nothing
here makes a task, waits on the shared socket, or repeats what may have happened.
"""

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence, Set
from typing import Final, cast

from jobwire.job.engine import MaintenanceTask, MissingRequirements, no_missing_requirements
from jobwire.job.errors import BackendUnavailable
from jobwire.job.ids import random_fraction
from jobwire.job.messages import (
    CancelRequest,
    LeasedJob,
    Outcome,
    Released,
    RenewAnswer,
    Report,
    ReportAnswer,
    SettleAnswer,
    Settled,
    TaskDefinition,
    Token,
)
from jobwire.valkey import Arg, Connection, Reply, Script, ServerError, ValkeyError
from jobwire.wires.streams import contract, settle_args
from jobwire.wires.streams.blocking_reader import BlockingReader
from jobwire.wires.streams.contract import StreamsKeys
from jobwire.wires.streams.entries import read_leased
from jobwire.wires.streams.events import START, read_position
from jobwire.wires.streams.leases import RENEW_LEASE, StreamsLeaseRenewer, read_renewed, renew_args
from jobwire.wires.streams.maintenance import StreamsMaintenance
from jobwire.wires.streams.registration import Registration
from jobwire.wires.streams.replies import LazyReply, backend_unavailable, collect, wire_text
from jobwire.wires.streams.scripts import SCRIPTS, script
from jobwire.wires.streams.settings import StreamsSettings

_log = logging.getLogger("jobwire.streams")

_TAKE: Final = script("take")
_RECLAIM: Final = script("reclaim")
_RECOVER_ORPHANS: Final = script("recover_orphans")
_REPORT: Final = script("report")
_RELEASE: Final = script("release")
_DEREGISTER: Final = script("deregister")

_BATCH: Final = 500
"""Jobs in one script: more would hold up everybody else's."""
_REFUSED: Final = "refused"
"""Why an entry was passed over that stays where it is."""
_FULL: Final = "OOM"
"""How a server that has reached its `maxmemory` refuses a write."""
_LOOK: Final = 100
"""Pending entries that one look for silent workers goes through."""
_ASIDE_S: Final = 10.0
"""How long after a job that we lack was put back we let others go first (J-37): the server gives
what comes to whoever has blocked longest, so our waits are short."""
_ASIDE_WAIT_S: Final = 0.1


class StreamsEngine:
    name: str = "jobs"

    def __init__(
        self,
        connection: Connection,
        settings: StreamsSettings | None = None,
        *,
        consumer: str | None = None,
    ) -> None:
        self.settings = settings or StreamsSettings()
        self.keys = StreamsKeys(self.settings.key_prefix)
        self.consumer = consumer or new_consumer()
        self._connection = connection
        self._declared = (self.keys.queue,)
        limits = (self.settings.job_ttl_s, self.settings.max_events)
        self._head: tuple[Arg, ...] = (*limits, self.consumer)
        self._tasks: tuple[Arg, ...] = ()
        grace_s, foreign_s = self.settings.unknown_task_grace_s, self.settings.foreign_idle_s
        self._unknown = (round(grace_s * 1000), round(foreign_s * 1000))
        """When a job whose task nobody has is ended, and when a foreign consumer counts as gone."""
        self._arrivals = BlockingReader(connection, self.keys.queue, self.consumer)
        self._registration = Registration(self.settings, self.consumer)
        self._duties = StreamsMaintenance(
            connection, self.settings, self.consumer, self._registration, self._look_around
        )
        self._in_flight: set[str] = set()
        """Tokens of calls whose answers are awaited."""
        self._listings: dict[str, set[str]] = {}
        """For each `adopt` under way the tokens that were in flight at any time since it was sent:
        what it lists under one of them is that call's to hand out (R-5)."""
        self._prefetched: list[LeasedJob] = []
        """What a wait has started, for the next take."""
        self._prefetched_all = False
        """It found no more than that."""
        self._last = START
        """The last entry that was given to us, and started or dropped."""
        self._yielding_until_s = 0.0
        self._cursor = "-"
        self._reclaim_at_s = 0.0

    # Joining, waiting, leaving

    async def register(
        self,
        tasks: Sequence[TaskDefinition],
        slots: int,
        lacks: MissingRequirements = no_missing_requirements,
    ) -> None:
        """Join the group as a worker that has `tasks`; others read them on its card."""
        self._tasks = tuple(wire_text(task.name) for task in tasks)
        try:
            # Known before they are needed, so that a settle never overtakes a report.
            await self._connection.load_scripts(SCRIPTS.values())
        except ValkeyError as error:
            raise backend_unavailable(error) from error
        await self._arrivals.make_group()
        self._registration.fill(tasks, slots, lacks)
        await self._duties.heartbeat()

    async def make_group(self) -> None:
        """Make the consumer group if it is missing (J-30)."""
        await self._arrivals.make_group()

    async def wait(self, timeout_s: float, room: int = 1) -> bool:
        """Sleep until there is something to take, or to take over. What comes is started on the
        spot, by a take that lies ready behind the blocking read."""
        if self._prefetched:
            return True
        now_s = asyncio.get_running_loop().time()
        if now_s < self._yielding_until_s:
            timeout_s = min(timeout_s, _ASIDE_WAIT_S * (0.2 + random_fraction()))
        token = _new_token()
        args = self._take_args(room, token, self._last.id)
        self._issued(token)
        try:
            call = ("EVALSHA", _TAKE.sha, len(self._declared), *self._declared, *args)
            woken, answer = await self._arrivals.wait(timeout_s, call)
        finally:
            self._in_flight.discard(token)
        if answer is not None:
            self._prefetched = self._read(answer)
            self._prefetched_all = len(self._prefetched) < room
            _, dropped = cast("tuple[Reply, list[str]]", answer)
            self._arrivals.mark_handled({*(held.wire for held in self._prefetched), *dropped[1::3]})
            if self._arrivals.fetched:
                self._yielding_until_s = now_s + _ASIDE_S  # it was put back
        return woken or bool(self._prefetched)

    async def wake(self) -> None:
        """Make a `wait` in progress return now; what it brought stays for `take` or `leave`."""
        await self._arrivals.wake()

    async def deregister(self) -> None:
        """Give back whatever is still under our name, and take the name off the door."""
        self._registration.withdraw()
        self._prefetched = []  # found below, as everything that is ours
        args: list[Arg] = [*self._head]
        for one in self._arrivals.take_fetched():
            args += (wire_text(one.job_id), one.entry, "")
        if len(args) > len(self._head):
            await collect([self._run(_RELEASE, args)])
        # What was started for us into a broken connection, and nobody runs.
        while found := await self.recover_orphans(frozenset()):
            await self.settle([(held, Released()) for held in found], 0)
        await collect([self._run(_DEREGISTER, [self.consumer])])

    # Taking

    def take(self, limit: int) -> Awaitable[list[LeasedJob]]:
        """Start up to `limit` jobs; now and then those of silent workers first (J-34)."""
        if self._prefetched:
            ahead, self._prefetched = self._prefetched[:limit], self._prefetched[limit:]
            rest = 0 if self._prefetched_all else limit - len(ahead)
            return _joined(ahead, self._take(rest) if rest else None)
        now_s = asyncio.get_running_loop().time()
        if now_s < self._reclaim_at_s or self._arrivals.fetched:
            return self._take(limit)
        self._reclaim_at_s = now_s + self.settings.lease_s / 3
        return self._take_over(self._reclaim(limit), limit)

    def _take(self, limit: int) -> Awaitable[list[LeasedJob]]:
        brought = self._arrivals.take_fetched()
        token = _new_token()
        args = self._take_args(limit, token, "")
        for one in brought:
            args += (one.entry, wire_text(one.job_id), wire_text(one.task))
        payloads = {one.entry: one.payload for one in brought}
        return LazyReply(self._start(_TAKE, args, token), lambda reply: self._read(reply, payloads))

    def _take_args(self, limit: int, token: str, after: str) -> list[Arg]:
        head = (*self._head, min(limit, _BATCH), token, contract.CONSUMER_PREFIX)
        return [*head, *self._unknown, after, len(self._tasks), *self._tasks]

    def _reclaim(self, limit: int) -> Awaitable[Reply]:
        token = _new_token()
        terms = settle_args.reclaim_terms(self.settings, late_s=0.0)
        args = [*self._head, min(limit, _BATCH), token, *terms, self._cursor, _LOOK]
        args += (settle_args.reconnected(self._connection, self.settings), 0)
        return self._start(_RECLAIM, args, token)

    async def _take_over(self, reply: Awaitable[Reply], limit: int) -> list[LeasedJob]:
        (answer,) = await collect([reply])
        cursor, started, dropped, _ = cast("tuple[str, list[Reply], list[Reply], int]", answer)
        self._cursor = cursor
        taken = self._read([started, dropped])
        if self._cursor != "-":
            self.reclaim_soon()
        if taken:
            _log.info("took over %d jobs of workers that fell silent", len(taken))
        return taken if len(taken) >= limit else [*taken, *await self._take(limit - len(taken))]

    def reclaim_soon(self) -> None:
        """Let the next take look, whenever the last one did."""
        self._reclaim_at_s = 0.0

    async def _look_around(self) -> None:
        """A worker that waits with a free slot is woken to look."""
        self.reclaim_soon()
        await self._arrivals.wake_if_idle()

    async def recover_orphans(self, known: Set[Token], idle_s: float = 0.0) -> list[LeasedJob]:
        """What is pending under our name and unknown to the worker (J-30)."""
        token = _new_token()
        waiting = [one.entry for one in self._arrivals.fetched]
        waiting += [held.token for held in self._prefetched]
        args = [*self._head, _BATCH, token, round(idle_s * 1000), *known, *waiting]
        others = set(self._in_flight)
        listing = self._start(_RECOVER_ORPHANS, args, token)
        self._listings[token] = others
        try:
            (reply,) = await collect([listing])
        finally:
            del self._listings[token]
        awaited = tuple(others)
        return [
            held
            for held in self._read(reply)
            if held.token not in known and not held.token.startswith(awaited)
        ]

    def _read(self, reply: Reply, payloads: Mapping[str, str] | None = None) -> list[LeasedJob]:
        """Jobs that a script has started; what it dropped on the way gets a line in the log."""
        started, dropped = cast("tuple[list[Reply], list[str]]", reply)
        for at in range(0, len(dropped), 3):
            why, entry, job_id = dropped[at : at + 3]
            if why == _REFUSED:
                _log.error("the server refuses to start job %s; it is tried again", job_id)
            else:
                _log.info("queue entry %s of job %s was dropped: %s", entry, job_id, why)
        taken = [read_leased(row, self.name, payloads or {}) for row in started]
        for entry in (*(held.wire for held in taken[-1:]), *dropped[-2:-1]):
            self._last = max(self._last, read_position(cast(str, entry)) or START)
        return taken

    def _start(self, verb: Script, args: Sequence[Arg], token: str) -> Awaitable[Reply]:
        """Run a verb that starts jobs under tokens that begin with `token`."""
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
        except ValkeyError as error:  # too much waits for the server already
            raise backend_unavailable(error) from error

    # Reporting and settling

    def report(self, batch: Sequence[tuple[LeasedJob, Report]]) -> Awaitable[list[ReportAnswer]]:
        """Append events. A full server drops them and the handlers go on; any other refusal
        (READONLY, LOADING, MISCONF) is raised, so that they are sent again when it has ended."""
        sent: list[tuple[list[int], Awaitable[Reply]]] = []
        for places, args in settle_args.reports(batch, _BATCH):
            sent.append((places, self._run(_REPORT, [*self._head, *args])))
        return self._reported(sent, len(batch))

    async def _reported(
        self, sent: Sequence[tuple[list[int], Awaitable[Reply]]], count: int
    ) -> list[ReportAnswer]:
        answers = [ReportAnswer.DROPPED] * count
        trouble: ValkeyError | None = None
        for places, reply in sent:
            try:
                said = settle_args.read_reported(await reply)
            except ValkeyError as error:
                # J-9: events are the first thing that a full server goes without.
                if isinstance(error, ServerError) and error.code == _FULL:
                    _log.warning("%d reports were dropped: %s", len(places), error)
                else:
                    trouble = error
                continue
            for place, answer in zip(places, said, strict=True):
                answers[place] = answer
        if trouble is not None:
            raise backend_unavailable(trouble) from trouble
        return answers

    def settle(self, batch: Sequence[tuple[LeasedJob, Outcome]], want: int) -> Awaitable[Settled]:
        """One script a kind of outcome and one for the next jobs, all in one write."""
        sent: list[tuple[list[int], Awaitable[Reply]]] = []
        for verb, places, args in settle_args.calls(batch, self.settings, _BATCH):
            sent.append((places, self._run(verb, [*self._head, *args])))
        return self._settled(sent, self.take(want) if want > 0 else None, len(batch))

    async def _settled(
        self,
        sent: Sequence[tuple[list[int], Awaitable[Reply]]],
        following: Awaitable[list[LeasedJob]] | None,
        count: int,
    ) -> Settled:
        answers = [SettleAnswer.GONE] * count
        held: list[LeasedJob] = []
        trouble: BackendUnavailable | None = None
        # Everything is waited for, whatever fails: an answer that nobody reads is a job forgotten.
        for places, reply in sent:
            try:
                said = settle_args.read_settled(await reply)
            except ValkeyError as error:
                trouble = backend_unavailable(error)
                continue
            for place, answer in zip(places, said, strict=True):
                answers[place] = answer
        if following is not None:
            try:
                held = await following
            except BackendUnavailable as error:
                trouble = error
        if trouble is not None:
            raise trouble
        return Settled(answers, held)

    # Leases, wishes, duties

    async def renew(self, batch: Sequence[LeasedJob]) -> list[RenewAnswer]:
        """Leases, renewed on the loop's own connection."""
        calls = [self._run(RENEW_LEASE, args) for args in renew_args(self.consumer, batch)]
        return [answer for reply in await collect(calls) for answer in read_renewed(reply)]

    def lease_renewer(self) -> StreamsLeaseRenewer:
        """Leases, kept from a thread."""
        config = self._connection.config
        return StreamsLeaseRenewer(config, self.settings, self.consumer, self._registration)

    async def cancels(self) -> AsyncIterator[CancelRequest]:
        """Tokens as they are published; what was missed meanwhile, `keep` tells again."""
        try:
            async with self._connection.subscribe(self.keys.control) as messages:
                async for message in messages:
                    if message is not None:
                        yield CancelRequest(Token(message[1]))
        except ValkeyError as error:
            raise backend_unavailable(error) from error

    def maintenance(self) -> Sequence[MaintenanceTask]:
        """The housekeeping of this queue."""
        return self._duties.all()


def new_consumer() -> str:
    """A name that tells where the worker lives, and that no other worker ever has."""
    return f"{contract.CONSUMER_PREFIX}{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


async def _joined(
    ahead: list[LeasedJob], rest: Awaitable[list[LeasedJob]] | None
) -> list[LeasedJob]:
    return ahead if rest is None else [*ahead, *await rest]


def _new_token() -> str:
    # Random and not counted (J-33); the script makes one a job of it, so it is sent once.
    return secrets.token_hex(16)
