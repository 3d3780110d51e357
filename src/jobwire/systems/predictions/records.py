"""Intents, open markers and task objects in the bucket, by conditional writes (P-10).

An update is a pure function from intent to intent. The loser of a race reads again and applies
its function to what it finds, so the function checks what it stands on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec.structs import replace

from jobwire.job.clock import Clock
from jobwire.objects import (
    Bucket,
    Changed,
    Created,
    Exists,
    Found,
    Missing,
    Replaced,
    TooLarge,
    Unavailable,
    Version,
)
from jobwire.systems.predictions import task
from jobwire.systems.predictions.contract import (
    JSON_TYPE,
    MARKER_TYPE,
    intent_key,
    open_key,
    task_key,
)
from jobwire.systems.predictions.intent import Intent, with_transition

log: Final = logging.getLogger("jobwire.predictions")

_MAX_INTENT_BYTES: Final = 256 * 1024
# Writers of one intent are few: so many lost races mean a broken store.
_MAX_ROUNDS: Final = 30
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Intent).decode

Change = Callable[[Intent], Intent]


class BadIntent(Exception):
    """An intent that cannot be read; the message names it."""


@dataclass(frozen=True, slots=True)
class Current:
    """An intent as it was last seen. `written` is False where an update had nothing to change."""

    intent: Intent
    version: Version
    written: bool = True


@dataclass(frozen=True, slots=True)
class TaskFound:
    """A task object as it was last seen."""

    task: task.TaskObject
    version: Version


class Records:
    """The decisions of all tasks of one bucket."""

    def __init__(self, bucket: Bucket, clock: Clock) -> None:
        self._bucket = bucket
        self._clock = clock

    async def open(self, tid: str) -> None:
        """Mark a task as not finished. Comes before its intent, so that no intent is forgotten."""
        # By the calls that learn the store's time, before a task is dated by it.
        headers = {"content-type": MARKER_TYPE}
        await self._bucket.calls.send("PUT", open_key(tid), headers=headers)

    async def close(self, tid: str) -> None:
        """Remove the mark; the last step of a task."""
        await self._bucket.delete(open_key(tid))

    async def create(self, intent: Intent) -> tuple[Current, bool]:
        """Create an intent, or find the one that exists; True if this call created it."""
        answer = await self._bucket.create(
            intent_key(intent.tid),
            lambda writer: _encode(replace(intent, writer=writer)),
            content_type=JSON_TYPE,
        )
        match answer:
            case Created(version):
                return Current(intent, version), True
            case Exists(found):
                return _current(intent.tid, found), False

    async def load(self, tid: str) -> Current | None:
        """The intent of a task, if there is one."""
        try:
            found = await self._bucket.get(intent_key(tid), max_bytes=_MAX_INTENT_BYTES)
        except TooLarge as error:
            raise BadIntent(str(error)) from error
        return None if isinstance(found, Missing) else _current(tid, found)

    async def update(self, current: Current, change: Change) -> Current | None:
        """Apply a change to the newest version; None if the intent is gone."""
        for _ in range(_MAX_ROUNDS):
            wanted = change(current.intent)
            if wanted == current.intent:
                return Current(current.intent, current.version, written=False)
            now_ms = self._clock.now_ms()
            noted = with_transition(wanted, current.intent.state, now_ms)
            stamped = replace(noted, rev=current.intent.rev + 1, updated_ms=now_ms, writer="")

            def compose(writer: str, stamped: Intent = stamped) -> bytes:
                return _encode(replace(stamped, writer=writer))

            answer = await self._bucket.replace(
                intent_key(stamped.tid), compose, seen=current.version, content_type=JSON_TYPE
            )
            match answer:
                case Replaced(version):
                    return Current(stamped, version)
                case Changed(found):
                    current = _current(stamped.tid, found)
                case Missing():
                    return None
        raise Unavailable(
            f"{intent_key(current.intent.tid)} was changed by other processes {_MAX_ROUNDS} times"
        )

    async def load_task(self, prediction_id: str) -> TaskFound | None:
        """The task object of a prediction; `BadTask` if it cannot be read."""
        key = task_key(prediction_id)
        try:
            found = await self._bucket.get(key, max_bytes=task.MAX_TASK_BYTES)
        except TooLarge as error:
            raise task.BadTask(str(error)) from error
        if isinstance(found, Missing):
            return None
        return TaskFound(task.parse(found.body, prediction_id), found.version)

    async def create_task(self, prediction_id: str, document: task.Document) -> bool:
        """Write a task object that does not exist; False if another writer was first."""
        answer = await self._bucket.create(
            task_key(prediction_id),
            lambda writer: task.encode(document, writer),
            content_type=JSON_TYPE,
        )
        return isinstance(answer, Created)

    async def replace_task(self, found: TaskFound, document: task.Document) -> bool:
        """Write over the version that was seen; False if it has changed or is gone."""
        answer = await self._bucket.replace(
            task_key(found.task.prediction_id),
            lambda writer: task.encode(document, writer),
            seen=found.version,
            content_type=JSON_TYPE,
        )
        return isinstance(answer, Replaced)


async def write_json(
    bucket: Bucket, key: str, compose: Callable[[str], bytes], seen: Version | None
) -> Version | Found | Missing:
    """Create an object, or replace the version that was seen.

    Returns the new version, or what is there if another writer was first.
    """
    if seen is None:
        answer = await bucket.create(key, compose, content_type=JSON_TYPE)
    else:
        answer = await bucket.replace(key, compose, seen=seen, content_type=JSON_TYPE)
    match answer:
        case Created(version) | Replaced(version):
            return version
        case Exists(found) | Changed(found):
            return found
        case Missing():
            return answer


def _current(tid: str, found: Found) -> Current:
    try:
        intent = _decode(found.body)
    except msgspec.MsgspecError as error:
        raise BadIntent(f"{intent_key(tid)} is not an intent ({error})") from error
    # The nonce of its writer is not part of an intent's content.
    return Current(replace(intent, writer=""), found.version)
