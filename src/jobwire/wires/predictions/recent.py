"""The newest tasks, for people who look: by the times at which their objects were written.

A bucket lists keys in the order of their names, and ids are random: so all names are listed,
without their objects, and the newest objects are read. Tasks expire after two days, which bounds
the list.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from jobwire.objects import Bucket
from jobwire.wires.predictions.contract import (
    INTENTS_PREFIX,
    OPEN_PREFIX,
    TASK_SUFFIX,
    TASKS_PREFIX,
    TERMINAL,
    is_prediction_id,
    is_task_id,
    precise,
)
from jobwire.wires.predictions.listing import TaskView, of_intent, read_task
from jobwire.wires.predictions.records import BadIntent, Records

log: Final = logging.getLogger("jobwire.predictions")

MAX_RECENT: Final = 50
_MAX_LISTED: Final = 20_000
"""Names of one kind that are listed at most."""
_MAX_READ: Final = 200
"""Objects that are read at most for one answer."""
_AT_ONCE: Final = 16

Wanted = Literal["all", "open", "succeeded", "failed"]
Named = tuple[datetime, str]


@dataclass(frozen=True, slots=True)
class RecentTasks:
    """Tasks, newest first; `read` of `total` were looked at, `open` are not finished."""

    tasks: list[TaskView]
    read: int
    total: int
    open: int


async def recent_tasks(
    bucket: Bucket, records: Records, *, limit: int, wanted: Wanted = "all"
) -> RecentTasks:
    """The newest tasks of one kind; one that cannot be read is left out."""
    intents, tasks, open_ones = await asyncio.gather(
        _names(bucket, INTENTS_PREFIX, "", is_task_id),
        _names(bucket, TASKS_PREFIX, TASK_SUFFIX, is_prediction_id),
        _names(bucket, OPEN_PREFIX, "", is_task_id),
    )
    ours = {name for _, name in intents}
    unfinished = {name for _, name in open_ones}
    known: set[str] = set()
    """Prediction ids of tasks that were read by their intent."""

    async def of_ours(tid: str) -> TaskView | None:
        try:
            current = await records.load(tid)
        except BadIntent as error:
            log.warning("%s", error)
            return None
        if current is None:
            return None
        known.add(current.intent.prediction_id or "")
        return of_intent(current.intent)

    async def of_others(prediction_id: str) -> TaskView | None:
        if prediction_id in known:
            return None
        view = await read_task(records, prediction_id)
        return None if view is None or view.task_id in ours else view

    first = [named for named in intents if wanted != "open" or named[1] in unfinished]
    found, read = await _read(first, of_ours, limit, wanted)
    # Tasks of other programs have no intent; ours are found again here, and left out.
    others, also_read = await _read(tasks, of_others, limit, wanted)
    views = sorted((*found, *others), key=_created, reverse=True)
    # Both names of one task count once; before its prediction is known it has only the first.
    total = max(len(intents), len(tasks))
    return RecentTasks(views[:limit], min(total, max(read, also_read)), total, len(unfinished))


async def _names(
    bucket: Bucket, prefix: str, suffix: str, is_name: Callable[[str], bool]
) -> list[Named]:
    """The ids under a prefix with the times of their objects, newest first."""
    found: list[Named] = []
    after: str | None = ""
    while after is not None and len(found) < _MAX_LISTED:
        page = await bucket.page(prefix, after=after)
        for entry in page.entries:
            name = entry.key.removeprefix(prefix)
            if name.endswith(suffix) and is_name(name.removesuffix(suffix)):
                found.append((entry.modified_at, name.removesuffix(suffix)))
        after = page.next_after
    return sorted(found, reverse=True)


async def _read(
    named: Sequence[Named],
    read: Callable[[str], Awaitable[TaskView | None]],
    limit: int,
    wanted: Wanted,
) -> tuple[list[TaskView], int]:
    """Read objects until enough of them fit; how many were read."""
    found: list[TaskView] = []
    done = 0
    while len(found) < limit and done < min(len(named), _MAX_READ):
        batch = named[done : done + min(_AT_ONCE, max(1, limit - len(found)))]
        views = await asyncio.gather(*(read(name) for _, name in batch))
        found += _fitting(views, wanted)
        done += len(batch)
    return found, done


def _created(view: TaskView) -> str:
    """The time in milliseconds where it is known: tasks of one second are sorted by it."""
    return precise(view.history[0].at_ms) if view.history else view.created_at or ""


def _fitting(views: Iterable[TaskView | None], wanted: Wanted) -> list[TaskView]:
    return [view for view in views if view is not None and _fits(view, wanted)]


def _fits(view: TaskView, wanted: Wanted) -> bool:
    match wanted:
        case "all":
            return True
        case "open":
            return view.status not in TERMINAL or view.state not in (None, "delivered")
        case _:
            return view.status == wanted
