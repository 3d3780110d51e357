"""Our queue and consumer behind the same verbs as the official package's (see bullmq_peer.js).

A call is what the Node program gets as a line; the answer is the same value, or the same code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from jobwire.job.messages import Failed
from jobwire.systems.queues.add_batcher import AddAnswer
from jobwire.systems.queues.admin import QueueAdmin
from jobwire.systems.queues.codec import (
    Empty,
    JobHash,
    KeepRule,
    Limited,
    TakeAnswer,
    Took,
    read_fields,
)
from jobwire.systems.queues.consumer import BullConsumer, FailedAttempt, SettledAttempt
from jobwire.systems.queues.contract import BullState, Refusal
from jobwire.systems.queues.flows import FlowJobs, FlowNode, add_flow
from jobwire.systems.queues.options import (
    BullBackoff,
    BullJobOptions,
    Deduplication,
    Keep,
    Parent,
    Retention,
)
from jobwire.systems.queues.queue import NewBullJob, QueueProducer
from jobwire.systems.queues.schedulers import Repeat, Schedulers
from jobwire.systems.queues.settings import BullSettings
from jobwire.valkey import Connection
from tests.systems.queues.conftest import after_failure

Call = Mapping[str, Any]
CODES: Final = {
    Refusal.MISSING: -1,
    Refusal.NO_LOCK: -2,
    Refusal.NOT_ACTIVE: -3,
    Refusal.PENDING_CHILDREN: -4,
    Refusal.NO_PARENT: -5,
    Refusal.FOREIGN_LOCK: -6,
    Refusal.HAS_PARENT: -7,
    Refusal.FAILED_CHILDREN: -9,
    Refusal.WRONG_STATE: -3,
    Refusal.SCHEDULED: -8,
    Refusal.COLLISION: -10,
    Refusal.BUSY: -11,
}
"""The official packages' numbers for the same."""


class Refused(Exception):
    """The wire's own code, as the official package raises it."""

    def __init__(self, code: int) -> None:
        super().__init__(str(code))
        self.code = code


