"""Outcomes and reports as arguments of the scripts that write them. Pure.

The engine calls it with a batch; the result is the script to run for each part of the batch, so
that each kind of outcome is written by one script, however many jobs there are.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final, assert_never, cast

import msgspec

from jobwire.job.messages import (
    RECORD_KIND,
    SUBMIT_KIND,
    Canceled,
    ChildSubmission,
    Done,
    Failed,
    JobError,
    LeasedJob,
    Outcome,
    Postponed,
    RateLimited,
    Released,
    Report,
    ReportAnswer,
    Restarted,
    RetryLater,
    SettleAnswer,
    Suspended,
    WaitsForChildren,
)
from jobwire.systems.jobs.codec import (
    write_canceled,
    write_error,
    write_exception,
    write_retrying,
    written,
)
from jobwire.systems.jobs.contract import (
    CONSUMER_PREFIX,
    DEFAULT_QUEUE,
    EVENT_TYPE,
    MAX_CHILD_DEPTH,
    MAX_CHILDREN,
    MAX_EVENT_BYTES,
    RESERVED_TYPES,
    RESTART,
    Code,
    EventStep,
    RecordField,
    Status,
)
from jobwire.systems.jobs.scripts import script
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Arg, Connection, Reply, Script

_log = logging.getLogger("jobwire.streams")

_SETTLE: Final = script("settle")
RETRY: Final = script("retry")
_RELEASE: Final = script("release")
_REPORT: Final = script("report")
_RECORD: Final = script("record")
SUSPEND: Final = script("suspend")
_SUBMIT_CHILD: Final = script("submit_child")
_SETTLED: Final = {answer.value: answer for answer in SettleAnswer}
_REPORTED: Final = {answer.value: answer for answer in ReportAnswer}

# On the hot path a plain text is cheaper than an enum member.
_DONE: Final = Status.DONE.value
_ERROR: Final = Status.ERROR.value
_CANCELED: Final = Status.CANCELED.value
_STEP: Final = EventStep.REPORT.value

_UNWRITABLE: Final = Failed(JobError(Code.HANDLER_ERROR, "the handler's outcome cannot be written"))

Call = tuple[Script, list[int], list[Arg]]


def head(settings: StreamsSettings, consumer: str) -> tuple[Arg, ...]:
    """The first arguments of every script of a worker."""
    return (settings.job_ttl_s, settings.max_events, consumer)


def calls(
    batch: Sequence[tuple[LeasedJob, Outcome]], settings: StreamsSettings, limit: int
) -> Iterator[Call]:
    """The script calls that write `batch`: each with the places of its jobs, in order. The answers
    to a call without places mean nothing."""
    for at in range(0, len(batch), limit):
        yield from _calls(batch[at : at + limit], at, settings)


def _calls(
    batch: Sequence[tuple[LeasedJob, Outcome]], offset: int, settings: StreamsSettings
) -> Iterator[Call]:
    store_tracebacks = settings.store_tracebacks
    is_kept_shorter = settings.keep_done or settings.keep_failed or settings.keep_done_of
    ends: Call = (_SETTLE, [], [])
    retries: Call = (RETRY, [], [])
    releases: Call = (_RELEASE, [], [])
    suspends: Call = (SUSPEND, [], [])
    selected: dict[str, str] = {}
    if recorded := [(leased, "", "") for leased, _ in batch if leased.records]:
        # The records live as long as the jobs: extended before the outcomes, under the same lease.
        yield _RECORD, [], _record_args(recorded)
    for place, (leased, outcome) in enumerate(batch, offset):
        fence = (leased.job.id, cast(str, leased.wire), leased.token)
        try:
            target, texts = _outcome_args(outcome, leased.job.attempt, store_tracebacks)
        except Exception:  # noqa: BLE001 - the other jobs of the batch are settled
            # A handler's error need not be valid text; its job ends nevertheless.
            _log.exception(
                "outcome cannot be written job_id=%(job_id)s; settled as failed",
                {"job_id": leased.job.id},
            )
            target, texts = _outcome_args(_UNWRITABLE, leased.job.attempt, False)
        if is_kept_shorter and target is _SETTLE:
            texts = (_with_retention(str(texts[0]), leased.job.task, settings), *texts[1:])
        if target is _SETTLE:
            call = ends
            if leased.job.parent is not None:
                texts = (_of_child(str(texts[0])), *texts[1:])
        elif target is SUSPEND:
            call, texts = suspends, (*texts, settings.max_suspended)
        else:
            call = retries if target is RETRY else releases
        queue = leased.job.source
        # By the script's name: the hash of a script is that of its whole text.
        if queue != selected.get(target.name, DEFAULT_QUEUE):
            selected[target.name] = queue
            call[2].extend(select_queue_args(queue, 3 + len(texts)))
        call[1].append(place)
        call[2].extend((*fence, *texts))
    yield from (call for call in (ends, retries, releases, suspends) if call[1])


def _of_child(status: str) -> str:
    """D-15: the end of this job is recorded with its parent."""
    kept, _, status = status.rpartition(" ")
    return f"{kept} +{status}" if kept else f"+{status}"


def _with_retention(status: str, task: str, settings: StreamsSettings) -> str:
    """L-8: the status, after the seconds that the job is kept if they are not its `ttl_s`."""
    if status == _ERROR:
        kept = settings.keep_failed
    else:
        kept = settings.keep_done_of.get(task, settings.keep_done)
    return f"{max(1, round(kept.total_seconds()))} {status}" if kept else status


def _outcome_args(
    outcome: Outcome, attempt: int, store_tracebacks: bool
) -> tuple[Script, tuple[Arg, ...]]:
    """The script for one outcome, and its arguments."""
    match outcome:
        case Done():
            return _SETTLE, (_DONE, outcome.result_json, "")
        case Failed():
            error = write_error(outcome.error, attempt)
            exception = write_exception(outcome.error) if store_tracebacks else ""
            return _SETTLE, (_ERROR, error, exception)
        case Canceled():
            return _SETTLE, (_CANCELED, write_canceled(outcome.partial_json, attempt), "")
        case RetryLater():
            delay_ms = max(0, round(outcome.after_s * 1000))
            exception = write_exception(outcome.error) if store_tracebacks else ""
            data = write_retrying(outcome.error, attempt, delay_ms)
            again = msgspec.json.encode(outcome.again).decode() if outcome.again else ""
            return RETRY, (delay_ms, data, exception, again)
        case Released():
            return _RELEASE, ()
        case Suspended():
            waits = msgspec.json.encode([_wait_args(each) for each in outcome.alone()])
            return SUSPEND, (outcome.kind, waits.decode(), "")
        case Restarted():
            read = msgspec.json.encode(outcome.read).decode()
            return SUSPEND, (RESTART, outcome.payload_json, read)
        case Postponed() | RateLimited() | WaitsForChildren():
            # No handler can declare these on this wire: the worker refuses to start.
            raise TypeError(f"the wire has no {type(outcome).__name__}")
        case _:
            assert_never(outcome)


def _wait_args(wait: Suspended) -> tuple[object, ...]:
    after_ms = max(0, round(wait.after_s * 1000))
    return (wait.kind, written(wait.name), after_ms, wait.due_field, wait.names)


def reports(
    batch: Sequence[tuple[LeasedJob, Report]], limit: int, queue_of: Callable[[str], str]
) -> Iterator[Call]:
    """The same for reports, records and children; a report that the wire cannot carry is in no
    call, and is dropped. Records and children have scripts of their own: the calls keep the order
    of each job. `queue_of` has the queue of a task, if the worker knows it."""
    for at in range(0, len(batch), limit):
        part = list(enumerate(batch[at : at + limit], at))
        if all(report.kind not in _REQUESTS for _, (_, report) in part):
            yield from _report_calls(part)
            continue
        for kind, wave in _waves(part):
            if kind == RECORD_KIND:
                yield from _record_calls(wave)
            elif kind == SUBMIT_KIND:
                yield from _child_calls(wave, queue_of)
            else:
                yield from _report_calls(wave)


_Placed = tuple[int, tuple[LeasedJob, Report]]
_REQUESTS: Final = frozenset((RECORD_KIND, SUBMIT_KIND))


def _waves(part: Sequence[_Placed]) -> Iterator[tuple[str, list[_Placed]]]:
    """Reports, records and children in turns, as few as keep the order of each job's own ones."""
    waves: list[tuple[str, list[_Placed]]] = []
    last: dict[str, int] = {}
    for placed in part:
        leased, report = placed[1]
        kind = report.kind if report.kind in _REQUESTS else ""
        at = last.get(leased.token, 0)
        while at < len(waves) and waves[at][0] != kind:
            at += 1
        if at == len(waves):
            waves.append((kind, []))
        waves[at][1].append(placed)
        last[leased.token] = at
    yield from waves


