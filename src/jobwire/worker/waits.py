"""Waits of a handler without a worker: sleeps, signals, children (D-11 … D-16).

Each call makes a plan as in `steps.py`. What the record has is returned; otherwise the plan asks
for the job to be suspended, which ends the run. The next run makes the same call again.
"""

from collections.abc import Generator, Sequence
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from jobwire.job.engine import StepRules
from jobwire.job.errors import ChildFailed, Fail, SignalTimeout
from jobwire.job.ids import child_job_id
from jobwire.job.messages import (
    CHILD_FIELD,
    DUE_FIELD,
    ENDED_CHILD_FIELD,
    GATHER_FIELD,
    RESTARTS_FIELD,
    SIGNAL_DUE_FIELD,
    SIGNAL_FIELD,
    ChildSubmission,
    JobId,
    Restarted,
    Suspended,
)
from jobwire.json_types import Read, reader
from jobwire.task import HasTask, Task, task_of
from jobwire.worker.codec import JsonTooLarge, NotJson, to_json
from jobwire.worker.steps import Plan, SleepHere, StepRecord, Submit, Suspend, named

R_co = TypeVar("R_co", covariant=True)

SHORT_S: Final = 5.0
"""A sleep below this is spent in the worker."""
MAX_SLEEP_S: Final = 315_360_000.0
"""Ten years."""
MAX_WAIT_S: Final = 2_592_000.0
DEFAULT_WAIT_S: Final = 604_800.0
LOOK_AGAIN_S: Final = 3_600.0
"""A job that waits for children looks again after this, should their ends have been missed."""
_decode_signal: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_child: Final = msgspec.json.Decoder(tuple[str, str]).decode
_decode_end: Final = msgspec.json.Decoder(list[Any]).decode


class Child(Generic[R_co]):
    """A job that `ctx.submit` has made; for `ctx.gather`."""

    __slots__ = ("job_id", "name", "task")

    def __init__(self, name: str, job_id: JobId, task: Task[Any, R_co]) -> None:
        self.name = name
        """Its name in the record of its parent."""
        self.job_id = job_id
        self.task = task

    def __repr__(self) -> str:
        return f"Child({self.name!r}, {self.job_id!r})"


def sleep(record: StepRecord, seconds: float | timedelta, name: str) -> Plan:
    rules = _rules(record)
    if isinstance(seconds, timedelta):
        seconds = seconds.total_seconds()
    if not 0 <= seconds <= MAX_SLEEP_S:
        raise ValueError(f"sleep({seconds!r}): must be a number of seconds, 0 to ten years")
    if name == "signal":
        # Numbered, it would be the field of a wait for a signal.
        raise ValueError("'signal' cannot name a sleep: the times of signals are recorded so")
    return _sleep(record, rules, seconds, record.numbered(named(name, "sleep"), DUE_FIELD))


def _sleep(record: StepRecord, rules: StepRules, left_s: float, name: str) -> Plan:
    field = DUE_FIELD + name
    due = record.fields.get(field)
    if due is not None or left_s >= SHORT_S:
        record.reach(field)
    if due is not None:
        left_s = record.left_s(due)
    elif left_s >= SHORT_S:
        record.check_space(name, rules)
    wait = Suspended("sleep", name, left_s, field)
    if left_s < SHORT_S:
        if left_s > 0 and not rules.skips_sleeps:
            yield SleepHere(left_s, wait)
        return
    yield Suspend(wait)


def signal(record: StepRecord, name: str, kind: object, timeout_s: float | timedelta) -> Plan:
    rules = _rules(record)
    if isinstance(timeout_s, timedelta):
        timeout_s = timeout_s.total_seconds()
    if not 0 < timeout_s <= MAX_WAIT_S:
        raise ValueError(f"wait_for_signal: timeout_s={timeout_s!r} must be at most 30 days")
    name = named(name, "signal")
    try:
        read = reader(kind)
    except TypeError as error:
        raise Fail("signal_invalid", f"the signal {name!r}: no value is read as {error}") from None
    return _signal(record, rules, name, read, timeout_s)


