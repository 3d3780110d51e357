"""Texts of the wire to values, and back.

The queue and the consumer call it. Hashes are read with tolerance: another program may have written
anything. Missing or invalid fields are described in `Job.problem`, never raised.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias, cast

import msgspec
from msgspec import UNSET, UnsetType

from jobwire.job.messages import Json
from jobwire.json_depth import bounded, has_large_number
from jobwire.systems.queues.contract import KEEP_LIMIT, BullField, BullState, KeepRule, Opt
from jobwire.valkey import Reply

_decode: Final = bounded(msgspec.json.Decoder().decode)
_decode_raw: Final = bounded(msgspec.json.Decoder(msgspec.Raw).decode)
_ATTEMPTS: Final = Opt.ATTEMPTS.value
_PRIORITY: Final = Opt.PRIORITY.value
_SHORT: Final = 200
"""Characters of options that are kept decoded."""
_BAD_DATA: Final = "the field data is not JSON"
_NO_NAME: Final = "the job has no name"


class JobHash(NamedTuple):
    """A job hash, read. `take` brings the fields down to `parent_key`, which a worker needs; the
    others have their defaults then."""

    id: str
    name: str
    data_json: str
    opts: dict[str, Json]
    timestamp_ms: int
    attempts_made: int
    attempts_started: int
    stacktrace: tuple[str, ...]
    scheduler: str
    deferred_failure: str
    problem: str
    """Why the job cannot be run; empty where it can."""
    payload: "Json | UnsetType" = UNSET
    """The data, decoded: only after `take`."""
    priority: int = 0
    parent_key: str = ""
    delay_ms: int = 0
    stalled: int = 0
    progress_json: str = "0"
    return_json: str = ""
    failed_reason: str = ""
    processed_on_ms: int | None = None
    finished_on_ms: int | None = None
    processed_by: str = ""
    deduplication_id: str = ""

    @property
    def attempts(self) -> int:
        """How often it may run."""
        return number_of(self.opts.get(_ATTEMPTS)) or 0


class Took(NamedTuple):
    """A job was started under one of the caller's tokens."""

    job: JobHash
    number: int
    """That of the token."""


class Limited(NamedTuple):
    """The rate limit is reached; `due_ms` as for Empty."""

    wait_ms: int
    due_ms: int


class QueueBlocked(NamedTuple):
    """The queue is paused, or runs as many jobs as it may."""


class Empty(NamedTuple):
    """Nothing waits; `due_ms` is when the next delayed job is due, 0 if there is none."""

    due_ms: int


class BrokenJob(NamedTuple):
    """A job's keys are not what they should be; the stalled check of its queue finds it."""

    error: str


class BrokenQueue(NamedTuple):
    """The server refuses to read the queue."""

    error: str


TakeAnswer = Took | Limited | QueueBlocked | Empty | BrokenJob | BrokenQueue


_KEEP_ALL: Final = KeepRule()


def read_take(reply: Reply) -> TakeAnswer:
    """What `take` answered for one token."""
    match reply:
        case ["job", str(job_id), list(row), int(number)]:
            return Took(_read_started(job_id, cast("_Row", row)), number)
        case ["limited", int(wait_ms), str(due_ms)]:
            return Limited(wait_ms, int(due_ms))
        case ["empty", str(due_ms)]:
            return Empty(int(due_ms))
        case ["failed", str(error)]:
            return BrokenJob(error)
        case ["broken", str(error)]:
            return BrokenQueue(error)
        case _:
            return QueueBlocked()


_Text: TypeAlias = str | None
_Row: TypeAlias = tuple[
    *(_Text, _Text, _Text, _Text, _Text, int | _Text, _Text, _Text, _Text, _Text, _Text)
]
"""Name, data, opts, timestamp, attempts made and started, stack trace, scheduler, deferred failure,
priority, key of the parent."""


def _read_started(job_id: str, row: _Row) -> JobHash:
    """What a worker has to know of a job that it has started."""
    name, data, opts_json, timestamp, made, started, stacks, scheduler, deferred, *rest = row
    priority, parent_key = rest
    opts, problem = _options("{}" if opts_json is None else opts_json)
    payload: Json = None
    try:
        payload = cast(Json, _decode(data or ""))
    except (msgspec.DecodeError, ValueError):
        problem = problem or _BAD_DATA
    if name is None:
        problem = problem or _NO_NAME
    return JobHash(
        job_id,
        name or "",
        data or "",
        opts,
        number_of(timestamp) or 0,
        number_of(made) or 0 if made else 0,
        started if isinstance(started, int) else number_of(started) or 0,
        _texts(stacks) if stacks else (),
        scheduler or "",
        deferred or "",
        problem,
        payload,
        number_of(opts.get(_PRIORITY) if priority is None else priority) or 0,
        parent_key or "",
    )


def _options(text: str) -> tuple[dict[str, Json], str]:
    """The options of a job, and what is wrong with them. Most jobs of a queue have the same."""
    return _short_options(text) if len(text) <= _SHORT else _object(text)


