"""The producer's side of the Streams wire: submit, read, list, cancel.

The gateway and producers have one each, over a shared connection. It implements the `JobQueue`
protocol: calls are sent in their order and within this turn of the event loop. It checks payloads
and lifetimes, not whether a task exists: that is up to its caller.
"""

import contextlib
import math
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple, cast

import msgspec

from jobwire.job.errors import BackendUnavailable, ContractError, RefusedError
from jobwire.job.ids import new_job_id, new_job_ids, new_shard_id, new_shard_ids
from jobwire.job.messages import (
    CancelOutcome,
    JobId,
    JobRequest,
    SubmitAnswer,
)
from jobwire.systems.jobs import contract
from jobwire.systems.jobs.codec import (
    Record,
    number,
    open_children,
    read_record,
    read_status,
    read_submitted,
    readable,
)
from jobwire.systems.jobs.contract import Extra, Field, RecordField, Status, StreamsKeys
from jobwire.systems.jobs.payload import check_payload
from jobwire.systems.jobs.replies import LazyReply, collect
from jobwire.systems.jobs.scripts import script
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.systems.jobs.submit_batcher import submit_batcher
from jobwire.valkey import Arg, Connection, Reply

_CANCEL: Final = script("cancel")
_LIST: Final = script("list")
_STEPS: Final = script("list_steps")
_SIGNAL: Final = script("signal")
_COPY: Final = script("copy_record")

_MAX_SCANNED: Final = 1_000
_STATUS_AND_TENANT: Final = (Field.JOB_ID, Field.STATUS, Extra.TENANT, Extra.STARTED_TS)
_FILTERED: Final = (Field.STATUS, Field.TASK)
_LISTED: Final = (
    Field.JOB_ID,
    Field.ERROR,
    Field.CREATED_TS,
    Field.UPDATED_TS,
    Field.TTL_S,
    Extra.ATTEMPT,
    Extra.WORKER,
    Extra.STARTED_TS,
    Extra.CANCEL_TS,
    Extra.PROGRESS,
    Extra.RETRY_OF,
    Extra.QUEUE,
    Extra.WAITS_FOR,
    Extra.ENTRY_ID,
)
"""Fields of a job in a list: none that may be large."""


_COUNT: Final = 10
"""Arguments of a job without extra fields, for the submit script."""

_PLAIN: Final = 4
"""Those of a job that has none of the further ones. Most have none, and each costs the server about
a thousand instructions."""


class StatusAndTenant(NamedTuple):
    """A job's status and tenant."""

    status: Status
    tenant: str
    started_ms: int | None
    """When its newest run began; None if it has not, or not with a worker of ours."""


class Selection(NamedTuple):
    """Which jobs a list shows; empty and None select all."""

    status: str = ""
    task: str = ""
    text: str = ""
    """A part of the id or of the task, in any case."""
    delayed: bool | None = None
    """Whether a waiting job must be delayed, or must not."""


class StepSummary(NamedTuple):
    """A recorded step; None where it was started and has no result."""

    name: str
    ended_ms: int | None
    ms: int | None
    bytes: int | None


class ChildSummary(NamedTuple):
    """A child of a job."""

    name: str
    job_id: str
    task: str
    status: str
    """Empty until it has ended."""


class RecordSummary(NamedTuple):
    """What a job has recorded, without the results."""

    steps: list[StepSummary]
    """By their end."""
    children: list[ChildSummary]
    """The first 100, by name."""
    total: int
    """How many children there are; and of those that have ended:"""
    done: int
    error: int
    canceled: int


class StepResult(NamedTuple):
    """The result of a step."""

    ended_ms: int
    ms: int
    result: msgspec.Raw


_decode_step: Final = msgspec.json.Decoder(StepResult).decode


class SignalOutcome(StrEnum):
    """The result of a signal (D-12)."""

    RECORDED = "recorded"
    SAME = "same"
    """It has this value since an earlier call."""
    OTHER = "other"
    """It has another value."""
    LATE = "late"
    """The job has waited for it in vain."""
    FULL = "full"
    """The job has too many signals, or too many bytes of them, or its tenant has too many bytes."""
    FINISHED = "finished"
    GONE = "gone"


class QueuePage(NamedTuple):
    """One page of a list; `cursor` is where the next one begins, empty after the last."""

    records: list[Record]
    scanned: int
    total: int
    cursor: str
    incomplete: tuple[int, ...] = ()
    """Shards that did not answer."""