def _signal(record: StepRecord, rules: StepRules, name: str, read: Read, timeout_s: float) -> Plan:
    field, due = SIGNAL_FIELD + name, SIGNAL_DUE_FIELD + name
    stored = record.fields.get(field)
    if stored is None or due in record.fields:
        record.reach(due)
    if stored is None:
        if due not in record.fields:
            record.check_space(name, rules)
        yield Suspend(Suspended("signal", name, timeout_s, due, (field,)))
        return None
    _, *value = _decode_signal(stored)
    if not value:
        raise SignalTimeout(name)
    record.read.add(name)
    try:
        return read(bytes(value[0]))
    except ValueError as error:
        raise Fail("signal_invalid", f"the signal {name!r} is not valid: {error}") from None


def submit(
    record: StepRecord,
    parent: JobId,
    task: "str | HasTask[Any, Any]",
    payload: object,
    key: str | None,
) -> "Generator[Any, object, Child[Any]]":
    rules = _rules(record)
    if isinstance(task, str):
        found = Task[Any, Any](task, object, cast(Any, None))
    else:
        found = task_of(task)
    if key is None:
        number = record.count(CHILD_FIELD + found.name)
        name = f":{number}@{found.name}"
    else:
        name = f"{named(key, 'key')}@{found.name}"
    return _submit(record, rules, parent, name, found, payload)


def _submit(
    record: StepRecord,
    rules: StepRules,
    parent: JobId,
    name: str,
    task: Task[Any, Any],
    payload: object,
) -> "Generator[Any, object, Child[Any]]":
    field = CHILD_FIELD + name
    if (stored := record.fields.get(field)) is not None:
        return Child(name, JobId(_decode_child(stored)[0]), task)
    record.reach(field)
    restarts = record.fields.get(RESTARTS_FIELD)
    job_id = child_job_id(parent, f"{restarts} {name}" if restarts else name)
    text = _object_json(f"child {name!r}", {} if payload is None else payload, rules)
    request = ChildSubmission(job_id, task.name, text)
    yield Submit(field, msgspec.json.encode(request).decode())
    record.add(field, msgspec.json.encode((job_id, task.name)).decode())
    return Child(name, job_id, task)


def gather(record: StepRecord, children: Sequence[Child[Any]], return_exceptions: bool) -> Plan:
    _rules(record)
    lacking = [
        name for child in children if (name := ENDED_CHILD_FIELD + child.name) not in record.fields
    ]
    lacking = list(dict.fromkeys(lacking))
    place = GATHER_FIELD + children[0].name if children else ""
    if lacking or place in record.fields:
        record.reach(place)
    if lacking:
        what = children[0].name if len(children) == 1 else f"{len(lacking)} of {len(children)}"
        yield Suspend(Suspended("children", what, LOOK_AGAIN_S, place, tuple(lacking)))
    ends = [_end(record, child) for child in children]
    if not return_exceptions:
        for end in ends:
            if isinstance(end, ChildFailed):
                raise end
    return ends


def _end(record: StepRecord, child: Child[Any]) -> object:
    _, status, *content = _decode_end(record.fields[ENDED_CHILD_FIELD + child.name])
    if not content:
        gone = {"code": "child_gone", "message": "the result of the child is gone"}
        return ChildFailed(child.job_id, gone)
    if status == "done":
        return child.task.read_result(content[0])
    error: object = content[0]
    if not isinstance(error, dict):
        error = {"code": str(status), "message": str(error)}
    return ChildFailed(child.job_id, cast("dict[str, object]", error))


def restart(record: StepRecord, payload: object) -> Plan:
    text = _object_json("restart", payload, _rules(record))
    return _restart(record, text)


def _restart(record: StepRecord, payload_json: str) -> Plan:
    yield Suspend(Restarted(payload_json, tuple(sorted(record.read))))


def _rules(record: StepRecord) -> StepRules:
    record.check_running()
    if record.rules is None:
        raise Fail("unsupported", "the wire of this queue cannot suspend jobs: use a queue of jobs")
    return record.rules


def _object_json(what: str, payload: object, rules: StepRules) -> str:
    try:
        text = to_json(payload, rules.max_payload_bytes)
    except (JsonTooLarge, NotJson) as error:
        raise Fail("invalid_payload", f"the payload of {what}: {error}") from None
    if not text.startswith("{"):
        raise Fail("invalid_payload", f"the payload of {what} must be an object")
    return text
