"""The newest tasks, for display: by the times at which their objects were written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from jobwire.objects import Bucket
from jobwire.systems.predictions.contract import (
    INTENTS_PREFIX,
    OPEN_PREFIX,
    TASKS_PREFIX,
    TERMINAL,
    prediction_id_of,
    rfc3339_ms,
    task_id_of,
)
from jobwire.systems.predictions.listing import (
    ListedId,
    TaskView,
    newest_ids,
    of_intent,
    read_task,
)
from jobwire.systems.predictions.records import BadIntent, Records

log: Final = logging.getLogger("jobwire.predictions")

_MAX_LISTED: Final = 20_000
"""Names of one kind that are listed at most."""
_MAX_READ: Final = 200
"""Objects that are read at most for one answer."""
_AT_ONCE: Final = 16

StatusFilter = Literal["all", "open", "succeeded", "failed"]


@dataclass(frozen=True, slots=True)
class RecentTasks:
    """Tasks, newest first; `read` of `total` were looked at, `open` are not finished."""

    tasks: list[TaskView]
    read: int
    total: int
    open: int


async def recent_tasks(
    bucket: Bucket, records: Records, *, limit: int, status: StatusFilter = "all"
) -> RecentTasks:
    """The newest tasks of one status; one that cannot be read is left out."""
    intents, tasks, open_ids = await asyncio.gather(
        newest_ids(bucket, INTENTS_PREFIX, task_id_of, most=_MAX_LISTED),
        newest_ids(bucket, TASKS_PREFIX, prediction_id_of, most=_MAX_LISTED),
        newest_ids(bucket, OPEN_PREFIX, task_id_of, most=_MAX_LISTED),
    )
    ours = {each.id for each in intents}
    unfinished = {each.id for each in open_ids}
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

    first = [each for each in intents if status != "open" or each.id in unfinished]
    found, read = await _read(first, of_ours, limit, status)
    # Tasks of other programs have no intent; ours are found again here, and left out.
    others, also_read = await _read(tasks, of_others, limit, status)
    views = sorted((*found, *others), key=_created, reverse=True)
    # Both names of one task count once; before its prediction is known it has only the first.
    total = max(len(intents), len(tasks))
    return RecentTasks(views[:limit], min(total, max(read, also_read)), total, len(unfinished))


async def _read(
    listed: Sequence[ListedId],
    read: Callable[[str], Awaitable[TaskView | None]],
    limit: int,
    status: StatusFilter,
) -> tuple[list[TaskView], int]:
    """Read objects until enough of them fit; how many were read."""
    found: list[TaskView] = []
    done = 0
    while len(found) < limit and done < min(len(listed), _MAX_READ):
        batch = listed[done : done + min(_AT_ONCE, max(1, limit - len(found)))]
        views = await asyncio.gather(*(read(each.id) for each in batch))
        found += [view for view in views if view is not None and _fits(view, status)]
        done += len(batch)
    return found, done


def _created(view: TaskView) -> str:
    """The time in milliseconds where it is known: tasks of one second are sorted by it."""
    return rfc3339_ms(view.history[0].at_ms) if view.history else view.created_at or ""


def _fits(view: TaskView, status: StatusFilter) -> bool:
    if status == "open":
        return view.status not in TERMINAL or view.state not in (None, "delivered")
    return status in ("all", view.status)
