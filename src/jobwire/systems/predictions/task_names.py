"""The names of all tasks in the bucket, for display: how many, the newest, the oldest. Reads only.

The bucket has no query: it lists keys in the order of their names, and ids are random. So all
names are listed, without their objects, and only the newest and the oldest are kept. Many names are
listed again only after a while, so that the views cost the store a bounded part of its time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from jobwire.objects import Bucket
from jobwire.systems.predictions.contract import (
    INTENTS_PREFIX,
    OPEN_PREFIX,
    TASKS_PREFIX,
    prediction_id_of,
    task_id_of,
)
from jobwire.systems.predictions.listing import objects_under

NEWEST: Final = 500
OLDEST: Final = 50
_PRUNED_AT: Final = 4000
_MANY: Final = 3000
_PAUSE: Final = 10  # times as long as it took


class ListedId(NamedTuple):
    """The id in the key of an object, and when the object was written last."""

    written_at: datetime
    id: str


@dataclass(frozen=True, slots=True)
class Names:
    """Ids of one kind: `count` in all; the newest first, and the oldest first."""

    count: int
    newest: list[ListedId]
    oldest: list[ListedId]


@dataclass(frozen=True, slots=True)
class TaskNames:
    """Intents, task objects, open markers."""

    intents: Names
    tasks: Names
    open: Names


class TaskNamesReader:
    """Lists the names of one bucket; all callers share a reading."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._names: TaskNames | None = None
        self._until_s = float("-inf")
        self._reading = asyncio.Lock()

    async def read(self) -> TaskNames:
        """The names as they are; where there are many, as they were a while ago. ObjectsError if
        the store does not answer."""
        async with self._reading:
            if self._names is None or time.monotonic() >= self._until_s:
                begun_s = time.monotonic()
                self._names = await _list_all(self._bucket)
                took_s = time.monotonic() - begun_s
                many = max(self._names.intents.count, self._names.tasks.count) > _MANY
                self._until_s = time.monotonic() + took_s * _PAUSE if many else float("-inf")
            return self._names


async def _list_all(bucket: Bucket) -> TaskNames:
    return TaskNames(
        *await asyncio.gather(
            _list(bucket, INTENTS_PREFIX, task_id_of),
            _list(bucket, TASKS_PREFIX, prediction_id_of),
            _list(bucket, OPEN_PREFIX, task_id_of),
        )
    )


async def _list(bucket: Bucket, prefix: str, id_of: Callable[[str], str | None]) -> Names:
    count, kept = 0, list[ListedId]()
    async for entry in objects_under(bucket, prefix):
        if (listed := id_of(entry.key)) is not None:
            count += 1
            kept.append(ListedId(entry.modified_at, listed))
            if len(kept) == _PRUNED_AT:
                kept = _pruned(kept)
    kept = _pruned(kept)
    return Names(count, kept[:NEWEST], kept[: -OLDEST - 1 : -1])


def _pruned(found: list[ListedId]) -> list[ListedId]:
    found.sort(reverse=True)
    return found[:NEWEST] + found[NEWEST:][-OLDEST:]