class Ours:
    def __init__(self, connection: Connection, *, extras: bool) -> None:
        self._connection = connection
        self._extras = extras
        self._now_ms = 0

    async def do(self, call: Call) -> object:
        self._now_ms = call["now"]
        return await getattr(self, f"_{call['op']}")(call)

    def _queue(self, call: Call) -> QueueProducer:
        settings = BullSettings(extras=self._extras)
        return QueueProducer(self._connection, call["queue"], settings, now_ms=lambda: self._now_ms)

    def _consumer(self, call: Call) -> BullConsumer:
        chosen = call.get("worker", {})
        limiter = chosen.get("limiter", {})
        settings = BullSettings(
            extras=self._extras,
            lock_ms=chosen.get("lockDuration", 30_000),
            stalled_interval_ms=chosen.get("stalledInterval", 30_000),
            max_stalled=chosen.get("maxStalledCount", 1),
            limit_max=limiter.get("max", 0),
            limit_ms=limiter.get("duration", 0),
            metrics_points=chosen.get("metrics", {}).get("maxDataPoints", 0),
        )
        return BullConsumer(
            self._connection,
            call["queue"],
            settings,
            name=chosen.get("name", ""),
            worker_id="ours",
            now_ms=lambda: self._now_ms,
        )

    async def _active_job(self, call: Call) -> JobHash:
        return await self._queue(call).get(call["id"]) or read_fields(call["id"], {})

    # Producing

    async def _add(self, call: Call) -> object:
        job = new_job(call)
        return _id(await self._queue(call).submit(*job))

    async def _addBulk(self, call: Call) -> object:
        jobs = [new_job(job) for job in call["jobs"]]
        return [_id(answer) for answer in await self._queue(call).submit_many(jobs)]

    async def _flow(self, call: Call) -> object:
        settings = BullSettings(extras=self._extras)
        made = await add_flow(
            self._connection, flow_tree(call["tree"]), settings, now_ms=lambda: self._now_ms
        )
        if isinstance(made, Refusal):
            raise Refused(CODES[made])
        return _flow_ids(made)

    async def _schedule(self, call: Call) -> object:
        repeat, template = call["repeat"], call["template"]
        made = await Schedulers(self._queue(call)).set(
            call["scheduler"],
            Repeat(
                every_ms=repeat.get("every", 0),
                offset_ms=repeat.get("offset", 0),
                pattern=repeat.get("pattern", ""),
                tz=repeat.get("tz", ""),
                immediately=repeat.get("immediately", False),
                limit=repeat.get("limit"),
                start_ms=repeat.get("startDate"),
                end_ms=repeat.get("endDate"),
            ),
            _template(template),
        )
        if isinstance(made, Refusal):
            raise Refused(CODES[made])
        return made.job_id if made else None

    async def _unschedule(self, call: Call) -> object:
        return await Schedulers(self._queue(call)).remove(call["scheduler"])

    async def _schedulers(self, call: Call) -> object:
        return [
            {
                "key": each.id,
                "name": each.name,
                "next": each.next_ms,
                "every": each.repeat.every_ms,
                "pattern": each.repeat.pattern,
                "tz": each.repeat.tz,
                "limit": each.repeat.limit,
                "made": each.made,
            }
            for each in await Schedulers(self._queue(call)).list()
        ]

    # Working

    async def _take(self, call: Call) -> object:
        return _found(await self._consumer(call).take(call["token"]))

    async def _renew(self, call: Call) -> object:
        leased = list(zip(call["ids"], call["tokens"], strict=True))
        return await self._consumer(call).renew(leased)

    async def _complete(self, call: Call) -> object:
        job, value = await self._active_job(call), json.dumps(call["value"])
        keep = _worker_rule(call, "removeOnComplete")
        return _left(await self._consumer(call).complete(job, call["token"], value, keep=keep))

    async def _fail(self, call: Call) -> object:
        job, token, consumer = await self._active_job(call), call["token"], self._consumer(call)
        failure = FailedAttempt(call["reason"], call["stack"])
        outcome = after_failure(job, retryable=not call.get("final"))
        if isinstance(outcome, Failed):
            keep = _worker_rule(call, "removeOnFail")
            return _left(await consumer.fail(job, token, failure, keep=keep))
        delay_ms = round(outcome.after_s * 1000)
        if not delay_ms:
            return _left(await consumer.retry(job, token, failure))
        return _left(await consumer.delay(job, token, delay_ms, failure))

    async def _delay(self, call: Call) -> object:
        job = await self._active_job(call)
        delay_ms = max(0, call["until"] - call["now"])
        return _left(await self._consumer(call).delay(job, call["token"], delay_ms))

    async def _release(self, call: Call) -> object:
        return _left(await self._consumer(call).release(call["id"], call["token"]))

    async def _waitChildren(self, call: Call) -> object:
        child = call.get("child")
        key = f"bull:{child['queue']}:{child['id']}" if child else ""
        answer = await self._consumer(call).wait_for_children(call["id"], call["token"], key)
        if isinstance(answer, Refusal):
            raise Refused(CODES[answer])
        return answer

    async def _stalled(self, call: Call) -> object:
        return await self._consumer(call).check_stalled()

    async def _progress(self, call: Call) -> object:
        text = json.dumps(call["value"])
        return _done(await self._admin(call).set_progress(call["id"], text, any_number=True))

    async def _data(self, call: Call) -> object:
        return _done(await self._admin(call).set_data(call["id"], json.dumps(call["value"])))

    async def _log(self, call: Call) -> object:
        keep = call.get("keep") or 0
        length = await self._admin(call).add_log(call["id"], call["line"], keep=keep)
        if isinstance(length, Refusal):
            raise Refused(CODES[length])
        return length

    async def _logs(self, call: Call) -> object:
        found = await self._queue(call).logs(call["id"])
        return {"logs": found.lines, "count": found.total}

    # Reading and managing

    async def _pause(self, call: Call) -> object:
        return await self._queue(call).pause()

    async def _resume(self, call: Call) -> object:
        return await self._queue(call).resume()

    async def _counts(self, call: Call) -> object:
        return {str(state): count for state, count in (await self._queue(call).counts()).items()}

    async def _state(self, call: Call) -> object:
        return str(await self._queue(call).state(call["id"]))

    async def _range(self, call: Call) -> object:
        state = BullState.WAITING if call["state"] == "wait" else BullState(call["state"])
        first, count = call["first"], call["last"] - call["first"] + 1
        jobs = await self._queue(call).list(
            state, first=first, count=count, oldest_first=call["ascending"]
        )
        return [job.id for job in jobs]

    # Administration

    def _admin(self, call: Call) -> QueueAdmin:
        return QueueAdmin(self._queue(call))

    async def _promote(self, call: Call) -> object:
        # The official packages have one code for a job that is not delayed and one that does not
        # exist.
        answer = await self._admin(call).promote(call["id"])
        return _done(Refusal.WRONG_STATE if answer is Refusal.MISSING else answer)

    async def _changeDelay(self, call: Call) -> object:
        return _done(await self._admin(call).change_delay(call["id"], call["delay"]))

    async def _changePriority(self, call: Call) -> object:
        priority, lifo = call["priority"], call.get("lifo", False)
        return _done(await self._admin(call).change_priority(call["id"], priority, lifo=lifo))

    async def _reprocess(self, call: Call) -> object:
        made, started = call.get("made", False), call.get("started", False)
        admin = self._admin(call)
        return _done(
            await admin.retry(call["id"], call["state"], reset_attempts=made, reset_starts=started)
        )

    async def _remove(self, call: Call) -> object:
        answer = await self._admin(call).remove(call["id"], children=call.get("children", True))
        # The official package treats an unknown job as removed.
        if answer is Refusal.LOCKED:
            return 0
        return 1 if answer is Refusal.MISSING else _done(answer) or 1

    async def _removeChildren(self, call: Call) -> object:
        return _done(await self._admin(call).remove_pending_children(call["id"]))

    async def _detach(self, call: Call) -> object:
        answer = await self._admin(call).detach_from_parent(call["id"])
        return False if answer in (Refusal.NO_RELATION, Refusal.MISSING) else _done(answer) is None

    async def _clearLogs(self, call: Call) -> object:
        return await self._admin(call).clear_logs(call["id"], keep=call.get("keep") or 0)

    async def _retryJobs(self, call: Call) -> object:
        before, batch = call.get("before"), call.get("count", 1000)
        await self._admin(call).retry_all(call["state"], before_ms=before, batch=batch)

    async def _promoteJobs(self, call: Call) -> object:
        await self._admin(call).promote_all(batch=call.get("count", 1000))

    async def _drain(self, call: Call) -> object:
        await self._admin(call).drain(delayed=call.get("delayed", False))

    async def _clean(self, call: Call) -> object:
        state = "waiting" if call["state"] == "wait" else call["state"]
        return await self._admin(call).clean(state, grace_ms=call["grace"], limit=call["limit"])

    async def _obliterate(self, call: Call) -> object:
        answer = await self._admin(call).obliterate(force=call.get("force", False))
        # Node's message for queues with active jobs.
        return "Cannot obliterate queue with active jobs" if answer is Refusal.ACTIVE else answer

    async def _trimEvents(self, call: Call) -> object:
        await self._admin(call).trim_events(call["keep"])

    async def _globalConcurrency(self, call: Call) -> object:
        await self._admin(call).set_concurrency(call["value"])

    async def _globalRateLimit(self, call: Call) -> object:
        await self._admin(call).set_rate_limit(call["max"], call["duration"])

    async def _removeGlobals(self, call: Call) -> object:
        await self._admin(call).set_concurrency(None)
        await self._admin(call).set_rate_limit(None)

    async def _rateLimit(self, call: Call) -> object:
        await self._admin(call).rate_limit(call["ms"])

    async def _maxed(self, call: Call) -> object:
        return await self._admin(call).is_maxed()

    async def _perPriority(self, call: Call) -> object:
        counts = await self._admin(call).counts_per_priority(call["priorities"])
        return {str(priority): count for priority, count in counts.items()}

    async def _metrics(self, call: Call) -> object:
        return (await self._admin(call).metrics(call["state"]))._asdict()

    async def _dedupOwner(self, call: Call) -> object:
        return await self._admin(call).deduplication_owner(call["dedup"])

    async def _dedupFree(self, call: Call) -> object:
        return await self._admin(call).free_deduplication(call["dedup"])

    async def _children(self, call: Call) -> object:
        found = await self._admin(call).children(call["id"])
        return {**found._asdict(), "failed": [*found.failed], "pending": [*found.pending]}


