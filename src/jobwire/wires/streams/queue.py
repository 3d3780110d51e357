"""A producer's end of the Streams wire: submit, look, list, cancel.

The gateway, the client and cron have one each, over a connection that many share. It keeps the
heart's `Queue`: what it sends leaves in the order of the calls and within this turn of the loop. It
checks sizes and names that the wire forbids, never whether a task exists: only its caller knows.
"""

import contextlib
from collections.abc import Awaitable, Sequence
from typing import Final, NamedTuple, cast

from jobwire.job.errors import BackendUnavailable, ContractError, RefusedError
from jobwire.job.ids import new_job_id, new_job_ids
from jobwire.job.messages import (
    CancelOutcome,
    JobId,
    JobRequest,
    SubmitAnswer,
)
from jobwire.valkey import Arg, Connection, Reply
from jobwire.wires.streams import contract
from jobwire.wires.streams.codec import Record, read_record, read_status
from jobwire.wires.streams.contract import Extra, Field, Status, StreamsKeys
from jobwire.wires.streams.payload import check_payload
from jobwire.wires.streams.replies import LazyReply
from jobwire.wires.streams.scripts import script
from jobwire.wires.streams.settings import StreamsSettings
from jobwire.wires.streams.submit_batcher import SubmitBatcher

_CANCEL: Final = script("cancel")
_LIST: Final = script("list")

_MOST_SCANNED: Final = 1_000
_STANDING: Final = (Field.JOB_ID, Field.STATUS, Extra.TENANT)
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
)
"""What a list shows of a job: nothing that may be large."""


class StatusAndTenant(NamedTuple):
    """Whose job it is, and how it stands."""

    status: Status
    tenant: str


class Page(NamedTuple):
    """A piece of a list; `cursor` is where the next one begins, empty after the last."""

    records: list[Record]
    scanned: int
    cursor: str


class StreamsQueue:
    def __init__(self, connection: Connection, settings: StreamsSettings | None = None) -> None:
        self.settings = settings or StreamsSettings()
        self.keys = StreamsKeys(self.settings.key_prefix)
        self._connection = connection
        self._declared = (self.keys.queue,)
        bounds = (
            self.settings.max_queue,
            self.settings.tenant_max_open,
            self.settings.tenant_max_retained,
        )
        self._submissions = SubmitBatcher(connection, self.keys.queue, bounds)

    def submit(self, order: JobRequest) -> Awaitable[SubmitAnswer]:
        """Make a job of `order`; refuses a payload that the wire forbids (RefusedError)."""
        check_payload(order.payload_json)
        return self.submit_checked(order)

    def submit_many(self, orders: Sequence[JobRequest]) -> Awaitable[list[SubmitAnswer]]:
        """Make jobs of all of them in one round trip; refuses all if one must be refused."""
        for order in orders:
            check_payload(order.payload_json)
        return _all(self.submit_many_checked(orders))

    def submit_checked(self, order: JobRequest) -> Awaitable[SubmitAnswer]:
        """The same for a caller that has run `check_payload` itself, on the bytes as received."""
        return self._submit(order, order.job_id or new_job_id())

    def submit_many_checked(self, orders: Sequence[JobRequest]) -> list[Awaitable[SubmitAnswer]]:
        """The same for many, each with an answer of its own."""
        ids = new_job_ids(len(orders))
        return [
            self._submit(order, order.job_id or job_id)
            for order, job_id in zip(orders, ids, strict=True)
        ]

    def _submit(self, order: JobRequest, job_id: JobId) -> Awaitable[SubmitAnswer]:
        job = _job_args(order, job_id, self.settings)
        return self._submissions.add(job, len(order.payload_json))

    def _sent(self) -> Connection:
        """The connection, for what must not overtake a submission."""
        self._submissions.send()
        return self._connection

    def record(self, job_id: JobId) -> Awaitable[Record | None]:
        """The job with everything this wire knows of it, or None."""
        return LazyReply(self._sent().call("HGETALL", self.keys.job(job_id)), read_record)

    def status_and_tenant(self, job_id: JobId) -> Awaitable[StatusAndTenant | None]:
        """Whose job it is and how it stands, without what may be large; or None."""
        call = self._sent().call("HMGET", self.keys.job(job_id), *_STANDING)
        return LazyReply(call, _read_standing)

    def page(
        self, tenant: str, limit: int, *, status: str = "", task: str = "", cursor: str = ""
    ) -> Awaitable[Page]:
        """A tenant's jobs, newest first, from where the page before this one stopped (J-14)."""
        before_ms, _, before_id = cursor.partition("-")
        args = (tenant, status, task, limit, _MOST_SCANNED, before_ms, before_id, *_LISTED)
        return LazyReply(self._sent().run(_LIST, self._declared, args), _read_page)

    def cancel(self, job_id: JobId) -> Awaitable[CancelOutcome]:
        """End the job if it waits; tell its worker to stop if it runs."""
        limits = (self.settings.job_ttl_s, self.settings.max_events)
        args = (*limits, job_id, contract.CONSUMER_PREFIX, contract.CANCELED_TTL_S)
        return LazyReply(self._sent().run(_CANCEL, self._declared, args), _read_cancel)