def read_job(job_id: str, flat: list[Reply]) -> JobHash:
    """A hash as HGETALL gives it inside a script: names and values in turn."""
    words = cast("list[str]", flat)
    return read_fields(job_id, dict(zip(words[::2], words[1::2], strict=True)))


def read_fields(job_id: str, found: dict[str, str]) -> JobHash:
    get = found.get
    opts, problem = _object(get(BullField.OPTS, "{}"))
    data = get(BullField.DATA, "")
    if not _is_json(data):
        problem = problem or _BAD_DATA
    if BullField.NAME not in found:
        problem = problem or _NO_NAME
    progress = get(BullField.PROGRESS, "0")
    returned = get(BullField.RETURN_VALUE, "")
    return JobHash(
        id=job_id,
        name=get(BullField.NAME, ""),
        data_json=data,
        opts=opts,
        timestamp_ms=number_of(get(BullField.TIMESTAMP)) or 0,
        delay_ms=number_of(get(BullField.DELAY)) or 0,
        priority=number_of(get(BullField.PRIORITY, opts.get(Opt.PRIORITY))) or 0,
        attempts_started=number_of(get(BullField.ATTEMPTS_STARTED)) or 0,
        attempts_made=number_of(get(BullField.ATTEMPTS_MADE)) or 0,
        stalled=number_of(get(BullField.STALLED)) or 0,
        progress_json=progress if _is_json(progress) else "0",
        return_json=returned if _is_json(returned) else "",
        failed_reason=get(BullField.FAILED_REASON, ""),
        stacktrace=_texts(get(BullField.STACKTRACE, "[]")),
        processed_on_ms=number_of(get(BullField.PROCESSED_ON)),
        finished_on_ms=number_of(get(BullField.FINISHED_ON)),
        processed_by=get(BullField.PROCESSED_BY, ""),
        parent_key=get(BullField.PARENT_KEY, ""),
        scheduler=get(BullField.SCHEDULER, ""),
        deduplication_id=get(BullField.DEDUPLICATION_ID, ""),
        deferred_failure=get(BullField.DEFERRED_FAILURE, ""),
        problem=problem,
    )


def read_counts(numbers: Sequence[int]) -> dict[BullState, int]:
    """The numbers of the script `counts`. Jobs that an older program moved to the list `paused` are
    waiting ones."""
    waiting, in_paused, active, delayed, prioritized, waiting_children, completed, failed = numbers
    return {
        BullState.WAITING: waiting + in_paused,
        BullState.PRIORITIZED: prioritized,
        BullState.DELAYED: delayed,
        BullState.ACTIVE: active,
        BullState.WAITING_CHILDREN: waiting_children,
        BullState.COMPLETED: completed,
        BullState.FAILED: failed,
    }


def keep_rule(value: Json, default: KeepRule | None = None) -> KeepRule:
    """`removeOnComplete` or `removeOnFail` of a job, read; an invalid value keeps all jobs."""
    if value is None:
        return default or _KEEP_ALL
    if isinstance(value, bool):
        return KeepRule(0 if value else -1)
    if isinstance(value, int | float):
        most = number_of(value)
        return KeepRule() if most is None or most < 0 else KeepRule(most)
    if not isinstance(value, dict):
        return KeepRule()
    count, age, limit = (number_of(value.get(name)) for name in ("count", "age", "limit"))
    return KeepRule(-1 if count is None else count, -1 if age is None else age, limit or KEEP_LIMIT)


def clean(text: str, most: int) -> str:
    """A handler's text in the form that servers accept: lone surrogates replaced, clipped."""
    return readable(text if len(text) <= most else text[: most - 1] + "…")


def readable(text: str) -> str:
    """Foreign bytes that are not UTF-8 arrive as lone surrogates, which JSON cannot have."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def read_json(text: str) -> Json:
    """A value that another program wrote; None if it is not JSON."""
    try:
        return cast(Json, _decode(text))
    except (msgspec.DecodeError, ValueError):
        return None


def json_or_text(text: str) -> "msgspec.Raw | str":
    """A value that another program wrote, to be sent on; the text itself if it is not JSON. It is
    not decoded: ten megabytes of small members are a gigabyte of objects."""
    return msgspec.Raw(text.encode()) if _is_json(text) else readable(text)


def json_text(value: Json) -> str:
    return msgspec.json.encode(value).decode()


def _object(text: str) -> tuple[dict[str, Json], str]:
    value = read_json(text)
    if isinstance(value, dict):
        return value, ""
    return {}, "the field opts is not a JSON object"


_short_options: Final = lru_cache(maxsize=256)(_object)


def _is_json(text: str) -> bool:
    try:
        data = text.encode()
        _decode_raw(text)
    except (msgspec.DecodeError, ValueError):
        return False
    return not has_large_number(data)


def _texts(text: str) -> tuple[str, ...]:
    value = read_json(text)
    return tuple(str(line) for line in value) if isinstance(value, list) else ()


def number_of(value: Json) -> int | None:
    """A number that another program wrote as text or as JSON; None if it is not a number."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        return int(float(value)) if isinstance(value, int | float | str) else None
    except (ValueError, OverflowError):
        return None
