"""The queue of an installation with shards: the methods of `StreamsQueue`, over all shards.

The gateway has one. A new job goes to the shard of its tenant, its queue, or any shard
(`jobs.shard_by`); a job is found by its id; lists are merged (G-2 … G-5).
"""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final, cast

from jobwire.job.errors import RefusedError
from jobwire.job.ids import new_shard_id, random_fraction, shard_of
from jobwire.job.messages import (
    Already,
    CancelOutcome,
    JobId,
    JobRequest,
    Mismatch,
    SubmitAnswer,
)
from jobwire.systems.jobs import contract
from jobwire.systems.jobs.codec import Record
from jobwire.systems.jobs.payload import check_payload
from jobwire.systems.jobs.queue import (
    QueuePage,
    RecordSummary,
    Selection,
    SignalOutcome,
    StatusAndTenant,
    StepResult,
    StreamsQueue,
)
from jobwire.systems.jobs.replies import collect
from jobwire.systems.jobs.scripts import script
from jobwire.systems.jobs.settings import BY_QUEUE, BY_TENANT, StreamsSettings
from jobwire.systems.jobs.shard_choice import choose
from jobwire.systems.jobs.shard_table import ShardTable, Writers
from jobwire.systems.jobs.shards import Shard, Shards

_CLAIM: Final = script("claim_key")
_MAX_REMEMBERED: Final = 10_000


