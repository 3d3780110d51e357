"""The bot's tasks as an operator sees them. Reads only.

A finished task does not change, so a reading costs the names and the objects that are new or open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from jobwire.systems.predictions.contract import TERMINAL
from jobwire.systems.predictions.listing import TaskView, find_task, read_all, read_task
from jobwire.systems.predictions.records import Records
from jobwire.systems.predictions.task_names import ListedId, TaskNamesReader


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


class PredictionsOverviewReader:
    """Reads snapshots of one bucket; remembers finished tasks."""

    def __init__(self, names: TaskNamesReader, records: Records) -> None:
        self._names = names
        self._records = records
        self._known: dict[str, ListedTask] = {}

    async def read(self) -> TaskOverview:
        """ObjectsError if the store does not answer."""
        names = await self._names.read()
        tasks = await read_all(self._task, names.tasks.newest)
        open_tasks = await read_all(self._open, names.open.oldest)
        found = [each for each in tasks if each is not None]
        self._known = {each.view.id: each for each in found}
        # A task of another program has no marker.
        others = [
            OpenTask(view, written_at)
            for view, written_at in found
            if view.status not in TERMINAL and view.task_id is None
        ]
        open_count = names.open.count + len(others)
        return TaskOverview([*open_tasks, *others], open_count, found, names.tasks.count)

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