class StreamsQueue:
    def __init__(
        self,
        connection: Connection,
        settings: StreamsSettings | None = None,
        tenant_max_bytes: Callable[[], int] | None = None,
        on_delayed: Callable[[], None] = lambda: None,
    ) -> None:
        """`tenant_max_bytes` is that of the settings unless it depends on the server; `on_delayed`
        is called when a job with a delay is submitted."""
        self.settings = settings or StreamsSettings()
        self._tenant_max_bytes = tenant_max_bytes or (lambda: self.settings.tenant_max_bytes)
        self.keys = StreamsKeys(self.settings.key_prefix)
        self._connection = connection
        self._declared = (self.keys.queue,)
        self._on_delayed = on_delayed
        shard = self.settings.shard
        self._new_id, self._new_ids = new_job_id, new_job_ids
        if shard:
            self._new_id = partial(new_shard_id, shard)
            self._new_ids = partial(new_shard_ids, shard)
        self._batcher = submit_batcher(connection, self.keys.queue, self._limits)

    def _limits(self) -> tuple[int, int, int, int]:
        settings = self.settings
        counts = (settings.max_queue, settings.tenant_max_open, settings.tenant_max_retained)
        return *counts, self._tenant_max_bytes()

    def submit(self, request: JobRequest) -> Awaitable[SubmitAnswer]:
        """Create a job; RefusedError for a payload that the wire forbids."""
        check_payload(request.payload_json)
        return self.submit_checked(request)

    def submit_many(self, requests: Sequence[JobRequest]) -> Awaitable[list[SubmitAnswer]]:
        """Create many jobs in one round trip; RefusedError, and no job, if one is refused."""
        for request in requests:
            check_payload(request.payload_json)
        return _all(self.submit_many_checked(requests))

    def submit_checked(self, request: JobRequest) -> Awaitable[SubmitAnswer]:
        """The same for a caller that has run `check_payload` itself, on the bytes as received."""
        return self._submit(request, request.job_id or self._new_id())

    def submit_many_checked(self, requests: Sequence[JobRequest]) -> list[Awaitable[SubmitAnswer]]:
        """The same for many, each with its own answer."""
        ids = self._new_ids(len(requests))
        return [
            self._submit(request, request.job_id or job_id)
            for request, job_id in zip(requests, ids, strict=True)
        ]

    def _submit(self, request: JobRequest, job_id: JobId) -> Awaitable[SubmitAnswer]:
        job = _job_args(request, job_id, self.settings)
        answer = self._batcher.add(job, len(request.payload_json))
        if request.delay_s:
            self._on_delayed()
        return answer

    def _sent(self) -> Connection:
        """The connection, for calls that must not overtake a submission."""
        self._batcher.send()
        return self._connection

    def record(self, job_id: JobId) -> Awaitable[Record | None]:
        """The job with all fields of the wire, or None."""
        return LazyReply(self._sent().call("HGETALL", self.keys.job(job_id)), read_record)

    def stub(self, job_id: JobId) -> Awaitable[Record | None]:
        """What is left of a job that is no longer kept, for its idempotency key; or None."""
        return LazyReply(self._sent().call("HGETALL", self.keys.stub(job_id)), read_record)

    def status_and_tenant(self, job_id: JobId) -> Awaitable[StatusAndTenant | None]:
        """A job's status and tenant, without reading large fields; or None."""
        call = self._sent().call("HMGET", self.keys.job(job_id), *_STATUS_AND_TENANT)
        return LazyReply(call, _read_status_and_tenant)

    def page(
        self, tenant: str, limit: int, selection: Selection | None = None, *, cursor: str = ""
    ) -> Awaitable[QueuePage]:
        """A tenant's jobs, newest first, from where the previous page ended (J-14)."""
        chosen = selection or Selection()
        delayed = "" if chosen.delayed is None else int(chosen.delayed)
        before_ms, _, before_id = cursor.partition("-")
        filters = (tenant, chosen.status, chosen.task, chosen.text, delayed)
        args = (*filters, limit, _MAX_SCANNED, before_ms, before_id, *_LISTED)
        return LazyReply(self._sent().run(_LIST, self._declared, args), _read_page)

    def due_ms(self, job_id: JobId) -> Awaitable[int | None]:
        """When a delayed or suspended job is due; None for any other job."""
        keys = (self.keys.delayed, self.keys.suspended)
        return _first_due([self._sent().call("ZSCORE", key, job_id) for key in keys])

    def summary(self, job_id: JobId) -> Awaitable[RecordSummary]:
        """What a job has recorded, without the results (D-17)."""
        return LazyReply(self._sent().run(_STEPS, self._declared, (job_id,)), _read_summary)

    async def copy_record(self, job_id: JobId, to: JobId, ttl_s: int) -> int:
        """Give a job that is submitted next what an ended one has recorded (D-13); how many
        records that are."""
        call = self._sent().run(_COPY, self._declared, (job_id, to, ttl_s))
        return cast(int, (await collect([call]))[0])

    async def forget_record(self, job_id: JobId) -> None:
        """Remove the record of a job that was not submitted."""
        await collect([self._sent().call("DEL", self.keys.steps(job_id))])

    async def cancel_children(self, job_id: JobId) -> None:
        """D-16: cancel the unfinished children of a canceled job, and theirs; what is not reached
        here is canceled when it is taken or renewed."""
        waiting = [job_id]
        for _ in range(contract.MAX_CHILD_DEPTH):
            waiting = await self._open_children(waiting)
            if not waiting:
                return
            for answer in [self.cancel(each) for each in waiting]:
                await answer

    async def _open_children(self, job_ids: Sequence[JobId]) -> list[JobId]:
        """The unfinished children of these jobs, as many as one job may have. Results, which may be
        megabytes a job, are not read."""
        call, field = self._sent().call, Extra.CHILDREN
        counts = await collect(
            [call("HGET", self.keys.job(each), field) for each in job_ids], none_if_refused=True
        )
        found: list[JobId] = []
        for job_id, count in zip(job_ids, counts, strict=True):
            if not count or len(found) >= contract.MAX_CHILDREN:
                continue
            key = self.keys.steps(job_id)
            (names,) = await collect([call("HKEYS", key)], none_if_refused=True)
            if names and (fields := open_children({*cast("list[str]", names)})):
                (texts,) = await collect([call("HMGET", key, *fields)])
                found += [JobId(read_submitted(text or "")[0]) for text in cast("list[str]", texts)]
        return found[: contract.MAX_CHILDREN]

    def step(self, job_id: JobId, name: str) -> Awaitable[StepResult | None]:
        """The result of one step; None if there is none."""
        field = RecordField.RESULT + name
        return LazyReply(self._sent().call("HGET", self.keys.steps(job_id), field), _read_step)

    def signal(self, job_id: JobId, name: str, value_json: str) -> Awaitable[SignalOutcome]:
        """Record a signal of an unfinished job, which wakes the job if it waits for it (D-12)."""
        limits = (self.settings.job_ttl_s, self.settings.max_events)
        bounds = (contract.MAX_SIGNALS, self.settings.max_record_bytes, self._tenant_max_bytes())
        args = (*limits, job_id, name, value_json, *bounds)
        reply = self._sent().run(_SIGNAL, self._declared, args)
        return LazyReply(reply, lambda word: SignalOutcome(cast(str, word)))

    def job_of_key(self, tenant: str, key: str) -> Awaitable[str | None]:
        """The id of the job that was submitted with an idempotency key, or None."""
        name = contract.idempotency_name(tenant, key)
        return LazyReply(self._sent().call("GET", self.keys.idempotency(name)), _read_text)

    def cancel(self, job_id: JobId) -> Awaitable[CancelOutcome]:
        """End the job if it waits; ask its worker to stop if it runs."""
        limits = (self.settings.job_ttl_s, self.settings.max_events)
        sent = self._sent()
        args = (*limits, job_id, contract.CONSUMER_PREFIX, contract.CANCELED_TTL_S)
        call = sent.run(_CANCEL, self._declared, (*args, sent.publish_command))
        return LazyReply(call, _read_cancel)