class ShardedQueue:
    def __init__(self, shards: Shards, settings: StreamsSettings, table: ShardTable) -> None:
        self.settings = settings
        self._shards = shards
        self._table = table
        self._by_queue = settings.shards_of_queues
        self._is_spread = settings.shard_by not in (BY_TENANT, BY_QUEUE)
        self._remembered: dict[tuple[str, Writers], int] = {}
        self._of_this_turn: int | None = None

    # Choosing a shard (G-2)

    def _name(self, request: JobRequest) -> str | None:
        """What decides about the shard of a new job; None: any shard."""
        if self.settings.shard_by == BY_TENANT:
            return request.tenant
        if self.settings.shard_by == BY_QUEUE:
            return request.queue or contract.DEFAULT_QUEUE
        if request.idempotency_key:
            return contract.idempotency_name(request.tenant, request.idempotency_key)
        return None

    def _choose(self, name: str, writers: Writers) -> int:
        remembered = self._remembered
        if (found := remembered.get((name, writers))) is None:
            found = self._by_queue.get(name, -1) if self.settings.shard_by == BY_QUEUE else -1
            if found not in writers:
                found = choose(name, writers)
            if len(remembered) >= _MAX_REMEMBERED:
                remembered.clear()
            remembered[name, writers] = found
        return found

    def _any(self) -> int:
        """One shard for all jobs of this turn of the event loop: they leave in one call."""
        if self._of_this_turn is None:
            writers = self._table.tables[-1]
            # Any shard will do: one that is down does not get them.
            writers = [
                each for each in writers if self._shards[each].connection.connected
            ] or writers
            self._of_this_turn = writers[int(random_fraction() * len(writers))]
            asyncio.get_running_loop().call_soon(self._end_turn)
        return self._of_this_turn

    def _end_turn(self) -> None:
        self._of_this_turn = None

    def _route(self, request: JobRequest) -> Sequence[int]:
        """The shards in which the request's idempotency key may be known, by age of their tables;
        the last one gets the job."""
        if request.job_id is not None:
            return (self._of(request.job_id).number,)
        if (name := self._name(request)) is None:
            return (self._any(),)
        tables = self._table.tables
        if len(tables) == 1 or not request.idempotency_key:
            return (self._choose(name, tables[-1]),)
        *former, last = (self._choose(name, writers) for writers in tables)
        return (*(each for each in dict.fromkeys(former) if each != last), last)

    # Submitting

    def submit(self, request: JobRequest) -> Awaitable[SubmitAnswer]:
        """Create a job; RefusedError for a payload that the wire forbids."""
        check_payload(request.payload_json)
        return self.submit_checked(request)

    def submit_many(self, requests: Sequence[JobRequest]) -> Awaitable[list[SubmitAnswer]]:
        """Create many jobs; RefusedError, and no job, if one is refused."""
        for request in requests:
            check_payload(request.payload_json)
        answers = self.submit_many_checked(requests)

        async def all_answers() -> list[SubmitAnswer]:
            return [await answer for answer in answers]

        return all_answers()

    def submit_checked(self, request: JobRequest) -> Awaitable[SubmitAnswer]:
        """The same for a caller that has run `check_payload` itself."""
        if request.idempotency_key:
            return self._submit_keyed(request, self._route(request))
        if self._is_spread and request.job_id is None:
            return self._shards[self._any()].queue.submit_checked(request)
        return self._shards[self._route(request)[-1]].queue.submit_checked(request)

    def submit_many_checked(self, requests: Sequence[JobRequest]) -> list[Awaitable[SubmitAnswer]]:
        """The same for many, each with its own answer; those of one shard leave together."""
        answers: dict[int, Awaitable[SubmitAnswer]] = {}
        plain: dict[int, list[int]] = {}
        for at, request in enumerate(requests):
            route = self._route(request)
            if request.idempotency_key:
                answers[at] = self._submit_keyed(request, route)
            else:
                plain.setdefault(route[-1], []).append(at)
        for number, places in plain.items():
            found = self._shards[number].queue.submit_many_checked([requests[at] for at in places])
            answers.update(zip(places, found, strict=True))
        return [answers[at] for at in range(len(requests))]

    def _submit_keyed(self, request: JobRequest, route: Sequence[int]) -> Awaitable[SubmitAnswer]:
        if len(route) > 1:
            # A task of its own: like all calls, it begins before it is awaited.
            return asyncio.ensure_future(self._claim_and_submit(request, route))
        shard = self._shards[route[0]]
        return self._existing(request, shard, shard.queue.submit_checked(request))

    async def _claim_and_submit(self, request: JobRequest, route: Sequence[int]) -> SubmitAnswer:
        """G-5: the oldest shard in which the key may be known decides, also against processes that
        have not read the new table yet and submit there."""
        own_id = new_shard_id(route[-1])
        job_id = own_id
        for number in route[:-1]:
            word, found = await self._claim(self._shards[number], request, job_id)
            if word == "mismatch":
                return Mismatch(found)
            if word == "already":
                return Already(found)
            job_id = found
        target = self._of(job_id)
        if job_id != own_id and await _exists(target.queue, job_id):
            return Already(job_id)
        return await target.queue.submit_checked(request._replace(job_id=job_id))

    async def _claim(self, shard: Shard, request: JobRequest, job_id: JobId) -> tuple[str, JobId]:
        key, tenant = request.idempotency_key or "", request.tenant
        args = (
            job_id,
            request.task,
            request.ttl_s or self.settings.job_ttl_s,
            contract.idempotency_name(tenant, key),
            contract.former_idempotency_name(tenant, key),
            request.fingerprint,
            tenant,
        )
        (reply,) = await collect([shard.connection.run(_CLAIM, (shard.keys.queue,), args)])
        word, found = cast("tuple[str, str]", reply)
        return word, JobId(found)

    async def _existing(
        self, request: JobRequest, shard: Shard, answer: Awaitable[SubmitAnswer]
    ) -> SubmitAnswer:
        """The answer; where the key was claimed for a job of another shard, which a process with a
        newer table may not have written yet, that job is written. A foreign gateway writes jobs
        with ids of the first shard into any."""
        found = await answer
        if isinstance(found, Already) and (number := shard_of(found.job_id)) != shard.number:
            target = self._shards.get(number)
            if target is None or await shard.queue.status_and_tenant(found.job_id) is not None:
                return found
            if not await _exists(target.queue, found.job_id):
                return await target.queue.submit_checked(request._replace(job_id=found.job_id))
        return found

    # By id (G-3)

    def _of(self, job_id: str) -> Shard:
        shard = self._shards.get(shard_of(job_id))
        if shard is None:
            raise RefusedError(
                f"the id {job_id} is of shard {shard_of(job_id)}, which is not known"
            )
        return shard

    def shard(self, job_id: JobId) -> Shard | None:
        """The shard of a job; None if there is no such shard."""
        return self._shards.get(shard_of(job_id))

    def _queue(self, job_id: JobId) -> StreamsQueue | None:
        shard = self._shards.get(shard_of(job_id))
        return None if shard is None else shard.queue

    def record(self, job_id: JobId) -> Awaitable[Record | None]:
        """The job with all fields of the wire, or None."""
        queue = self._queue(job_id)
        return _nothing() if queue is None else queue.record(job_id)

    def stub(self, job_id: JobId) -> Awaitable[Record | None]:
        """What is left of a job that is no longer kept, for its idempotency key; or None."""
        queue = self._queue(job_id)
        return _nothing() if queue is None else queue.stub(job_id)

    def status_and_tenant(self, job_id: JobId) -> Awaitable[StatusAndTenant | None]:
        """A job's status and tenant, without reading large fields; or None."""
        queue = self._queue(job_id)
        return _nothing() if queue is None else queue.status_and_tenant(job_id)

    def due_ms(self, job_id: JobId) -> Awaitable[int | None]:
        """When a delayed or suspended job is due; None for any other job."""
        queue = self._queue(job_id)
        return _nothing() if queue is None else queue.due_ms(job_id)

    def summary(self, job_id: JobId) -> Awaitable[RecordSummary]:
        """What a job has recorded, without the results (D-17)."""
        return self._of(job_id).queue.summary(job_id)

    def signal(self, job_id: JobId, name: str, value_json: str) -> Awaitable[SignalOutcome]:
        """Record a signal of an unfinished job, which wakes the job if it waits for it (D-12)."""
        return self._of(job_id).queue.signal(job_id, name, value_json)

    def copy_record(self, job_id: JobId, to: JobId, ttl_s: int) -> Awaitable[int]:
        """Give a job that is submitted next, in the same shard, what an ended one has recorded
        (D-13); how many records that are."""
        return self._of(job_id).queue.copy_record(job_id, to, ttl_s)

    def forget_record(self, job_id: JobId) -> Awaitable[None]:
        """Remove the record of a job that was not submitted."""
        return self._of(job_id).queue.forget_record(job_id)

    def cancel_children(self, job_id: JobId) -> Awaitable[None]:
        """D-16: cancel the unfinished children of a canceled job, which are in its shard."""
        return self._of(job_id).queue.cancel_children(job_id)

    def step(self, job_id: JobId, name: str) -> Awaitable[StepResult | None]:
        """The result of one step; None if there is none."""
        queue = self._queue(job_id)
        return _nothing() if queue is None else queue.step(job_id, name)

    def cancel(self, job_id: JobId) -> Awaitable[CancelOutcome]:
        """End the job if it waits; ask its worker to stop if it runs."""
        queue = self._queue(job_id)
        return _gone() if queue is None else queue.cancel(job_id)

    # Over all shards (G-4)

    async def job_of_key(self, tenant: str, key: str) -> str | None:
        """The id of the job that was submitted with an idempotency key, or None."""
        found = await self._shards.gather(lambda shard: shard.queue.job_of_key(tenant, key))
        return next((job_id for job_id in found.values if job_id), None)

    async def page(
        self, tenant: str, limit: int, selection: Selection | None = None, *, cursor: str = ""
    ) -> QueuePage:
        """A tenant's jobs, newest first, from where the previous page ended (J-14)."""
        found = await self._shards.gather(
            lambda shard: shard.queue.page(tenant, limit, selection, cursor=cursor)
        )
        return merged_page(found.values, limit)._replace(incomplete=found.silent)


