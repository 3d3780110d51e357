"""Replies of the server, read into fetched entries and leased jobs.

The engine calls it on the hot path, once per job. It trusts the shape of our scripts' replies, and
nothing that a foreign program may have written inside.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias, cast

from jobwire.job.messages import JobId, JobInfo, LeasedJob, Policy, Token
from jobwire.valkey import Reply
from jobwire.wires.streams.codec import number, read_payload, seconds
from jobwire.wires.streams.contract import EntryField

_NO_POLICY: Final = Policy()

_MaybeText: TypeAlias = str | None
_Row: TypeAlias = tuple[str, str, str, str, str, int, int, _MaybeText, *tuple[_MaybeText, ...]]
"""Entry, id, task, payload, token, attempt, deliveries, creation time; then, if they were read, the
extras of the hash: max_attempts, timeout_s, tenant, traceparent."""


class FetchedEntry(NamedTuple):
    """An entry that a blocking read has fetched: pending under this consumer, not started yet."""

    entry: str
    job_id: str
    task: str
    payload: str


def read_fetched(reply: Reply) -> list[FetchedEntry]:
    """The reply to XREADGROUP; empty after a timeout."""
    by_stream = cast("dict[str, list[tuple[str, list[str] | None]]] | None", reply) or {}
    fetched: list[FetchedEntry] = []
    for rows in by_stream.values():
        for entry, flat in rows:
            found = dict(zip(flat[::2], flat[1::2], strict=True)) if flat else {}
            texts = (found.get(EntryField.JOB_ID, ""), found.get(EntryField.TASK, ""))
            fetched.append(FetchedEntry(entry, *texts, found.get(EntryField.PAYLOAD, "")))
    return fetched


def read_leased(row: Reply, source: str, payloads: Mapping[str, str]) -> LeasedJob:
    """A started job, as take.lua returns it; `payloads` has those that were fetched before."""
    entry, job_id, task, payload, token, attempt, deliveries, created_ms, *extras = cast(
        "_Row", row
    )
    if payloads:
        payload = payloads.get(entry, payload)
    policy, tenant, traceparent = _NO_POLICY, "", ""
    if extras:
        max_attempts, timeout_s, tenant, traceparent = extras
        if max_attempts or timeout_s:
            policy = Policy(number(max_attempts), seconds(timeout_s or ""))
    job = JobInfo(
        JobId(job_id),
        source,
        task,
        read_payload(payload),
        attempt,
        deliveries,
        number(created_ms) or 0,
        tenant or "",
        traceparent or "",
    )
    return LeasedJob(job, Token(token), policy, None, entry)
