"""Administration of a queue: single jobs, all jobs of a state, limits, the queue itself (B-8).

The HTTP routes and `BullQueue` use it, beside `QueueProducer`. Verbs that touch many jobs go in
batches: the server answers others in between. A refusal is a value (`Refusal`); bad input raises
RefusedError.
"""

import asyncio
from typing import Final, Literal, NamedTuple, TypeAlias, cast

from jobwire.job.messages import NO_CHILDREN, Children
from jobwire.systems.queues import contract
from jobwire.systems.queues.checks import (
    UNKNOWN_STATE,
    check_int,
    check_progress,
    is_job_id,
    refuse,
)
from jobwire.systems.queues.children import read_children
from jobwire.systems.queues.codec import clean, number_of
from jobwire.systems.queues.contract import COLLECTIONS, BullField, BullState, Meta, Refusal
from jobwire.systems.queues.queue import QueueProducer

_MAX_MS: Final = 10 * 365 * 86_400_000
_NO_LIMIT: Final = "+inf"
CLEANABLE: Final = tuple(state for state in COLLECTIONS if state is not BullState.WAITING_CHILDREN)

Finished: TypeAlias = Literal[BullState.COMPLETED, BullState.FAILED]


class Metrics(NamedTuple):
    """How many jobs ended so, in all and by minute, the newest first; 0 where no worker counts."""

    total: int
    minutes: list[int]


class QueueLimits(NamedTuple):
    """What a queue is set to for all its workers; None means no limit."""

    concurrency: int | None
    max_jobs: int | None
    per_ms: int | None