def _job_args(order: JobRequest, job_id: JobId, settings: StreamsSettings) -> list[Arg]:
    ttl_s = settings.job_ttl_s if order.ttl_s is None else order.ttl_s
    if not 1 <= ttl_s <= contract.MAX_TTL_S:
        raise RefusedError(
            f"ttl_s={ttl_s} must lie between 1 and {contract.MAX_TTL_S}", code="invalid_ttl"
        )
    key = order.idempotency_key
    idempotency = contract.idempotency_name(order.tenant, key) if key else ""
    args: list[Arg] = [
        job_id,
        order.task,
        order.payload_json,
        ttl_s,
        max(0, round(order.delay_s * 1000)) if order.delay_s else 0,
        idempotency,
        contract.former_idempotency_name(order.tenant, key) if key else "",
        order.fingerprint,
        order.tenant,
        0 if order.job_id is None else 1,
    ]
    # Each only where it says something: an absent field costs no memory for the job's whole life.
    if order.max_attempts is not None:
        args += (Extra.MAX_ATTEMPTS, order.max_attempts)
    if order.timeout_s is not None:
        args += (Extra.TIMEOUT_S, order.timeout_s)
    if idempotency:
        args += (Extra.IDEMPOTENCY_KEY, idempotency)
    if order.fingerprint:
        args += (Extra.FINGERPRINT, order.fingerprint)
    if order.tenant:
        args += (Extra.TENANT, order.tenant)
    if order.traceparent:
        args += (Extra.TRACEPARENT, order.traceparent)
    if order.retry_of:
        args += (Extra.RETRY_OF, order.retry_of)
    return args


def _read_standing(reply: Reply) -> StatusAndTenant | None:
    job_id, status, tenant = cast("list[str | None]", reply)
    if job_id is None and status is None:
        return None
    return StatusAndTenant(read_status(status or Status.QUEUED), tenant or "")


def _read_page(reply: Reply) -> Page:
    ms, last_id, scanned, rows = cast("tuple[str, str, int, list[list[str | None]]]", reply)
    names = (*_FILTERED, *_LISTED)
    records: list[Record] = []
    for row in rows:
        found = {name: value for name, value in zip(names, row, strict=True) if value is not None}
        # One that a stranger has spoilt must not hide the others.
        with contextlib.suppress(ContractError):
            if record := read_record(cast("Reply", found)):
                records.append(record)
    return Page(records, scanned, f"{ms}-{last_id}" if ms else "")


def _read_cancel(reply: Reply) -> CancelOutcome:
    return CancelOutcome(cast(str, reply))


async def _all(answers: Sequence[Awaitable[SubmitAnswer]]) -> list[SubmitAnswer]:
    """Everything is on its way already: this only collects, and waits for all whatever fails."""
    collected: list[SubmitAnswer] = []
    trouble: BackendUnavailable | None = None
    for answer in answers:
        try:
            collected.append(await answer)
        except BackendUnavailable as error:
            trouble = error
    if trouble is not None:
        raise trouble
    return collected
