"""The bot's tasks as an operator sees them, from bounded listings of the bucket. Reads only.

A finished task does not change, so a reading costs two listings and the objects that are new or
open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from jobwire.objects import Bucket
from jobwire.systems.predictions.contract import (
    OPEN_PREFIX,
    TASKS_PREFIX,
    TERMINAL,
    prediction_id_of,
    task_id_of,
)
from jobwire.systems.predictions.listing import (
    ListedId,
    TaskView,
    find_task,
    newest_ids,
    read_all,
    read_task,
)
from jobwire.systems.predictions.records import Records

_MAX_LISTED: Final = 5_000
"""Task objects that one reading lists."""
_MAX_READ: Final = 500
"""Of these, the newest ones that are read."""
_MAX_OPEN: Final = 1_000
_MAX_OPEN_READ: Final = 50


class OpenTask(NamedTuple):
    """A task that is not finished, and since when."""

    view: TaskView | None
    opened_at: datetime


class ListedTask(NamedTuple):
    """A task object, and when it was written last."""

    view: TaskView
    written_at: datetime


@dataclass(frozen=True, slots=True)
class TaskOverview:
    """`open_count` tasks are not finished; `total` have a task object. Those that were read."""

    open: Sequence[OpenTask]
    open_count: int
    tasks: Sequence[ListedTask]
    total: int


class OverviewReader:
    """Reads snapshots of one bucket; remembers finished tasks."""

    def __init__(self, bucket: Bucket, records: Records) -> None:
        self._bucket = bucket
        self._records = records
        self._known: dict[str, ListedTask] = {}

    async def read(self) -> TaskOverview:
        """ObjectsError if the store does not answer."""
        opened = await newest_ids(self._bucket, OPEN_PREFIX, task_id_of, most=_MAX_OPEN)
        listed = await newest_ids(self._bucket, TASKS_PREFIX, prediction_id_of, most=_MAX_LISTED)
        tasks = await read_all(self._task, listed[:_MAX_READ])
        open_tasks = await read_all(self._open, opened[::-1][:_MAX_OPEN_READ])
        found = [each for each in tasks if each is not None]
        self._known = {each.view.id: each for each in found}
        marked = {each.id for each in opened}
        # A task of another program has no marker.
        others = [
            OpenTask(view, written_at)
            for view, written_at in found
            if view.status not in TERMINAL and view.task_id not in marked
        ]
        return TaskOverview([*open_tasks, *others], len(opened) + len(others), found, len(listed))

    async def _task(self, listed: ListedId) -> ListedTask | None:
        known = self._known.get(listed.id)
        # Only the end of a task is final: the store's times have whole seconds.
        if known is not None and known.view.status in TERMINAL:
            return known
        view = await read_task(self._records, listed.id)
        if view is None:
            return None
        # At once: a cancelled read keeps the tasks that it has read.
        self._known[listed.id] = task = ListedTask(view, listed.written_at)
        return task

    async def _open(self, listed: ListedId) -> OpenTask:
        return OpenTask(await find_task(self._records, listed.id), listed.written_at)
