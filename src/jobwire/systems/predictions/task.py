"""`tasks/{prediction_id}.json`: the documented record of a task (P-4). Pure.

We write the extended form and read the minimal one too. Others may write the object as well, so
it is kept as the JSON it is: members that we do not know survive our rewriting.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, get_args

from jobwire.objects import is_valid_key
from jobwire.systems.predictions.contract import (
    EVENTS_FILTER,
    FAILED,
    MODE,
    QUEUED,
    SUCCEEDED,
    TERMINAL,
    TaskErrorCode,
    TaskStatus,
    rfc3339,
)
from jobwire.systems.predictions.intent import Intent, Outcome, Output
from jobwire.systems.predictions.json_values import dumps, integer, items, loads, mapping, text

Document = Mapping[str, object]
# The largest task object that is read; ours have about one kilobyte.
MAX_TASK_BYTES: Final = 256 * 1024
_OURS: Final = "jobwire"
_STATUSES: Final[dict[str, TaskStatus]] = {each: each for each in get_args(TaskStatus)}


class BadTask(Exception):
    """A task object that cannot be worked on; the message has the reason."""


@dataclass(frozen=True, slots=True)
class TaskObject:
    """The known members of a task object of any program."""

    document: Document
    prediction_id: str
    chat_id: int
    user_id: int
    message_id: int | None
    file_id: str | None
    input_key: str | None
    input_mime: str
    input_size: int
    status: TaskStatus
    created_ms: int
    tid: str | None
    """The task id, if jobwire created the task."""
    settled_by_us: bool

    @property
    def terminal(self) -> bool:
        return self.status in TERMINAL

    @property
    def outcome(self) -> Outcome:
        """The published end of a terminal task of ours."""
        ours = mapping(self.document.get(_OURS))
        error = mapping(self.document.get("error"))
        outputs = tuple(
            Output(
                url=_text(each.get("url")),
                key=_text(each.get("key")),
                mime=_text(each["mime"]),
                text=_text(each.get("text")),
            )
            for each in map(mapping, items(ours.get("outputs")))
            if "mime" in each
        )
        return Outcome(
            SUCCEEDED if self.status == SUCCEEDED else FAILED,
            outputs=outputs,
            code=_text(error.get("code")),
            message=_text(error.get("message")),
        )


def parse(body: bytes, prediction_id: str) -> TaskObject:
    """Read a task object; `BadTask` if it is not one, or its state is unknown."""
    document = loads(body)
    if document is None:
        raise BadTask("it is not a JSON object")
    status = document.get("status", QUEUED)
    if not isinstance(status, str) or status not in _STATUSES:
        raise BadTask(f"its status {str(status)[:40]!r} is unknown")
    chat_id, user_id = integer(document.get("chat_id")), integer(document.get("user_id"))
    if chat_id is None:
        raise BadTask("it has no chat_id")
    if document.get("prediction_id", prediction_id) != prediction_id:
        raise BadTask("its prediction_id is not the one of its key")
    telegram, given = mapping(document.get("telegram")), mapping(document.get("input"))
    ours = mapping(document.get(_OURS))
    return TaskObject(
        document=document,
        prediction_id=prediction_id,
        chat_id=chat_id,
        user_id=chat_id if user_id is None else user_id,
        message_id=integer(telegram.get("message_id")),
        file_id=_text(telegram.get("file_id")),
        input_key=_key(given.get("s3_key")) or _key(document.get("input_s3_key")),
        input_mime=_text(given.get("mime")) or "image/jpeg",
        input_size=integer(given.get("size_bytes")) or 0,
        status=_STATUSES[status],
        created_ms=_time_ms(document.get("created_at")),
        tid=_text(ours.get("tid")),
        settled_by_us="settled" in ours,
    )


def document_of(intent: Intent, *, model: str, version: str | None) -> Document:
    """The extended form of a task of ours that is not finished."""
    assert intent.prediction_id is not None
    assert intent.input is not None
    return {
        "prediction_id": intent.prediction_id,
        "chat_id": intent.photo.chat_id,
        "user_id": intent.photo.user_id,
        "input_s3_key": intent.input.key,
        "mode": MODE,
        "telegram": {"file_id": intent.photo.file_id, "message_id": intent.photo.message_id},
        "input": {
            "s3_key": intent.input.key,
            "mime": intent.input.mime,
            "size_bytes": intent.input.size,
        },
        "replicate": {
            "model": model,
            "version": version,
            "webhook_events_filter": list(EVENTS_FILTER),
        },
        "status": intent.status,
        "created_at": rfc3339(intent.created_ms),
        "updated_at": rfc3339(intent.updated_ms),
        "result": {"output_url": None, "output_s3_key": None},
        "error": {"code": None, "message": None},
        _OURS: {"tid": intent.tid, "tenant": intent.tenant},
    }


def with_status(document: Document, status: TaskStatus, now_ms: int) -> Document:
    """The document with another state that is not an end."""
    return {**document, "status": status, "updated_at": rfc3339(now_ms)}


def with_outcome(document: Document, tid: str, outcome: Outcome, now_ms: int) -> Document:
    """The document with its end, marked as ours."""
    first = outcome.outputs[0] if outcome.outputs else Output()
    code = outcome.code if outcome.status == FAILED else None
    return {
        **document,
        "status": outcome.status,
        "updated_at": rfc3339(now_ms),
        "result": {
            **mapping(document.get("result")),
            "output_url": first.url,
            "output_s3_key": first.key,
        },
        "error": {
            **mapping(document.get("error")),
            "code": code,
            "message": outcome.message if code else None,
        },
        _OURS: {
            **mapping(document.get(_OURS)),
            "tid": tid,
            "settled": rfc3339(now_ms),
            "outputs": [
                {"key": each.key, "mime": each.mime, "url": each.url}
                | ({"text": each.text} if each.text else {})
                for each in outcome.outputs
            ],
        },
    }


def encode(document: Document, writer: str) -> bytes:
    """The bytes of a version; `writer` makes them unique."""
    stamped = {**document, _OURS: {**mapping(document.get(_OURS)), "writer": writer}}
    return dumps(stamped, indent=2)


def known_code(code: str | None) -> TaskErrorCode:
    """A code of ours; whatever else stands in an object counts as the provider's failure."""
    return TaskErrorCode(code) if code in set(TaskErrorCode) else TaskErrorCode.PROVIDER_FAILED


def _key(value: object) -> str | None:
    """A key that an object can have; None for paths and addresses that others write there."""
    key = text(value)
    return key if is_valid_key(key) else None


def _text(value: object) -> str | None:
    return text(value) or None


def _time_ms(value: object) -> int:
    """A time of ours or another program's; 0 where it cannot be read."""
    if not isinstance(value, str):
        return 0
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return 0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        return math.floor(moment.timestamp() * 1000)
    except (OverflowError, OSError):
        return 0