def _job_args(request: JobRequest, job_id: JobId, settings: StreamsSettings) -> list[Arg]:
    ttl_s = settings.job_ttl_s if request.ttl_s is None else request.ttl_s
    if not 1 <= ttl_s <= contract.MAX_TTL_S:
        raise RefusedError(
            f"ttl_s={ttl_s} must be between 1 and {contract.MAX_TTL_S}", code="invalid_ttl"
        )
    key = request.idempotency_key
    idempotency = contract.idempotency_name(request.tenant, key) if key else ""
    args: list[Arg] = [
        0,
        job_id,
        request.task,
        request.payload_json,
        ttl_s,
        max(0, round(request.delay_s * 1000)) if request.delay_s else 0,
        idempotency,
        contract.former_idempotency_name(request.tenant, key) if key else "",
        request.fingerprint,
        request.tenant,
        0 if request.job_id is None else 1,
    ]
    if request.queue and request.queue != contract.DEFAULT_QUEUE:
        args += (Extra.QUEUE, request.queue)  # first: the script selects the queue by it
    # Only fields with a value: an absent field costs no memory.
    if request.max_attempts is not None:
        args += (Extra.MAX_ATTEMPTS, request.max_attempts)
    if request.timeout_s is not None:
        args += (Extra.TIMEOUT_S, request.timeout_s)
    if request.deadline_s is not None:
        args += (Extra.DEADLINE_S, request.deadline_s)
    if idempotency:
        args += (Extra.IDEMPOTENCY_KEY, idempotency)
    if request.fingerprint:
        args += (Extra.FINGERPRINT, request.fingerprint)
    if request.tenant:
        args += (Extra.TENANT, request.tenant)
    if request.traceparent:
        args += (Extra.TRACEPARENT, request.traceparent)
    if request.retry_of:
        args += (Extra.RETRY_OF, request.retry_of)
    if request.records:
        args += (Extra.STEPS, request.records)
    if len(args) == _COUNT + 1 and not request.delay_s and request.job_id is None:
        del args[_PLAIN + 1 :]
    args[0] = len(args) - 1
    return args


