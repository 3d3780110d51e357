"""The bot's tasks as an operator sees them, from bounded listings of the bucket. Reads only.

The bucket has no query: tasks are listed by key, and read to know their state. A finished task does
not change, so a reading costs a listing and the objects that are new or open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from jobwire.objects import Bucket, Entry
from jobwire.wires.predictions.contract import (
    OPEN_PREFIX,
    TASK_SUFFIX,
    TASKS_PREFIX,
    TERMINAL,
    is_prediction_id,
    is_task_id,
)
from jobwire.wires.predictions.listing import TaskView, find_task, read_task
from jobwire.wires.predictions.records import Records

_MAX_LISTED: Final = 5_000
"""Task objects that one reading lists."""
_MAX_READ: Final = 500
"""Of these, the newest ones that are read."""
_MAX_OPEN: Final = 1_000
_MAX_OPEN_READ: Final = 50
_PAGE: Final = 1_000
_AT_ONCE: Final = 16


class OpenTask(NamedTuple):
    """A task that is not finished, and since when."""

    view: TaskView | None
    opened_at: datetime


class ListedTask(NamedTuple):
    """A task object, and when it was written last."""

    view: TaskView
    written_at: datetime


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """`open_count` tasks are not finished; `total` have a task object. Those that were read."""

    open: Sequence[OpenTask]
    open_count: int
    tasks: Sequence[ListedTask]
    total: int


class SnapshotReader:
    """Reads snapshots of one bucket; remembers finished tasks."""

    def __init__(self, bucket: Bucket, records: Records) -> None:
        self._bucket = bucket
        self._records = records
        self._known: dict[str, ListedTask] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def read(self) -> TaskSnapshot:
        """ObjectsError if the store does not answer."""
        opened = await self._listed(OPEN_PREFIX, _MAX_OPEN)
        objects = [
            entry
            for entry in await self._listed(TASKS_PREFIX, _MAX_LISTED)
            if entry.key.endswith(TASK_SUFFIX)
        ]
        newest = sorted(objects, key=lambda entry: entry.modified_at, reverse=True)[:_MAX_READ]
        oldest = sorted(opened, key=lambda entry: entry.modified_at)[:_MAX_OPEN_READ]
        tasks = await asyncio.gather(*map(self._task, newest))
        open_tasks = await asyncio.gather(*map(self._open, oldest))
        found = [each for each in tasks if each is not None]
        self._known = {each.view.id: each for each in found}
        marked = {entry.key.removeprefix(OPEN_PREFIX) for entry in opened}
        # A task of another program has no marker.
        others = [
            OpenTask(view, written_at)
            for view, written_at in found
            if view.status not in TERMINAL and view.task_id not in marked
        ]
        return TaskSnapshot([*open_tasks, *others], len(opened) + len(others), found, len(objects))

    async def _listed(self, prefix: str, most: int) -> list[Entry]:
        entries: list[Entry] = []
        after = ""
        while len(entries) < most:
            page = await self._bucket.page(prefix, after=after, limit=_PAGE)
            entries += page.entries
            if page.next_after is None:
                break
            after = page.next_after
        return entries[:most]

    async def _task(self, entry: Entry) -> ListedTask | None:
        prediction_id = entry.key.removeprefix(TASKS_PREFIX).removesuffix(TASK_SUFFIX)
        known = self._known.get(prediction_id)
        # Only the end of a task is final: the store's times have whole seconds.
        if known is not None and known.view.status in TERMINAL:
            return known
        if not is_prediction_id(prediction_id):
            return None
        async with self._slots:
            view = await read_task(self._records, prediction_id)
        if view is None:
            return None
        listed = ListedTask(view, entry.modified_at)
        # At once: a reading that is broken off has not read in vain.
        self._known[prediction_id] = listed
        return listed

    async def _open(self, entry: Entry) -> OpenTask:
        tid = entry.key.removeprefix(OPEN_PREFIX)
        async with self._slots:
            view = await find_task(self._records, tid) if is_task_id(tid) else None
        return OpenTask(view, entry.modified_at)
