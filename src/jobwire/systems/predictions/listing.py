"""Tasks for display: one, or a page of them in the order of their keys. Reads only."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from jobwire.objects import Bucket, Entry
from jobwire.systems.predictions.contract import (
    TASKS_PREFIX,
    is_prediction_id,
    is_task_id,
    prediction_id_of,
    rfc3339,
    task_key,
)
from jobwire.systems.predictions.intent import Intent, Transition
from jobwire.systems.predictions.json_values import mapping, text
from jobwire.systems.predictions.records import BadIntent, Records
from jobwire.systems.predictions.task import BadTask, TaskObject

log: Final = logging.getLogger("jobwire.predictions")

MAX_PAGE: Final = 100
_PAGE_SIZE: Final = MAX_PAGE + 4
"""Names of one request for a page: one more than are shown, and the folders under `tasks/`."""
_AT_ONCE: Final = 16

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task as it is shown; members are None where the task does not have them."""

    id: str
    """The prediction's id; the task id before there is one."""
    task_id: str | None
    status: str
    state: str | None
    """The step of our own work, for tasks of ours."""
    chat_id: int
    tenant: str
    model: str | None
    input_key: str | None
    output_key: str | None
    error: str | None
    created_at: str | None
    updated_at: str | None
    prompt: str | None = None
    message: str | None = None
    """The provider's words about a failure."""
    outputs: tuple[str, ...] = ()
    """The keys of all stored pictures."""
    history: tuple[Transition, ...] = ()
    """When the task came into its states, the first one included."""


@dataclass(frozen=True, slots=True)
class TaskPage:
    """Tasks in the order of their keys; `next` continues behind the last one."""

    tasks: list[TaskView]
    next: str | None


async def list_tasks(bucket: Bucket, records: Records, *, limit: int, after: str = "") -> TaskPage:
    """A page of the task objects; one that cannot be read is left out."""
    limit = min(limit, MAX_PAGE)
    behind = task_key(after) if after else ""
    ids: list[str] = []
    async for entry in objects_under(bucket, TASKS_PREFIX, after=behind, page_size=_PAGE_SIZE):
        if (prediction_id := prediction_id_of(entry.key)) is not None:
            ids.append(prediction_id)
            if len(ids) > limit:
                break
    found = await read_all(lambda each: read_task(records, each), ids[:limit])
    following = ids[limit - 1] if len(ids) > limit else None
    return TaskPage([each for each in found if each is not None], following)


async def objects_under(
    bucket: Bucket, prefix: str, *, after: str = "", page_size: int = 1000
) -> AsyncIterator[Entry]:
    """The objects directly under a prefix, behind the key `after`, in key order."""
    following: str | None = after
    while following is not None:
        page = await bucket.page(prefix, after=following, limit=page_size)
        for entry in page.entries:
            yield entry
        following = page.next_after


async def read_all(read: Callable[[T], Awaitable[R]], given: Iterable[T]) -> list[R]:
    """Read many objects, a few at a time."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(each: T) -> R:
        async with slots:
            return await read(each)

    return await asyncio.gather(*map(one, given))


async def find_task(records: Records, wanted: str) -> TaskView | None:
    """One task by its prediction's id or by its task id, with the state of our own work."""
    view = await read_task(records, wanted) if is_prediction_id(wanted) else None
    tid = view.task_id if view else wanted
    if tid is None or not is_task_id(tid):
        return view
    try:
        current = await records.load(tid)
    except BadIntent as error:
        log.warning("listing not read error=%(error)s", {"error": error})
        return view
    if current is None:
        return view
    if view is None and current.intent.prediction_id:
        view = await read_task(records, current.intent.prediction_id)
    return of_intent(current.intent, view)


async def read_task(records: Records, prediction_id: str) -> TaskView | None:
    """A task by its task object alone; None if there is none, or it cannot be read."""
    try:
        found = await records.load_task(prediction_id)
    except BadTask as error:
        log.warning(
            "task object skipped prediction_id=%(prediction_id)s error=%(error)s",
            {"prediction_id": prediction_id, "error": error},
        )
        return None
    return None if found is None else _of_task(found.task)


def _of_task(task: TaskObject) -> TaskView:
    document = task.document
    return TaskView(
        id=task.prediction_id,
        task_id=task.tid,
        status=task.status,
        state=None,
        chat_id=task.chat_id,
        tenant=text(mapping(document.get("jobwire")).get("tenant")),
        model=text(mapping(document.get("replicate")).get("model")) or None,
        input_key=task.input_key,
        output_key=text(mapping(document.get("result")).get("output_s3_key")) or None,
        error=text(mapping(document.get("error")).get("code")) or None,
        created_at=text(document.get("created_at")) or None,
        updated_at=text(document.get("updated_at")) or None,
        message=text(mapping(document.get("error")).get("message")) or None,
        outputs=_keys(task),
    )


def _keys(task: TaskObject) -> tuple[str, ...]:
    first = text(mapping(task.document.get("result")).get("output_s3_key"))
    listed = tuple(each.key for each in task.outcome.outputs if each.key)
    return listed or ((first,) if first else ())


def of_intent(intent: Intent, view: TaskView | None = None) -> TaskView:
    """A task of ours, with what its task object adds."""
    outcome = intent.outcome
    outputs = outcome.outputs if outcome else ()
    return TaskView(
        id=intent.prediction_id or intent.tid,
        task_id=intent.tid,
        status=view.status if view else intent.status,
        state=intent.state,
        chat_id=intent.photo.chat_id,
        tenant=intent.tenant,
        model=view.model if view else None,
        input_key=intent.input.key if intent.input else None,
        output_key=outputs[0].key if outputs else None,
        error=(outcome.code if outcome else None) or intent.trouble,
        created_at=rfc3339(intent.created_ms),
        updated_at=rfc3339(intent.updated_ms),
        prompt=intent.photo.caption or None,
        message=outcome.message if outcome else None,
        outputs=tuple(each.key for each in outputs if each.key),
        history=(Transition("accepted", intent.created_ms), *intent.history),
    )