def _report_calls(part: Sequence[_Placed]) -> Iterator[Call]:
    places: list[int] = []
    args: list[Arg] = []
    selected = DEFAULT_QUEUE
    for place, (leased, report) in part:
        if not _may_be_written(report):
            _log.warning(
                "report cannot be written job_id=%(job_id)s kind=%(kind)s; dropped",
                {"job_id": leased.job.id, "kind": report.kind},
            )
            continue
        if leased.job.source != selected:
            selected = leased.job.source
            args += select_queue_args(selected, 7)
        places.append(place)
        args += (leased.job.id, cast(str, leased.wire), leased.token, report.number)
        args += (report.kind, report.step or _STEP, report.data_json)
    if places:
        yield _REPORT, places, args


def _record_calls(part: Sequence[_Placed]) -> Iterator[Call]:
    rows = [(leased, report.step, report.data_json) for _, (leased, report) in part]
    yield _RECORD, [place for place, _ in part], _record_args(rows)


def _child_calls(part: Sequence[_Placed], queue_of: Callable[[str], str]) -> Iterator[Call]:
    args: list[Arg] = [MAX_CHILDREN, MAX_CHILD_DEPTH]
    selected = DEFAULT_QUEUE
    for _, (leased, report) in part:
        child = msgspec.json.decode(report.data_json, type=ChildSubmission)
        if leased.job.source != selected:
            selected = leased.job.source
            args += select_queue_args(selected, 8)
        args += (leased.job.id, cast(str, leased.wire), leased.token, child.job_id)
        args += (report.step.removeprefix(RecordField.CHILD), written(child.task))
        args += (child.payload_json, queue_of(child.task))
    yield _SUBMIT_CHILD, [place for place, _ in part], args


