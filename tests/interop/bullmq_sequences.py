"""Random sequences of verbs, generated as plain data and played on both sides of the lab.

A sequence names jobs by position, so that it can be shortened; `play` looks up the job at that
position.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from hypothesis import strategies as st

from tests.interop.bullmq_lab import LOCK_MS, Lab

Step = tuple[str, dict[str, Any]]
Strategy = st.SearchStrategy[Any]

HOUR_MS: Final = 3_600_000
QUEUES: Final = ("q", "r")
POLICIES: Final = (
    "failParentOnFailure",
    "continueParentOnFailure",
    "ignoreDependencyOnFailure",
    "removeDependencyOnFailure",
)

keeps: Strategy = st.one_of(
    st.booleans(),
    st.integers(0, 3),
    st.fixed_dictionaries(
        {}, optional={"count": st.integers(0, 3), "age": st.sampled_from([0, 10, 1000])}
    ).filter(bool),
)
backoffs: Strategy = st.one_of(
    st.sampled_from([500, 60_000]),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["fixed", "exponential"]), "delay": st.sampled_from([500, 60_000])}
    ),
)
dedup_rules: Strategy = st.fixed_dictionaries(
    {"id": st.sampled_from(["x", "y"])},
    optional={
        "ttl": st.just(HOUR_MS),
        **{name: st.just(True) for name in ("extend", "replace", "keepLastIfActive", "reschedule")},
    },
)
plain_options: Final[dict[str, Strategy]] = {
    "delay": st.sampled_from([1, 1000, 60_000]),
    "priority": st.sampled_from([1, 7, 2_097_151]),
    "lifo": st.just(True),
    "attempts": st.integers(0, 3),
    "backoff": backoffs,
    "removeOnComplete": keeps,
    "removeOnFail": keeps,
    "keepLogs": st.integers(0, 2),
    "stackTraceLimit": st.integers(0, 2),
    "sizeLimit": st.just(1_000_000),
    "telemetry": st.sampled_from(
        [{"metadata": "00-4bf92f35", "omitContext": True}, {"omitContext": True}]
    ),
}
job_options: Strategy = st.fixed_dictionaries(
    {},
    optional={
        **plain_options,
        "jobId": st.sampled_from(["a", "b", "a:b:c"]),
        "deduplication": dedup_rules,
        "timestamp": st.just(1_700_000_000_000),
    },
)
values: Strategy = st.sampled_from([None, 0, 50, "text é/", [1, 2], {"a": {"b": []}}, {}])
names = st.sampled_from(["render", "mail"])
# Most of it happens in one queue; parents and children may be in two.
queues = st.sampled_from(("q", "q", "q", "r"))
positions = st.integers(0, 5)
workers: Strategy = st.sampled_from(
    [
        {"lockDuration": LOCK_MS, "stalledInterval": HOUR_MS},
        {"lockDuration": LOCK_MS, "stalledInterval": HOUR_MS, "name": "w1", "maxStalledCount": 0},
        {
            "lockDuration": LOCK_MS,
            "stalledInterval": HOUR_MS,
            "limiter": {"max": 3, "duration": HOUR_MS},
            "metrics": {"maxDataPoints": 3},
        },
        {
            "lockDuration": LOCK_MS,
            "stalledInterval": HOUR_MS,
            "removeOnComplete": {"count": 2},
            "removeOnFail": {"age": 1000},
        },
    ]
)
times = st.sampled_from([0, 0, 1, 1000, 61_000])


@st.composite
def trees(draw: st.DrawFn, depth: int = 2, *, child: bool = False) -> dict[str, Any]:
    opts = draw(st.fixed_dictionaries({}, optional=plain_options))
    if child and draw(st.booleans()):
        opts = {**opts, draw(st.sampled_from(POLICIES)): True}
    node: dict[str, Any] = {"name": "node", "queueName": draw(queues), "opts": opts, "data": {}}
    if depth:
        node["children"] = draw(st.lists(trees(depth - 1, child=True), max_size=2))
    return node


_dates: dict[str, Strategy] = {
    "limit": st.integers(1, 3),
    "endDate": st.just(1_800_000_300_000),
}
repeats: Strategy = st.one_of(
    st.fixed_dictionaries(
        {"every": st.sampled_from([1000, 60_000])},
        optional={
            **_dates,
            "offset": st.sampled_from([1, 250]),
            "startDate": st.sampled_from([1_799_999_000_000, 1_800_000_030_500]),
        },
    ),
    st.fixed_dictionaries(
        {"pattern": st.sampled_from(["*/5 * * * *", "0 3 * * *", "*/10 * * * * *"])},
        optional={
            **_dates,
            "tz": st.sampled_from(["Europe/Berlin", "America/New_York"]),
            "immediately": st.just(True),
        },
    ),
)
templates: Strategy = st.fixed_dictionaries(
    {"name": names},
    optional={
        "data": values,
        "opts": st.fixed_dictionaries(
            {},
            optional={
                "priority": st.just(3),
                "lifo": st.just(True),
                "attempts": st.integers(1, 2),
                "removeOnComplete": keeps,
            },
        ),
    },
)


def _step(kind: str, **members: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.tuples(st.just(kind), st.fixed_dictionaries(members))


_add = _step("add", queue=queues, name=names, data=values, opts=job_options, advance_ms=times)
_take = _step("take", queue=queues, worker=workers, advance_ms=times)
_complete = _step("complete", at=positions, value=values, worker=workers)
_fail = _step("fail", at=positions, final=st.booleans(), worker=workers)
_flow = _step("flow", tree=trees(), advance_ms=times)
_child = _step(
    "child",
    at=positions,
    queue=queues,
    opts=st.fixed_dictionaries(
        {}, optional={"jobId": st.sampled_from(["a", "b", "c"]), "delay": st.just(1000)}
    ),
    policy=st.sampled_from((*POLICIES, "")),
)
_schedule = _step(
    "schedule",
    queue=queues,
    scheduler=st.sampled_from(["s", "u"]),
    repeat=repeats,
    template=templates,
    advance_ms=times,
)
_remove = _step("remove", at=positions)
_expire = _step("expire", at=positions)
_stalled = _step("stalled", queue=queues, worker=workers)
_limit = _step("globalRateLimit", queue=queues, max=st.integers(1, 3))
_concurrency = _step("globalConcurrency", queue=queues, value=st.integers(1, 2))

# A theme is a list of kinds; a kind that is listed more often is drawn more often.
_work = [_take, _take, _take, _complete, _fail]
_deduplicated = _step(
    "add",
    queue=st.just("q"),
    name=names,
    data=values,
    opts=st.fixed_dictionaries(
        {"deduplication": dedup_rules},
        optional={name: plain_options[name] for name in ("delay", "priority", "lifo", "attempts")},
    ),
    advance_ms=times,
)
_finished = st.sampled_from(["completed", "failed"])
_priorities = st.sampled_from([0, 1, 7])
_admin = [
    _step("promote", at=positions),
    _step("changeDelay", at=positions, delay=st.sampled_from([0, 1000, 60_000])),
    _step("changePriority", at=positions, priority=_priorities, lifo=st.booleans()),
    *[_step("reprocess", at=positions, state=_finished, made=st.booleans(), started=st.booleans())]
    * 2,
    *[_step("remove", at=positions, children=st.booleans())] * 2,
    _step("removeChildren", at=positions),
    _step("detach", at=positions),
    _step("clearLogs", at=positions, keep=st.integers(0, 1)),
    _step("retryJobs", queue=queues, state=_finished, count=st.sampled_from([1, 2, 1000])),
    _step("promoteJobs", queue=queues, count=st.sampled_from([1, 2, 1000])),
    _step(
        "clean",
        queue=queues,
        state=st.sampled_from(["completed", "failed", "delayed", "prioritized", "wait", "active"]),
        grace=st.sampled_from([0, 1000, 100_000]),
        limit=st.sampled_from([0, 1, 2]),
    ),
    _step("removeGlobals", queue=queues),
    _step("inspect", queue=queues, at=positions),
]
# These end most of what a sequence has built; `drain` is not compared while a scheduler has a job
# in `wait`, where the official package deletes the wrong one.
_ends = [
    _step("drain", queue=queues, delayed=st.booleans()),
    _step("obliterate", queue=queues, force=st.booleans()),
]
THEMES: Final[dict[str, list[st.SearchStrategy[Step]]]] = {
    "deduplication": [*[_deduplicated] * 4, *_work, _remove],
    "flows": [
        *[_flow] * 2,
        *[_child] * 2,
        *_work,
        *_work,
        _remove,
        _step("waitChildren", at=positions),
        _step("add", queue=queues, name=names, data=values, opts=job_options, advance_ms=times),
    ],
    "schedulers": [
        *[_schedule] * 2,
        *_work,
        _step("unschedule", queue=queues, scheduler=st.sampled_from(["s", "u"])),
        _expire,
        _stalled,
        _remove,
    ],
    "stalling": [
        *[_add] * 2,
        *_work,
        *[_expire] * 2,
        *[_stalled] * 3,
        _step("renew", queue=queues),
    ],
    "limits": [
        *[_add] * 3,
        *_work,
        _limit,
        _concurrency,
        _step("release", at=positions),
        _step("pause", queue=queues),
        _step("resume", queue=queues),
    ],
    "administration": [*[_add] * 6, *_work, *_work, *_admin, *_admin, _flow, *_ends, _expire],
    "administration of flows": [*[_flow] * 6, _child, *_work, *_work, *_admin, *_ends],
    "administration of schedulers": [
        *[_schedule] * 4,
        _add,
        *_work,
        *_admin,
        _step("pause", queue=queues),
        *[_step("resume", queue=queues)] * 2,
        _step("unschedule", queue=queues, scheduler=st.sampled_from(["s", "u"])),
        _step("obliterate", queue=queues, force=st.booleans()),
    ],
    "everything": [
        *[_add] * 6,
        *_work,
        *_work,
        _flow,
        _schedule,
        _expire,
        _stalled,
        _remove,
        _limit,
        _concurrency,
        _step("delay", at=positions, delay=st.sampled_from([0, 1000])),
        _step("release", at=positions),
        _step("waitChildren", at=positions),
        _step("renew", queue=queues),
        _step("without_lock", at=positions, verb=st.sampled_from(["complete", "delay", "release"])),
        _step("progress", at=positions, value=values),
        _step("data", at=positions, value=values),
        _step("log", at=positions, keep=st.integers(0, 2)),
        _step("pause", queue=queues),
        *[_step("resume", queue=queues)] * 2,
        _step("look", queue=queues, at=positions),
    ],
}


def sequences(theme: str) -> st.SearchStrategy[list[Step]]:
    step = st.sampled_from(THEMES[theme]).flatmap(lambda kind: kind)
    return st.lists(step, min_size=20, max_size=40)


class Player:
    """The state of the sequence so far, equal on both sides."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.known: list[tuple[str, str]] = []
        self.active: list[tuple[str, str, str]] = []
        self.count = 0

    def play(self, sequence: list[Step]) -> None:
        special: dict[str, Callable[..., None]] = {
            "add": self._add,
            "flow": self._flow,
            "child": self._child,
            "take": self._take,
            "renew": self._renew,
            "without_lock": self._without_lock,
            "expire": self._expire,
            "stalled": self._stalled,
            "schedule": self._schedule,
            "look": self._look,
            "inspect": self._inspect,
            "retryJobs": self._retry_jobs,
        }
        for kind, given in sequence:
            if kind in special:
                special[kind](**given)
            elif kind in ("complete", "fail", "delay", "release", "waitChildren"):
                self._leave(kind, **given)
            elif "at" in given:
                self._touch(kind, **given)
            elif kind == "globalRateLimit":
                self.lab.step(kind, duration=HOUR_MS, **given)
            else:
                self.lab.step(kind, **given)

    def _add(self, *, queue: str, opts: dict[str, Any], **more: Any) -> None:
        job_id = self.lab.step("add", queue=queue, opts=opts, **more)
        self.known.append((queue, job_id))

    def _flow(self, *, tree: dict[str, Any], advance_ms: int) -> None:
        def name(node: dict[str, Any]) -> dict[str, Any]:
            self.count += 1
            job_id = f"flow{self.count}"
            self.known.append((node["queueName"], job_id))
            children = [name(child) for child in node.get("children", [])]
            return {**node, "opts": {**node["opts"], "jobId": job_id}, "children": children}

        self.lab.step("flow", tree=name(tree), advance_ms=advance_ms)

    def _child(self, *, at: int, queue: str, opts: dict[str, Any], policy: str) -> None:
        """A job for a parent that is there already, maybe one that exists."""
        if not self.known:
            return
        above, parent_id = self.known[at % len(self.known)]
        opts = {**opts, "parent": {"id": parent_id, "queue": f"bull:{above}"}}
        if policy:
            opts[policy] = True
        job_id = self.lab.step("add", queue=queue, name="child", data={}, opts=opts)
        if isinstance(job_id, str):
            self.known.append((queue, job_id))

    def _schedule(self, *, queue: str, repeat: dict[str, Any], **more: Any) -> None:
        if repeat.get("endDate", self.lab.now + HOUR_MS) <= self.lab.now + 61_000:
            # An end in the past is a separate error.
            repeat = {name: value for name, value in repeat.items() if name != "endDate"}
        job_id = self.lab.step("schedule", queue=queue, repeat=repeat, **more)
        if isinstance(job_id, str):
            self.known.append((queue, job_id))

    def _take(self, *, queue: str, worker: dict[str, Any], advance_ms: int) -> None:
        self.count += 1
        token = f"t{self.count}"
        found = self.lab.step(
            "take", queue=queue, worker=worker, token=token, advance_ms=advance_ms
        )
        self._hold(queue, found, token)

    def _hold(self, queue: str, found: Any, token: str) -> None:
        match found:
            case {"job": str(job_id)}:
                self.active.append((queue, job_id, token))
            case _:
                pass

    def _leave(self, kind: str, *, at: int, **more: Any) -> None:
        if not self.active:
            return
        queue, job_id, token = self.active[at % len(self.active)]
        if kind == "fail":
            more |= {"reason": f"because {at}", "stack": f"stack {at}"}
        if kind == "delay":
            more = {"until": self.lab.now + more["delay"]}
        found = self.lab.step(kind, queue=queue, id=job_id, token=token, **more)
        if not (isinstance(found, dict) and "code" in found) and found is not False:
            self.active.remove((queue, job_id, token))
        self._hold(queue, found, token)

    def _without_lock(self, *, at: int, verb: str) -> None:
        """A worker without the lock tries to end or release the job."""
        if not self.active:
            return
        queue, job_id, _ = self.active[at % len(self.active)]
        more = {"value": 1} if verb == "complete" else {}
        if verb == "delay":
            more = {"until": self.lab.now + 1000}
        self.lab.step(verb, queue=queue, id=job_id, token="foreign", **more)

    def _renew(self, *, queue: str) -> None:
        held = [(job_id, token) for where, job_id, token in self.active if where == queue]
        ids = [job_id for job_id, _ in held]
        tokens = [token for _, token in held]
        if ids:
            worker = {"lockDuration": LOCK_MS}
            self.lab.step("renew", queue=queue, ids=ids, tokens=tokens, worker=worker)

    def _expire(self, *, at: int) -> None:
        """Let the lock expire."""
        if self.active:
            queue, job_id, _ = self.active[at % len(self.active)]
            self.lab.both("DEL", f"bull:{queue}:{job_id}:lock")

    def _stalled(self, *, queue: str, worker: dict[str, Any]) -> None:
        """Let the interval of the last check expire."""
        self.lab.both("DEL", f"bull:{queue}:stalled-check")
        self.lab.step("stalled", queue=queue, worker=worker)

    def _touch(self, kind: str, *, at: int, **more: Any) -> None:
        if self.known:
            queue, job_id = self.known[at % len(self.known)]
            if kind == "log":
                more["line"] = f"line {self.count}"
            self.lab.step(kind, queue=queue, id=job_id, **more)

    def _look(self, *, queue: str, at: int) -> None:
        self.lab.step("counts", queue=queue)
        if self.known:
            where, job_id = self.known[at % len(self.known)]
            self.lab.step("state", queue=where, id=job_id)
        for state in ("wait", "active", "delayed", "prioritized", "completed", "failed"):
            for ascending in (True, False):
                self.lab.step(
                    "range", queue=queue, state=state, first=0, last=2, ascending=ascending
                )

    def _inspect(self, *, queue: str, at: int) -> None:
        """Compare all read operations."""
        for op in ("maxed", "schedulers"):
            self.lab.step(op, queue=queue)
        self.lab.step("perPriority", queue=queue, priorities=[0, 1, 7])
        for state in ("completed", "failed"):
            self.lab.step("metrics", queue=queue, state=state)
        if self.known:
            where, job_id = self.known[at % len(self.known)]
            self.lab.step("children", queue=where, id=job_id)

    def _retry_jobs(self, **more: Any) -> None:
        """Without a time Node uses its own clock, which the lab does not pin."""
        self.lab.step("retryJobs", before=self.lab.now, **more)
