"""What lies in the bucket of predictions, as data: keys, states, codes, types, lifetimes.

The keys without `.json` under `tasks/` are additions of ours; they share the prefix so that the
same lifecycle rule removes them, and a program that lists `tasks/*.json` never meets them.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, Literal

from jobwire.objects.lifecycle import Rule

LIFECYCLE: Final = (
    Rule("ExpireTasks", "tasks/", 2),
    Rule("ExpireInputImages", "images/input/", 14),
    Rule("ExpireOutputImages", "images/output/", 14),
)

TASKS_PREFIX: Final = "tasks/"
INTENTS_PREFIX: Final = "tasks/intents/"
OPEN_PREFIX: Final = "tasks/open/"
LISTING_KEY: Final = "tasks/intents/.listing"
"""When reconcile last walked `tasks/`, and where to go on (P-29)."""
POLLER_KEY: Final = "tasks/intents/.poller"
"""Who polls for updates, and until when no other process does (P-26)."""
TASK_SUFFIX: Final = ".json"
OUTPUT_PREFIX: Final = "images/output/"
MAX_OUTPUT_BYTES: Final = 20 * 1024 * 1024
"""The largest output that is fetched; models enlarge what users send."""

JSON_TYPE: Final = "application/json; charset=utf-8"
MARKER_TYPE: Final = "application/octet-stream"
JPEG: Final = "image/jpeg"
PNG: Final = "image/png"
INPUT_TYPES: Final = (JPEG, PNG)
EXTENSIONS: Final = {JPEG: "jpg", PNG: "png", "image/webp": "webp", "image/gif": "gif"}

MODE: Final = "process_photo"
EVENTS_FILTER: Final = ("completed",)

TaskStatus = Literal["queued", "processing", "succeeded", "failed"]
QUEUED: Final = "queued"
PROCESSING: Final = "processing"
SUCCEEDED: Final = "succeeded"
FAILED: Final = "failed"
TERMINAL: Final = frozenset({SUCCEEDED, FAILED})

# Ids come from providers and other programs and become parts of keys.
_PREDICTION_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_TASK_ID: Final = re.compile(r"[a-z2-7]{32}")


class TaskErrorCode(StrEnum):
    """`error.code` of a task; each has its words for the user in `texts.py`."""

    TOO_LARGE = "too_large"
    NOT_A_PHOTO = "not_a_photo"
    PHOTO_UNAVAILABLE = "photo_unavailable"
    TOO_MANY_AT_ONCE = "too_many_at_once"
    TOO_MANY_PER_HOUR = "too_many_per_hour"
    TOO_MANY_IN_ALBUM = "too_many_in_album"
    BUSY = "busy"
    PROVIDER_FAILED = "provider_failed"
    PROVIDER_REJECTED = "provider_rejected"
    PROVIDER_ACCOUNT = "provider_account"
    CONTENT_REFUSED = "content_refused"
    CANCELED = "canceled"
    TIMEOUT = "timeout"
    OUTPUT_EXPIRED = "output_expired"
    OUTPUT_REFUSED = "output_refused"
    BLOCKED = "blocked"
    UNDELIVERED = "undelivered"


def is_prediction_id(text: str) -> bool:
    """Whether a provider's id may become part of a key."""
    return _PREDICTION_ID.fullmatch(text) is not None


def is_task_id(text: str) -> bool:
    """Whether this has the form of a task id of ours."""
    return _TASK_ID.fullmatch(text) is not None


def input_key(date_s: int, uuid: str, mime: str) -> str:
    """`images/input/{yyyy}/{mm}/{dd}/{uuid}.jpg`; the date is the message's, in UTC."""
    return f"images/input/{_day(date_s)}/{uuid}.{EXTENSIONS[mime]}"


def output_key(date_s: int, prediction_id: str, index: int, mime: str) -> str:
    """`images/output/{yyyy}/{mm}/{dd}/{prediction_id}.jpg`; from the second picture on `-2`."""
    name = prediction_id if index == 0 else f"{prediction_id}-{index + 1}"
    return f"{OUTPUT_PREFIX}{_day(date_s)}/{name}.{EXTENSIONS[mime]}"


def task_key(prediction_id: str) -> str:
    return f"{TASKS_PREFIX}{prediction_id}{TASK_SUFFIX}"


def intent_key(tid: str) -> str:
    return f"{INTENTS_PREFIX}{tid}"


def open_key(tid: str) -> str:
    return f"{OPEN_PREFIX}{tid}"


def prediction_id_of(key: str) -> str | None:
    """The id in the key of a task object; None for any other key under `tasks/`."""
    name = key.removeprefix(TASKS_PREFIX)
    found = name.removesuffix(TASK_SUFFIX)
    return found if name.endswith(TASK_SUFFIX) and is_prediction_id(found) else None


def task_id_of(key: str) -> str | None:
    """The id in the key of an intent or an open marker; None for any other key.

    Some stores list an empty folder as an object.
    """
    tid = key.rpartition("/")[2]
    return tid if is_task_id(tid) else None


def webhook_url(public_url: str, callback_url: str, provider: str, tid: str) -> str | None:
    """Where a provider sends the outcome of a task; None without any public address.

    `callback_url` is a function of its own, whose address has no path to choose by.
    """
    if callback_url:
        return f"{callback_url}{'&' if '?' in callback_url else '?'}tid={tid}"
    return f"{public_url.rstrip('/')}/hooks/{provider}/{tid}" if public_url else None


def user_key(chat_id: int) -> str:
    return f"users/{chat_id}.json"


def rfc3339(now_ms: int) -> str:
    """A time as the task object has it: UTC, whole seconds, `Z`."""
    return datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_ms(now_ms: int) -> str:
    """A time with its milliseconds, for display."""
    moment = datetime.fromtimestamp(now_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _day(date_s: int) -> str:
    return datetime.fromtimestamp(date_s, UTC).strftime("%Y/%m/%d")