def _record_args(rows: Sequence[tuple[LeasedJob, str, str]]) -> list[Arg]:
    args: list[Arg] = []
    selected = DEFAULT_QUEUE
    for leased, field, value in rows:
        if leased.job.source != selected:
            selected = leased.job.source
            args += select_queue_args(selected, 5)
        args += (leased.job.id, cast(str, leased.wire), leased.token, field, value)
    return args


def select_queue_args(queue: str, width: int) -> list[Arg]:
    """Before the arguments of jobs of another queue than the previous one; without an entry."""
    return [queue, *[""] * (width - 1)]


def read_settled(reply: Reply) -> list[SettleAnswer]:
    return [_SETTLED[word] for word in cast("list[str]", reply)]


def read_reported(reply: Reply) -> list[ReportAnswer]:
    return [_REPORTED[word] for word in cast("list[str]", reply)]


def _may_be_written(report: Report) -> bool:
    """J-4: a valid type that is not reserved, and data within the limit."""
    text = report.data_json
    return (
        report.kind not in RESERVED_TYPES
        and EVENT_TYPE.fullmatch(report.kind) is not None
        and (len(text) * 4 <= MAX_EVENT_BYTES or len(text.encode()) <= MAX_EVENT_BYTES)
    )


def reclaim_terms(settings: StreamsSettings, *, late_s: float) -> tuple[Arg, ...]:
    """When leases expire; `late_s` is added to every limit."""
    return (
        CONSUMER_PREFIX,
        round(settings.lease_s * 1000),
        round(max(settings.foreign_idle_s, settings.lease_s) * 1000),
        round(late_s * 1000),
        settings.max_deliveries,
    )


def reconnected(connection: Connection, settings: StreamsSettings) -> Arg:
    """1 within a third of the lease after a reconnect: nothing is reclaimed yet (G-27)."""
    return 1 if connection.since_reconnect_s < settings.lease_s / 3 else 0