def _done(answer: Refusal | None) -> None:
    if answer is not None:
        raise Refused(CODES[answer])


def _flow_ids(job: FlowJobs) -> list[str]:
    """The job and all below it, parents first."""
    return [job.job_id, *(each for child in job.children for each in _flow_ids(child))]


def flow_tree(node: Call) -> FlowNode:
    children = [flow_tree(child) for child in node.get("children", [])]
    return FlowNode(node["queueName"], new_job(node), children, policy_of(node.get("opts", {})))


def _template(template: Call) -> NewBullJob:
    """Data that is not given is an empty object, and so is null."""
    data = template.get("data")
    return new_job({**template, "data": {} if data is None else data})


def new_job(call: Call, parent: Parent | None = None) -> NewBullJob:
    return NewBullJob(
        call["name"], json.dumps(call.get("data", {})), options(call.get("opts", {}), parent)
    )


def options(opts: Call, parent: Parent | None = None) -> BullJobOptions:
    """Node's job options as ours."""
    rule = opts.get("deduplication")
    above = opts.get("parent")
    if above and parent is None:
        parent = Parent(above["queue"].partition(":")[2], above["id"], policy_of(opts))
    return BullJobOptions(
        job_id=opts.get("jobId", ""),
        delay_ms=opts.get("delay", 0),
        priority=opts.get("priority", 0),
        lifo=opts.get("lifo", False),
        attempts=opts.get("attempts", 0),
        backoff=_backoff(opts.get("backoff")),
        timestamp_ms=opts.get("timestamp"),
        remove_on_complete=_retention(opts.get("removeOnComplete")),
        remove_on_fail=_retention(opts.get("removeOnFail")),
        keep_logs=opts.get("keepLogs"),
        stack_trace_limit=opts.get("stackTraceLimit"),
        deduplication=Deduplication(
            id=rule["id"],
            ttl_ms=rule.get("ttl", 0),
            extend=rule.get("extend", False),
            replace=rule.get("replace", False),
            keep_last_if_active=rule.get("keepLastIfActive", False),
            reschedule=rule.get("reschedule", False),
        )
        if rule
        else None,
        parent=parent,
        size_limit=opts.get("sizeLimit"),
        telemetry_metadata=opts.get("telemetry", {}).get("metadata", ""),
        omit_context=opts.get("telemetry", {}).get("omitContext", False),
    )