def merged_page(pages: Sequence[QueuePage], limit: int) -> QueuePage:
    """One page of the pages of all shards, by creation and id. Pure.

    A shard that has more jobs than it returned has read as far as its cursor: older jobs of other
    shards are left to the next page.
    """
    cursors = [_position(page.cursor) for page in pages if page.cursor]
    reached = max(cursors, default=(0, ""))
    records = sorted(
        (record for page in pages for record in page.records), key=_place, reverse=True
    )
    complete = [record for record in records if _place(record) >= reached]
    kept = complete[:limit]
    if len(kept) < len(complete):
        reached = _place(kept[-1])
    cursor = f"{reached[0]}-{reached[1]}" if reached[0] else ""
    scanned, total = sum(page.scanned for page in pages), sum(page.total for page in pages)
    return QueuePage(kept, scanned, total, cursor)


def _place(record: Record) -> tuple[int, str]:
    return record.created_ms, record.job_id


def _position(cursor: str) -> tuple[int, str]:
    ms, _, job_id = cursor.partition("-")
    return int(float(ms)), job_id  # an earlier version has indexed times with a fraction


async def _exists(queue: StreamsQueue, job_id: JobId) -> bool:
    if await queue.status_and_tenant(job_id) is not None:
        return True
    return await queue.stub(job_id) is not None


async def _nothing() -> None:
    """There is no such shard, so no such job."""


async def _gone() -> CancelOutcome:
    return CancelOutcome.GONE
