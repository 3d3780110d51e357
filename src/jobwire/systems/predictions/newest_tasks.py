"""The newest tasks, for display: by the times at which their objects were written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from jobwire.systems.predictions.contract import TERMINAL, rfc3339_ms
from jobwire.systems.predictions.listing import TaskView, of_intent, read_task
from jobwire.systems.predictions.records import BadIntent, Records
from jobwire.systems.predictions.task_names import ListedId, TaskNames

log: Final = logging.getLogger("jobwire.predictions")

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
    names: TaskNames, records: Records, *, limit: int, status: StatusFilter = "all"
) -> RecentTasks:
    """The newest tasks of one status; one that cannot be read is left out."""
    intents, tasks = names.intents, names.tasks
    ours = {each.id for each in intents.newest}
    known: set[str] = set()
    """Prediction ids of tasks that were read by their intent."""

    async def of_ours(tid: str) -> TaskView | None:
        try:
            current = await records.load(tid)
        except BadIntent as error:
            log.warning("listing not read error=%(error)s", {"error": error})
            return None
        if current is None:
            return None
        known.add(current.intent.prediction_id or "")
        return of_intent(current.intent)

    async def of_others(prediction_id: str) -> TaskView | None:
        if prediction_id in known:
            return None
        view = await read_task(records, prediction_id)
        if view is None or view.task_id is None:
            return view
        # Beyond the newest intents, a task with an id of ours has one too.
        return None if view.task_id in ours or intents.count > len(ours) else view

    first = names.open.newest if status == "open" else intents.newest
    found, read = await _read(first, of_ours, limit, status)
    # Tasks of other programs have no intent; ours are found again here, and left out.
    others, also_read = await _read(tasks.newest, of_others, limit, status)
    views = sorted((*found, *others), key=_created, reverse=True)
    # Both names of one task count once; before its prediction is known it has only the first.
    total = max(intents.count, tasks.count)
    return RecentTasks(views[:limit], min(total, max(read, also_read)), total, names.open.count)


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