def _read_status_and_tenant(reply: Reply) -> StatusAndTenant | None:
    job_id, status, tenant, started = cast("list[str | None]", reply)
    if job_id is None and status is None:
        return None
    started_ms = number(started) if started else None
    return StatusAndTenant(read_status(status or Status.QUEUED), tenant or "", started_ms)


def _read_page(reply: Reply) -> QueuePage:
    ms, last_id, scanned, total, rows = cast(
        "tuple[str, str, int, int, list[list[str | None]]]", reply
    )
    names = (*_FILTERED, *_LISTED)
    records: list[Record] = []
    for *row, due, created_ms in rows:
        found = {name: value for name, value in zip(names, row, strict=True) if value is not None}
        # A job that a foreign program has written wrongly must not hide the others.
        with contextlib.suppress(ContractError):
            if record := read_record(cast("Reply", found)):
                # The index orders the list; a foreign program may have written any time.
                place = _read_score(created_ms) or 0
                records.append(record._replace(due_ms=_read_score(due), created_ms=place))
    return QueuePage(records, scanned, total, f"{ms}-{last_id}" if ms else "")


def _read_score(reply: Reply) -> int | None:
    """A time in an index, in `jobs:delayed` or in `jobs:suspended`, which a script sends as text;
    None also for a job without a due time."""
    score = float(cast("str | float", reply or "inf"))
    return None if math.isinf(score) else int(score)


async def _first_due(calls: Sequence[Awaitable[Reply]]) -> int | None:
    found = map(_read_score, await collect(calls))
    return next((due for due in found if due is not None), None)


def _read_summary(reply: Reply) -> RecordSummary:
    steps, children, counts = cast("tuple[list[str], list[str], list[int]]", reply)
    rows = zip(*(children[at::3] for at in range(3)), strict=True)
    found = [
        ChildSummary(readable(name), readable(job_id), readable(task), readable(status))
        for name, text, status in rows
        for job_id, task in [read_submitted(text)]
    ]
    return RecordSummary(_read_steps(steps), found, *counts)


def _read_steps(flat: Sequence[str]) -> list[StepSummary]:
    rows = zip(*(flat[at::4] for at in range(4)), strict=True)
    found = [StepSummary(readable(name), *map(number, numbers)) for name, *numbers in rows]
    return sorted(found, key=lambda step: step.ended_ms or math.inf)


def _read_step(reply: Reply) -> StepResult | None:
    if reply is None:
        return None
    try:
        return _decode_step(cast(str, reply))
    except (msgspec.DecodeError, ValueError) as error:
        raise ContractError("the record of a step is unreadable", clause="D-1") from error


def _read_text(reply: Reply) -> str | None:
    return cast("str | None", reply)


def _read_cancel(reply: Reply) -> CancelOutcome:
    return CancelOutcome(cast(str, reply))


async def _all(answers: Sequence[Awaitable[SubmitAnswer]]) -> list[SubmitAnswer]:
    """All answers; every call is awaited, whatever fails."""
    collected: list[SubmitAnswer] = []
    failure: BackendUnavailable | None = None
    for answer in answers:
        try:
            collected.append(await answer)
        except BackendUnavailable as error:
            failure = error
    if failure is not None:
        raise failure
    return collected
