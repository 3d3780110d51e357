"""What a producer may ask for a job, and how it is written into the `opts` JSON.

The queue calls it after `checks.check_options`. Nothing here talks to a server.
"""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import msgspec

from jobwire.job.messages import Json
from jobwire.systems.queues.contract import Keys, Opt

_encode: Final = msgspec.json.Encoder().encode

ParentPolicy: TypeAlias = Literal["", "fail", "continue", "ignore", "remove"]
POLICIES: Final[dict[str, str]] = {
    "fail": Opt.FAIL_PARENT,
    "continue": Opt.CONTINUE_PARENT,
    "ignore": Opt.IGNORE_DEPENDENCY,
    "remove": Opt.REMOVE_DEPENDENCY,
}


@dataclass(frozen=True, slots=True)
class Keep:
    """How many finished jobs stay: `count` newest, younger than `age_s`; None means any."""

    count: int | None = None
    age_s: int | None = None
    limit: int | None = None
    """How many are removed by age in one step."""


Retention: TypeAlias = bool | int | Keep
"""True removes the job at once, False keeps it, a number keeps that many of the newest."""


@dataclass(frozen=True, slots=True)
class BullBackoff:
    """The wait before a retry; `kind` other than fixed or exponential is the handler's own."""

    kind: str
    delay_ms: int = 0
    jitter: float = 0.0
    """The part of the wait that is random, 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deduplication:
    """Jobs of one id are not added while an earlier one of them owns it."""

    id: str
    ttl_ms: int = 0
    """How long the id is owned; 0 means until the owner has ended."""
    extend: bool = False
    """Each further job starts `ttl_ms` anew."""
    replace: bool = False
    """A further job takes the place of an owner that is still delayed."""
    keep_last_if_active: bool = False
    """The newest job that comes while the owner runs is added when it has ended."""
    reschedule: bool = False
    """A further job sets the delay of an owner that is still delayed."""

    @property
    def flags(self) -> str:
        chosen = (self.extend, self.replace, self.keep_last_if_active, self.reschedule)
        return "".join(flag for flag, on in zip("erks", chosen, strict=True) if on)


@dataclass(frozen=True, slots=True)
class Parent:
    """The job that waits for this one; `policy` is the effect of a failure on it."""

    queue: str
    id: str
    policy: ParentPolicy = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BullJobOptions:
    job_id: str = ""
    delay_ms: int = 0
    priority: int = 0
    lifo: bool = False
    attempts: int = 0
    """How often the job may run; 0 and 1 both mean once."""
    backoff: BullBackoff | None = None
    timestamp_ms: int | None = None
    remove_on_complete: Retention | None = None
    remove_on_fail: Retention | None = None
    keep_logs: int | None = None
    stack_trace_limit: int | None = None
    deduplication: Deduplication | None = None
    parent: Parent | None = None
    size_limit: int | None = None
    """How many bytes the data may have."""
    telemetry_metadata: str = ""
    """The trace that the job belongs to, as Node's telemetry reads it."""
    omit_context: bool = False


def write_options(options: BullJobOptions, prefix: str) -> str:
    """The `opts` JSON. It is made here and not by the server, whose JSON cuts large numbers."""
    return _encode(option_members(options, prefix)).decode()


def template_members(options: BullJobOptions, prefix: str) -> dict[str, Json]:
    """The members of a scheduler's template, which has no default."""
    opts = option_members(options, prefix)
    return opts if options.attempts else {name: opts[name] for name in opts if name != Opt.ATTEMPTS}


def option_members(options: BullJobOptions, prefix: str) -> dict[str, Json]:
    """The members of the `opts` JSON."""
    opts: dict[str, Json] = {Opt.ATTEMPTS: options.attempts}
    if options.job_id:
        opts[Opt.JOB_ID] = options.job_id
    if options.delay_ms:
        opts[Opt.DELAY] = options.delay_ms
    if options.priority:
        opts[Opt.PRIORITY] = options.priority
    if options.lifo:
        opts[Opt.LIFO] = True
    if options.backoff is not None:
        opts[Opt.BACKOFF] = _backoff(options.backoff)
    if options.timestamp_ms is not None:
        opts[Opt.TIMESTAMP] = options.timestamp_ms
    if options.remove_on_complete is not None:
        opts[Opt.REMOVE_ON_COMPLETE] = _retention(options.remove_on_complete)
    if options.remove_on_fail is not None:
        opts[Opt.REMOVE_ON_FAIL] = _retention(options.remove_on_fail)
    if options.keep_logs is not None:
        opts[Opt.KEEP_LOGS] = options.keep_logs
    if options.stack_trace_limit is not None:
        opts[Opt.STACKTRACE_LIMIT] = options.stack_trace_limit
    if options.deduplication is not None:
        opts[Opt.DEDUPLICATION] = _deduplication(options.deduplication)
    if options.parent is not None:
        keys = Keys(options.parent.queue, prefix)
        opts[Opt.PARENT] = {"id": options.parent.id, "queue": keys.base[:-1]}
        if options.parent.policy:
            opts[POLICIES[options.parent.policy]] = True
    if options.size_limit is not None:
        opts[Opt.SIZE_LIMIT] = options.size_limit
    if options.telemetry_metadata:
        opts[Opt.TELEMETRY] = options.telemetry_metadata
    if options.omit_context:
        opts[Opt.OMIT_CONTEXT] = True
    return opts


def write_parent(parent: Parent, prefix: str) -> str:
    """The `parent` field of a child's hash."""
    written: dict[str, Json] = {"id": parent.id, "queueKey": Keys(parent.queue, prefix).base[:-1]}
    if parent.policy:
        written[POLICIES[parent.policy]] = True
    return _encode(written).decode()


def _backoff(backoff: BullBackoff) -> Json:
    written: dict[str, Json] = {"type": backoff.kind}
    if backoff.delay_ms:
        written["delay"] = backoff.delay_ms
    if backoff.jitter:
        written["jitter"] = backoff.jitter
    return written


def _retention(keep: Retention) -> Json:
    if not isinstance(keep, Keep):
        return keep
    named = {"count": keep.count, "age": keep.age_s, "limit": keep.limit}
    return {name: value for name, value in named.items() if value is not None}


def _deduplication(rule: Deduplication) -> Json:
    written: dict[str, Json] = {"id": rule.id}
    if rule.ttl_ms:
        written["ttl"] = rule.ttl_ms
    for name, on in (
        ("extend", rule.extend),
        ("replace", rule.replace),
        ("keepLastIfActive", rule.keep_last_if_active),
        ("reschedule", rule.reschedule),
    ):
        if on:
            written[name] = True
    return written
