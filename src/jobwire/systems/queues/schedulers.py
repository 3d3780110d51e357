"""Job schedulers of a queue: set, list, remove (B-8).

A scheduler makes one job at a time; the worker that takes it makes the next one (`schedules`).
"""

import asyncio
import re
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, cast

from cronsim import CronSimError

from jobwire.cron import BadCron
from jobwire.job.messages import Json
from jobwire.systems.queues import contract
from jobwire.systems.queues.add_batcher import Added
from jobwire.systems.queues.checks import check_int, refuse
from jobwire.systems.queues.codec import json_text, number_of, read_json
from jobwire.systems.queues.contract import BullField, Opt, Refusal
from jobwire.systems.queues.options import template_members
from jobwire.systems.queues.queue import NewBullJob, QueueProducer
from jobwire.systems.queues.scheduler_iterations import cron_ms, process_zone

_MAX_MS: Final = 10 * 365 * 86_400_000
_LATEST_MS: Final = 1 << 43
_ITERATION: Final = re.compile(r":[0-9]{13,}\Z")
"""The record of `a:<ms>` would be the hash of the job that the scheduler `a` makes at that time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """When a scheduler's jobs are due: `every_ms`, or a cron `pattern` of five fields, or six with
    seconds in front."""

    every_ms: int = 0
    offset_ms: int = 0
    """The place of the due time within the interval."""
    pattern: str = ""
    tz: str = ""
    """The time zone of the pattern; if empty, that of the process which makes a job, as with
    Node."""
    immediately: bool = False
    """The first job of a pattern is due at once."""
    limit: int | None = None
    """How many jobs are made in all."""
    start_ms: int | None = None
    end_ms: int | None = None


class Scheduler(NamedTuple):
    """A scheduler as it is set."""

    id: str
    name: str
    next_ms: int
    made: int
    """How many jobs it has made."""
    repeat: Repeat
    data: Json
    opts: Json
    pending: bool
    """Its next job waits; otherwise the scheduler has ended."""


class Schedulers:
    def __init__(self, queue: QueueProducer) -> None:
        self._queue = queue

    async def set(
        self, scheduler_id: str, repeat: Repeat, job: NewBullJob
    ) -> Added | Refusal | None:
        """Set a scheduler and make its next job; None where none is due before its end."""
        _check(scheduler_id, repeat)
        self._queue.check(job)
        if job.options.job_id or job.options.delay_ms or job.options.parent is not None:
            raise refuse("a scheduler's job has no id, delay or parent of its own")
        if repeat.pattern and not (repeat.tz or process_zone()):
            # Other programs would take another zone for that of a process whose zone has no name.
            repeat = replace(repeat, tz="UTC")
        now_ms, prefix = self._queue.now_ms(), self._queue.settings.prefix
        if repeat.end_ms is not None and repeat.end_ms < now_ms:
            raise refuse("the scheduler's end_ms is over; choose a later one")
        if repeat.limit == 0:
            return None
        due_ms = _first_ms(repeat, now_ms)
        if repeat.end_ms is not None and due_ms > repeat.end_ms:
            return None
        template = template_members(job.options, prefix)
        opts: dict[str, Json] = {
            **template,
            Opt.TIMESTAMP: now_ms,
            Opt.SCHEDULER: scheduler_id,
            Opt.REPEAT: _repeat_members(repeat),
        }
        if repeat.pattern:
            opts[Opt.PREVIOUS_MS] = due_ms
        reply = await self._queue.run(
            "schedule",
            scheduler_id,
            due_ms,
            job.name,
            job.data_json,
            json_text(cast(Json, template)) if template else "",
            json_text(cast(Json, opts)),
            repeat.every_ms or "",
            repeat.offset_ms or "",
            "" if repeat.start_ms is None else repeat.start_ms,
            "" if repeat.end_ms is None else repeat.end_ms,
            repeat.pattern,
            repeat.tz,
            "" if repeat.limit is None else repeat.limit,
        )
        match cast("list[str]", reply):
            case ["added", job_id]:
                return Added(job_id)
            case [word, *_]:
                return Refusal(word)
            case _:
                raise TypeError(f"the script answered {reply!r}")

    async def remove(self, scheduler_id: str) -> bool:
        """Remove a scheduler and its delayed job; whether there was one."""
        return await self._queue.run("unschedule", scheduler_id) == "ok"

    async def get(self, scheduler_id: str) -> Scheduler | None:
        """A scheduler; None where there is none."""
        call, keys = self._queue.connection.call, self._queue.keys
        record, score = await asyncio.gather(
            call("HGETALL", keys.scheduler(scheduler_id)),
            call("ZSCORE", keys.schedulers, scheduler_id),
        )
        if score is None:
            return None
        next_ms = number_of(cast("float | str", score)) or 0
        job = keys.job(contract.iteration_id(scheduler_id, next_ms))
        made, started = cast(
            "list[str | None]",
            await call("HMGET", job, BullField.TIMESTAMP, BullField.PROCESSED_ON),
        )
        pending = made is not None and started is None
        return _read(scheduler_id, next_ms, cast("dict[str, str]", record), pending)

    async def list(self, *, first: int = 0, count: int = 50) -> list[Scheduler]:
        """Schedulers in the order of their next jobs."""
        check_int("first", first, 0, 1 << 31)
        check_int("count", count, 1, contract.MAX_BULK_JOBS)
        found = await self._queue.connection.call(
            "ZRANGE", self._queue.keys.schedulers, first, first + count - 1
        )
        schedulers = await asyncio.gather(*map(self.get, cast("list[str]", found)))
        return [each for each in schedulers if each is not None]

    async def count(self) -> int:
        return cast(int, await self._queue.connection.call("ZCARD", self._queue.keys.schedulers))


def _check(scheduler_id: str, repeat: Repeat) -> None:
    if not 0 < len(scheduler_id) <= contract.MAX_JOB_ID or not scheduler_id.isprintable():
        raise refuse(f"the scheduler id must be 1 to {contract.MAX_JOB_ID} printable characters")
    if _ITERATION.search(scheduler_id):
        raise refuse(
            f"the scheduler id {scheduler_id[:60]!r} must not end like a job of a scheduler"
        )
    if bool(repeat.every_ms) == bool(repeat.pattern):
        raise refuse("a scheduler needs either every_ms or a pattern")
    if repeat.immediately and repeat.start_ms is not None:
        raise refuse("a scheduler starts either immediately or at start_ms")
    check_int("every_ms", repeat.every_ms, 0, _MAX_MS)
    check_int("offset_ms", repeat.offset_ms, 0, max(repeat.every_ms - 1, 0))
    for name, value, high in (
        ("limit", repeat.limit, 10**9),
        ("start_ms", repeat.start_ms, _LATEST_MS),
        ("end_ms", repeat.end_ms, _LATEST_MS),
    ):
        if value is not None:
            check_int(name, value, 0, high)


def _first_ms(repeat: Repeat, now_ms: int) -> int:
    """When the first job of a pattern is due; intervals are computed by the script."""
    if not repeat.pattern:
        return 0
    try:
        due_ms = cron_ms(repeat.pattern, repeat.tz, max(now_ms, repeat.start_ms or 0))
    except BadCron as error:
        raise refuse(str(error)) from None
    except (CronSimError, ValueError, OverflowError, OSError, LookupError) as error:
        raise refuse(f"the pattern {repeat.pattern[:60]!r} is not valid: {error}") from None
    return now_ms if repeat.immediately else due_ms


def _repeat_members(repeat: Repeat) -> Json:
    members: dict[str, Json] = {
        "every": repeat.every_ms or None,
        "offset": repeat.offset_ms or None,
        "pattern": repeat.pattern or None,
        "tz": repeat.tz or None,
        "limit": repeat.limit,
        "startDate": repeat.start_ms,
        "endDate": repeat.end_ms,
    }
    chosen: dict[str, Json] = {name: value for name, value in members.items() if value is not None}
    return {"count": 1, **chosen}


def upcoming_ms(scheduler: Scheduler, most: int) -> list[int]:
    """When the next jobs of a scheduler are due, at most so many; empty if it has ended."""
    if not scheduler.pending:
        return []
    repeat = scheduler.repeat
    if repeat.limit is not None:
        most = min(most, 1 + repeat.limit - scheduler.made)
    due = [scheduler.next_ms]
    while len(due) < most:
        try:
            next_ms = _following_ms(repeat, due[-1])
        except (CronSimError, ValueError, OverflowError, OSError, LookupError):
            break  # another program wrote the pattern
        if repeat.end_ms is not None and next_ms > repeat.end_ms:
            break
        due.append(next_ms)
    return due


def _following_ms(repeat: Repeat, due_ms: int) -> int:
    if repeat.every_ms:
        return due_ms + repeat.every_ms
    return cron_ms(repeat.pattern, repeat.tz, due_ms)


def _read(scheduler_id: str, next_ms: int, record: dict[str, str], pending: bool) -> Scheduler:
    def number(name: str) -> int | None:
        return number_of(record.get(name))

    repeat = Repeat(
        every_ms=number("every") or 0,
        offset_ms=number("offset") or 0,
        pattern=record.get("pattern", ""),
        tz=record.get("tz", ""),
        limit=number("limit"),
        start_ms=number("startDate"),
        end_ms=number("endDate"),
    )
    return Scheduler(
        scheduler_id,
        record.get(BullField.NAME, ""),
        next_ms,
        number("ic") or 0,
        repeat,
        read_json(record.get(BullField.DATA, "{}")),
        read_json(record.get(BullField.OPTS, "{}")),
        pending,
    )