class QueueAdmin:
    def __init__(self, queue: QueueProducer) -> None:
        self._queue = queue

    # One job

    async def promote(self, job_id: str) -> Refusal | None:
        """Let a delayed job run as soon as a worker is free."""
        return await self._one("promote", job_id)

    async def retry(
        self,
        job_id: str,
        state: Finished = BullState.FAILED,
        *,
        reset_attempts: bool = False,
        reset_starts: bool = False,
    ) -> Refusal | None:
        """Run a finished job again."""
        return await self._one("reprocess", job_id, state, int(reset_attempts), int(reset_starts))

    async def change_delay(self, job_id: str, delay_ms: int) -> Refusal | None:
        """Let a delayed job wait for another time, counted from now."""
        check_int("delay_ms", delay_ms, 0, _MAX_MS)
        return await self._one("change_delay", job_id, delay_ms)

    async def change_priority(
        self, job_id: str, priority: int, *, lifo: bool = False
    ) -> Refusal | None:
        """Give a job another priority; one that waits takes its new place at once."""
        check_int("priority", priority, 0, contract.MAX_PRIORITY)
        return await self._one("change_priority", job_id, priority, int(lifo))

    async def remove(self, job_id: str, *, children: bool = True) -> Refusal | None:
        """Delete a job in whatever state, unless a worker has it."""
        return await self._one("remove", job_id, int(children))

    async def remove_pending_children(self, job_id: str) -> Refusal | None:
        """Delete the children that a job waits for and that no worker has."""
        return await self._one("remove_children", job_id)

    async def detach_from_parent(self, job_id: str) -> Refusal | None:
        """Let the job's parent not wait for it any more."""
        job = await self._queue.get(job_id)
        if job is None:
            return Refusal.MISSING
        if not job.parent_key:
            return Refusal.NO_RELATION
        return await self._one("detach_child", job_id, job.parent_key)

    async def set_progress(
        self,
        job_id: str,
        value_json: str,
        message: str = "",
        *,
        any_number: bool = False,
        keep_logs: int | None = None,
    ) -> Refusal | None:
        """Set a job's progress from outside its worker. The message goes to the event and to the
        job's log, which keeps the newest `keep_logs` lines."""
        check_progress(value_json, any_number=any_number)
        settings = self._queue.settings
        text = clean(message, settings.max_log_chars)
        keep = settings.max_log_lines if keep_logs is None else keep_logs
        return await self._one("progress", job_id, value_json, text, keep)

    async def set_data(self, job_id: str, data_json: str) -> Refusal | None:
        """Replace a job's payload; a running attempt keeps its own."""
        if not is_job_id(job_id):
            return Refusal.MISSING
        key = self._queue.keys.job(job_id)
        name = cast("str | None", await self._queue.connection.call("HGET", key, BullField.NAME))
        self._queue.check_data(name or "", data_json)
        return await self._one("data", job_id, data_json)

    async def add_log(self, job_id: str, line: str, *, keep: int = 0) -> int | Refusal:
        """Append a line to a job's log; how many lines there are. `keep` 0 keeps all."""
        if not is_job_id(job_id):
            return Refusal.MISSING
        check_int("keep", keep, 0, 1_000_000)
        text = clean(line, self._queue.settings.max_log_chars)
        length = cast(int, await self._queue.run("log", job_id, text, keep))
        return Refusal.MISSING if length < 0 else length

    async def clear_logs(self, job_id: str, *, keep: int = 0) -> None:
        """Drop a job's log, except the newest `keep` lines."""
        check_int("keep", keep, 0, 1_000_000)
        if not is_job_id(job_id):
            return
        key = self._queue.keys.logs(job_id)
        if keep:
            await self._queue.connection.call("LTRIM", key, -keep, -1)
        else:
            await self._queue.connection.call("DEL", key)

    async def children(self, job_id: str) -> Children:
        """The children of a job."""
        if not is_job_id(job_id):
            return NO_CHILDREN
        return await read_children(self._queue.connection, self._queue.keys.job(job_id))

    # Many jobs

    async def retry_all(
        self,
        state: Finished = BullState.FAILED,
        *,
        before_ms: int | None = None,
        batch: int = contract.BATCH,
    ) -> int:
        """Run all jobs of a state again that ended up to now or `before_ms`; how many."""
        last = self._queue.now_ms() if before_ms is None else before_ms
        check_int("before_ms", last, 0, 1 << 43)
        return await self._requeue(state, last, batch)

    async def promote_all(self, *, batch: int = contract.BATCH) -> int:
        """Let all delayed jobs run as soon as workers are free; how many."""
        return await self._requeue(BullState.DELAYED, _NO_LIMIT, batch)

    async def drain(self, *, delayed: bool = False) -> int:
        """Delete all jobs that wait, and the delayed ones if asked; how many."""
        total = 0
        while removed := cast(int, await self._queue.run("drain", int(delayed), contract.BATCH)):
            total += removed
        return total

    async def clean(
        self, state: BullState | str, *, grace_ms: int = 0, limit: int = 0
    ) -> list[str]:
        """Delete jobs of a state that are older than `grace_ms`; their ids. `limit` 0: all."""
        if state not in CLEANABLE:
            known = ", ".join(CLEANABLE)
            raise refuse(
                f"the state {str(state)[:60]!r} cannot be cleaned; one of {known} can",
                UNKNOWN_STATE,
            )
        check_int("grace_ms", grace_ms, 0, _MAX_MS)
        check_int("limit", limit, 0, 10**9)
        before_ms = self._queue.now_ms() - grace_ms
        ids = await self._clean(COLLECTIONS[BullState(state)], before_ms, limit)
        if state == BullState.WAITING and (not limit or len(ids) < limit):
            paused = self._queue.keys.paused
            if await self._queue.connection.call("EXISTS", paused):
                ids += await self._clean(contract.PAUSED, before_ms, limit and limit - len(ids))
        return ids

    async def _clean(self, collection: str, before_ms: int, limit: int) -> list[str]:
        batch = min(contract.CLEAN_BATCH, limit or contract.CLEAN_BATCH)
        ids: list[str] = []
        while not limit or len(ids) < limit:
            found = cast("list[str]", await self._queue.run("clean", collection, before_ms, batch))
            ids += found
            if len(found) < batch:
                break
        return ids

    async def obliterate(self, *, force: bool = False) -> Refusal | None:
        """Delete the queue with everything in it; `force` also while workers run its jobs."""
        await self._queue.pause()
        while True:
            answer = await self._queue.run("obliterate", int(force), contract.BATCH)
            if answer != "more":
                return None if answer == "done" else Refusal(cast(str, answer))

    async def trim_events(self, keep: int) -> int:
        """Drop the oldest events, except about the newest `keep`; how many."""
        check_int("keep", keep, 0, 10**9)
        key = self._queue.keys.events
        return cast(int, await self._queue.connection.call("XTRIM", key, "MAXLEN", "~", keep))

    # The queue

    async def limits(self) -> QueueLimits:
        found = await self._queue.connection.call(
            "HMGET", self._queue.keys.meta, Meta.CONCURRENCY, Meta.LIMIT_MAX, Meta.LIMIT_MS
        )
        concurrency, max_jobs, per_ms = map(number_of, cast("list[str | None]", found))
        return QueueLimits(concurrency, max_jobs, per_ms)

    async def set_concurrency(self, most: int | None) -> None:
        """How many jobs all workers together run at a time; None: as many as they have slots."""
        call, meta = self._queue.connection.call, self._queue.keys.meta
        if most is None:
            await call("HDEL", meta, Meta.CONCURRENCY)
            return
        check_int("concurrency", most, 1, 1_000_000)
        await call("HSET", meta, Meta.CONCURRENCY, most)

    async def set_rate_limit(self, max_jobs: int | None, per_ms: int = 0) -> None:
        """How many jobs all workers together start in `per_ms`; None: any number."""
        call, meta = self._queue.connection.call, self._queue.keys.meta
        if max_jobs is None:
            await call("HDEL", meta, Meta.LIMIT_MAX, Meta.LIMIT_MS)
            return
        check_int("max_jobs", max_jobs, 1, 10**9)
        check_int("per_ms", per_ms, 1, _MAX_MS)
        await call("HSET", meta, Meta.LIMIT_MAX, max_jobs, Meta.LIMIT_MS, per_ms)

    async def rate_limit(self, for_ms: int) -> None:
        """Let workers that have a rate limit start nothing for a while; 0 ends it."""
        check_int("for_ms", for_ms, 0, _MAX_MS)
        call, key = self._queue.connection.call, self._queue.keys.limiter
        if for_ms:
            await call("SET", key, contract.RATE_LIMITED, "PX", for_ms)
        else:
            await call("DEL", key)

    async def is_maxed(self) -> bool:
        """Whether as many jobs are active as the queue may run."""
        limits, active = await asyncio.gather(
            self.limits(), self._queue.connection.call("LLEN", self._queue.keys.active)
        )
        return limits.concurrency is not None and cast(int, active) >= limits.concurrency

    async def counts_per_priority(self, priorities: list[int]) -> dict[int, int]:
        """How many jobs wait with each of these priorities; 0 is none."""
        for priority in priorities:
            check_int("priority", priority, 0, contract.MAX_PRIORITY)
        call, keys = self._queue.connection.call, self._queue.keys
        shift = contract.PRIORITY_SHIFT
        numbers = await asyncio.gather(
            *(
                call("ZCOUNT", keys.prioritized, each * shift, (each + 1) * shift - 1)
                if each
                else self._waiting()
                for each in priorities
            )
        )
        return dict(zip(priorities, cast("list[int]", numbers), strict=True))

    async def _waiting(self) -> int:
        call, keys = self._queue.connection.call, self._queue.keys
        numbers = await asyncio.gather(call("LLEN", keys.wait), call("LLEN", keys.paused))
        return sum(cast("list[int]", numbers))

    async def metrics(self, state: Finished, *, first: int = 0, last: int = -1) -> Metrics:
        """The counts that workers with metrics keep."""
        call, key = self._queue.connection.call, self._queue.keys.metrics(state)
        total, minutes = await asyncio.gather(
            call("HGET", key, "count"), call("LRANGE", f"{key}:data", first, last)
        )
        found = map(number_of, cast("list[str]", minutes))
        return Metrics(number_of(cast("str | None", total)) or 0, [each or 0 for each in found])

    async def deduplication_owner(self, dedup_id: str) -> str | None:
        """The job that owns a deduplication id."""
        key = self._queue.keys.deduplication(dedup_id)
        return cast("str | None", await self._queue.connection.call("GET", key))

    async def free_deduplication(self, dedup_id: str) -> bool:
        """Let the next job of a deduplication id be added; whether the id was owned."""
        key = self._queue.keys.deduplication(dedup_id)
        return bool(await self._queue.connection.call("DEL", key))

    async def _one(self, verb: str, job_id: str, *args: str | int) -> Refusal | None:
        if not is_job_id(job_id):
            return Refusal.MISSING
        answer = cast(str, await self._queue.run(verb, job_id, *args))
        return None if answer in ("ok", "removed") else Refusal(answer)

    async def _requeue(self, state: BullState, last: str | int, batch: int) -> int:
        check_int("batch", batch, 1, contract.BATCH)
        total = 0
        while True:
            moved = cast(int, await self._queue.run("requeue", state, batch, last))
            total += moved
            if moved < batch:
                return total
