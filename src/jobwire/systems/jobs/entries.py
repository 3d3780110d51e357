"""Replies of the server, read into fetched entries and leased jobs.

The engine calls it on the hot path, once per job. It trusts the shape of our scripts' replies, and
nothing that a foreign program may have written inside.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias, cast

from jobwire.job.messages import JobId, JobInfo, LeasedJob, Outcome, ParentJob, Policy, Token
from jobwire.job.retry import deadline_exceeded
from jobwire.systems.jobs.codec import number, read_payload, seconds
from jobwire.systems.jobs.contract import DEFAULT_QUEUE, QUEUE_SEPARATOR, EntryField
from jobwire.valkey import Reply

_NO_POLICY: Final = Policy()

_MaybeText: TypeAlias = str | None
_Row: TypeAlias = tuple[str, str, str, str, str, int, int, _MaybeText, *tuple[_MaybeText, ...]]
"""The entry's name, id, task, payload, token, attempt, deliveries, creation time; then, if they
were read, the extras of the hash: max_attempts, timeout_s, tenant, traceparent, and steps, parent
and reports if it has one of them or a deadline, and how many ms are left until that."""


_FIRST: Final = 4
"""Extras that are there if any are."""


class FetchedEntry(NamedTuple):
    """An entry that a blocking read has fetched: pending under this consumer, not started yet."""

    entry: str
    job_id: str
    task: str
    payload: str
    queue: str

    @property
    def name(self) -> str:
        """The entry as replies of our scripts name it: unique among all queues."""
        return entry_name(self.queue, self.entry)


def entry_name(queue: str, entry: str) -> str:
    """An entry's name among the entries of all queues; ids of two streams may be equal."""
    return entry if queue == DEFAULT_QUEUE else f"{entry}{QUEUE_SEPARATOR}{queue}"


def split_name(name: str) -> tuple[str, str]:
    """Queue and entry of an entry's name."""
    entry, _, queue = name.partition(QUEUE_SEPARATOR)
    return queue or DEFAULT_QUEUE, entry


def read_fetched(reply: Reply, queues: Mapping[str, str]) -> list[FetchedEntry]:
    """The reply to XREADGROUP; empty after a timeout. `queues` has the names of the streams."""
    by_stream = cast("dict[str, list[tuple[str, list[str] | None]]] | None", reply) or {}
    fetched: list[FetchedEntry] = []
    for stream, rows in by_stream.items():
        for entry, flat in rows:
            found = dict(zip(flat[::2], flat[1::2], strict=True)) if flat else {}
            texts = (found.get(EntryField.JOB_ID, ""), found.get(EntryField.TASK, ""))
            payload = found.get(EntryField.PAYLOAD, "")
            fetched.append(FetchedEntry(entry, *texts, payload, queues[stream]))
    return fetched


def read_leased(row: Reply, payloads: Mapping[str, str]) -> LeasedJob:
    """A started job, as take.lua returns it; `payloads` has those that were fetched before, by the
    names of their entries."""
    entry, job_id, task, payload, token, attempt, deliveries, created_ms, *extras = cast(
        "_Row", row
    )
    if payloads:
        payload = payloads.get(entry, payload)
    queue = DEFAULT_QUEUE
    if QUEUE_SEPARATOR in entry:
        queue, entry = split_name(entry)
    policy, tenant, traceparent = _NO_POLICY, "", ""
    if extras:
        max_attempts, timeout_s, tenant, traceparent = extras[:_FIRST]
        if max_attempts or timeout_s:
            policy = Policy(number(max_attempts), seconds(timeout_s or ""))
    if len(extras) > _FIRST:
        steps, parent, reports, *left_ms = extras[_FIRST:]
        preset: Outcome | None = None
        if left_ms:
            left_s = int(left_ms[0] or 0) / 1000
            policy = policy._replace(deadline_left_s=left_s)
            preset = deadline_exceeded() if left_s <= 0 else None
        job = JobInfo(
            *(JobId(job_id), queue, task, read_payload(payload), attempt, deliveries),
            *(number(created_ms) or 0, tenant or "", traceparent or ""),
            # The queue of a parent is not known, nor needed.
            parent=ParentJob("", parent.partition(" ")[0]) if parent else None,
            reported=bool(reports),
        )
        return LeasedJob(job, Token(token), policy, preset, entry, number(steps) or 0)
    job = JobInfo(
        JobId(job_id),
        queue,
        task,
        read_payload(payload),
        attempt,
        deliveries,
        number(created_ms) or 0,
        tenant or "",
        traceparent or "",
    )
    return LeasedJob(job, Token(token), policy, None, entry)