def policy_of(opts: Call) -> Any:
    names = {
        "failParentOnFailure": "fail",
        "continueParentOnFailure": "continue",
        "ignoreDependencyOnFailure": "ignore",
        "removeDependencyOnFailure": "remove",
    }
    return next((ours for theirs, ours in names.items() if opts.get(theirs)), "")


def _backoff(value: Any) -> BullBackoff | None:
    if isinstance(value, int):
        return BullBackoff("fixed", value)
    return (
        BullBackoff(value["type"], value.get("delay", 0), value.get("jitter", 0)) if value else None
    )


def _retention(value: Any) -> Retention | None:
    if isinstance(value, dict):
        found = cast("dict[str, int]", value)
        return Keep(found.get("count"), found.get("age"), found.get("limit"))
    return value


def _worker_rule(call: Call, name: str) -> KeepRule | None:
    rule = call.get("worker", {}).get(name)
    return KeepRule(rule.get("count", -1), rule.get("age", -1)) if rule else None


def _id(answer: AddAnswer) -> str:
    if isinstance(answer, Refusal):
        raise Refused(CODES[answer])
    return answer.job_id


def _found(answer: TakeAnswer) -> object:
    match answer:
        case Took(job):
            return {"job": job.id}
        case Limited():
            return {"limited": True}
        case Empty(due_ms):
            return {"due": due_ms}
        case _:
            return {"due": 0}


def _left(answer: SettledAttempt | Refusal) -> None:
    if isinstance(answer, Refusal):
        raise Refused(CODES[answer])
