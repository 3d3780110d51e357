"""History → violations: one pure function per rule, each linear in the history.

Called by the runner at the end of a run, and by its own tests with planted histories. It does
no I/O. The rules hold whatever has happened, but for what a failover may lose (G-26): a write that
the former primary answered just before it failed, and that its successor does not have. Each rule
says which lost write explains what it finds, and asks whether that write was made at such a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import inf
from typing import Final

from jobwire.api import jobs as job_problems
from jobwire.api import problems
from jobwire.api.problems import ProblemKind
from jobwire.systems.jobs.contract import CANCELED_TTL_S
from tests.chaos.history import GAP, TERMINAL, Ended, Event, History, Run

TICK: Final = "tick"
"""The task of the cron entry; the scheduler creates its jobs, not a client."""

_TOLERANCE_MS: Final = 50
"""Between two clocks' readings on a busy machine."""
_LAG_MS: Final = 200
"""How long before a failure a write may have been answered that no replica has."""

_EXPECTED_CODES: Final = frozenset(
    kind.code
    for module in (problems, job_problems)
    for kind in vars(module).values()
    if isinstance(kind, ProblemKind)
) - {"contract_violated", "internal"}


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    what: str


def check_history(history: History) -> list[Violation]:
    """All violations, in the order of the rules."""
    return [Violation(rule, what) for rule, check in RULES.items() for what in check(history)]


def r1_accepted_is_there(history: History) -> Iterator[str]:
    """An accepted job never disappears before its time."""
    for key, job_id in dict.fromkeys(history.answered_jobs):
        # Short-lived jobs have expired by now; the inspector saw whether they ended before that.
        is_short_lived = history.submissions[key].ttl_s or _was_canceled_long_ago(history, job_id)
        if (
            job_id not in history.jobs
            and not is_short_lived
            and not _submission_was_lost(history, job_id)
        ):
            asked = "after a cancel" if job_id in history.cancel_requested else "never canceled"
            yield f"{job_id} (key {key}) was accepted and is not there, {asked}"
    yield from history.lost


def r2_all_end(history: History) -> Iterator[str]:
    """After the last fault every job ends."""
    for job_id, job in history.jobs.items():
        if job.status not in TERMINAL:
            yield f"{job_id} is still {job.status}: {_kinds(job)}"


def r3_one_end(history: History) -> Iterator[str]:
    """One terminal event, and nothing after it."""
    for job_id, job in history.jobs.items():
        kinds = _kinds(job)
        ends = [kind for kind in kinds if kind in TERMINAL]
        if job.status in TERMINAL and (len(ends) != 1 or kinds[-1] not in TERMINAL):
            yield f"{job_id}: {kinds}"


def r4_state_agrees(history: History) -> Iterator[str]:
    """State, result, error, last event and submission agree, and never change."""
    for job_id, job in history.jobs.items():
        if job.status not in TERMINAL:
            continue
        last = _kinds(job)[-1:]
        if last != [job.status] or job.fields.get("status") != job.status:
            yield f"{job_id} is {job.status}, its last event {last}"
        if (job.status == "done") != (job.error is None):
            yield f"{job_id} is {job.status} with the error {job.error}"
        if (wanted := _wanted_end(history, job_id, job)) and job.status != wanted:
            yield f"{job_id} ended as {job.status} with {job.error}, not as {wanted}"
    ends: dict[tuple[str, str], list[float]] = {}
    for answer in history.answers:
        if answer.state in TERMINAL:
            ends.setdefault((answer.job_id, answer.state), []).append(answer.at_ms)
    for (job_id, state), seen_ms in ends.items():
        job = history.jobs.get(job_id)
        if job and job.status != state and not _was_lost(history, job_id, seen_ms):
            yield f"{job_id} was {state} in a response and is {job.status}"


def r5_runs_do_not_mix(history: History) -> Iterator[str]:
    """Events of an earlier run never follow those of a later one; inside a run they are in order,
    and the attempts are counted right."""
    for job_id, job in history.jobs.items():
        reported = [
            (event.data["run"], event.data["n"]) for event in job.events if _of_run(event.data)
        ]
        runs = [run for run, _ in groupby(reported, key=lambda each: each[0])]
        if len(runs) != len(set(runs)):
            yield f"{job_id}: reports of several runs are interleaved: {runs}"
        for run, group in groupby(reported, key=lambda each: each[0]):
            numbers = [int(str(number)) for _, number in group]
            if any(after <= before for before, after in pairwise(numbers)):
                yield f"{job_id}: run {run} has the reports {numbers}"
        submission = history.submission_of(job_id)
        attempt = int(job.fields.get("attempt", "1"))
        if submission and job.status == "done" and attempt != submission.fails + 1:
            yield f"{job_id} failed {submission.fails} times and is at attempt {attempt}"


def r6_one_settle(history: History) -> Iterator[str]:
    """The result is that of a run which ended, and no other run reports after it."""
    ended = {run.id for run in history.runs if run.ended_ms is not None}
    for job_id, job in history.jobs.items():
        if job.status != "done" or not isinstance(job.result, dict):
            continue
        run = job.result.get("run")
        if run not in ended:
            yield f"{job_id} has the result of run {run}, which never ended"
        reporting = [event.data["run"] for event in job.events if _of_run(event.data)]
        if run in reporting and reporting[-1] != run:
            yield f"{job_id} has the result of {run}, and {reporting[-1]} reported after it"


def r7_always_a_place(history: History) -> Iterator[str]:
    """An entry is removed only when the job's end or next entry is written."""
    yield from history.misplaced


def r8_runs_are_counted(history: History) -> Iterator[str]:
    """No run without a start on the wire; no attempt beyond those asked for."""
    begun = Counter(run.job_id for run in history.runs)
    lost = Counter(run.job_id for run in history.runs if _start_may_be_lost(history, run))
    for job_id, job in history.jobs.items():
        starts = _kinds(job).count("running")
        if begun[job_id] > starts + lost[job_id]:
            yield f"{job_id} ran {begun[job_id]} times, was started {starts} times"
    for run in history.runs:
        submission = history.submission_of(run.job_id)
        if submission and run.attempt > submission.max_attempts:
            yield f"{run.job_id}: attempt {run.attempt} of {submission.max_attempts}"


def r9_one_key_one_job(history: History) -> Iterator[str]:
    """One job per idempotency key, also when requests are repeated or responses were lost."""
    made: dict[str, set[str]] = {}
    for key, job_id in dict.fromkeys(history.answered_jobs):
        if job_id in history.jobs or not _submission_was_lost(history, job_id):
            made.setdefault(key, set()).add(job_id)
    for key, job_ids in made.items():
        if len(job_ids) > 1:
            yield f"{key} has made {sorted(job_ids)}"
    known = {job_id for _, job_id in history.answered_jobs}
    for job_id in history.listed:
        job = history.jobs.get(job_id)
        if job_id not in known and not (job and job.fields.get("task") == TICK):
            yield f"{job_id} is there, and no response reported it"


def r10_at_rest(history: History) -> Iterator[str]:
    """At the end no job waits, is pending or is leased, and no key remains."""
    yield from history.left_behind


def r11_canceled_is_canceled(history: History) -> Iterator[str]:
    """A job answered as canceled is canceled; a job asked to stop is not started again."""
    for answer in history.answers:
        job = history.jobs.get(answer.about)
        if answer.verb != "cancel" or not job:
            continue
        if (
            answer.status == 200
            and job.status != "canceled"
            and not _was_lost(history, answer.about, [answer.at_ms])
        ):
            yield f"{answer.about} was canceled and is {job.status}"
        if clock_was_off(history, answer.about):
            continue
        requested_ms = int(job.fields.get("cancel_ts", "0"))
        late = [
            event for event in job.events if event.type == "running" and event.ts > requested_ms
        ]
        if answer.status == 202 and requested_ms and late:
            yield f"{answer.about} was started after it had been asked to stop"


def r12_watchers_miss_nothing(history: History) -> Iterator[str]:
    """A reader that is cut again and again sees what there is: once, in order, to the end. Events
    that it saw and a failover lost may be followed by a gap, and then by what there is."""
    for watch in history.watches:
        job = history.jobs.get(watch.job_id)
        if not job:
            continue
        if not watch.ended:
            yield f"a watcher of {watch.job_id} never saw its end"
            continue
        truth = [event.id for event in job.events]
        lost = {
            seen
            for seen in watch.seen
            if seen not in truth and seen != GAP and _event_was_lost(history, watch.job_id, seen)
        }
        parts = _split(watch.seen, GAP)
        # The event before a gap was not there; after another failover it may be there again.
        if not all(_event_was_lost(history, watch.job_id, part[-1]) for part in parts[:-1] if part):
            yield f"a watcher of {watch.job_id} got a gap, and had lost nothing: {watch.seen}"
        # An end that was lost ends the watch, too.
        whole = not lost.intersection(parts[-1][-1:])
        first, *_, last = (
            [each for each in part if each not in lost] for part in (*parts, parts[-1])
        )
        right = first == truth[: len(first)] and (
            not whole or last == truth[len(truth) - len(last) if len(parts) > 1 else 0 :]
        )
        if not right:
            yield f"a watcher of {watch.job_id} saw {watch.seen}, there is {truth}"


def r13_slots(history: History) -> Iterator[str]:
    """A worker never runs more jobs at a time than it has slots."""
    for worker in {run.worker for run in history.runs}:
        own_runs = [run for run in history.runs if run.worker == worker]
        steps = [(run.began_ms, 1) for run in own_runs]
        steps += [(run.ended_ms, -1) for run in own_runs if run.ended_ms is not None]
        busy = most = 0
        for _, step in sorted(steps):
            busy += step
            most = max(most, busy)
        if most > own_runs[0].slots:
            yield f"worker {worker} ran {most} jobs at a time in {own_runs[0].slots} slots"


def r14_cron_once(history: History) -> Iterator[str]:
    """A due time creates one job."""
    due = Counter(
        job.fields.get("idempotency_key")
        for job in history.jobs.values()
        if job.fields.get("task") == TICK
    )
    for key, times in due.items():
        if times > 1:
            yield f"{key} has {times} jobs"


def r15_not_early(history: History) -> Iterator[str]:
    """A delayed job does not start before its time, by the server's clock."""
    for job_id, job in history.jobs.items():
        submission = history.submission_of(job_id)
        starts = [event.ts for event in job.events if event.type == "running"]
        due_ms = int(job.fields.get("created_ts", "0")) + 1000 * (
            submission.delay_s if submission else 0
        )
        if starts and starts[0] < due_ms and not clock_was_off(history, job_id):
            yield f"{job_id} was due at {due_ms:.0f} and started at {starts[0]}"


def r16_in_line(history: History) -> Iterator[str]:
    """Without faults, jobs start in the order of submission."""
    began = [
        next((event.ts for event in job.events if event.type == "running"), 0)
        for job_id in history.calm
        if (job := history.jobs.get(job_id))
    ]
    if any(after < before for before, after in pairwise(began)):
        yield f"jobs that came one after the other started at {began}"


def r17_refused_does_not_run(history: History) -> Iterator[str]:
    """A refused request creates no job."""
    made = {job.fields.get("idempotency_key") for job in history.jobs.values()}
    for key, submission in history.submissions.items():
        if not submission.valid and (key in made or key in history.accepted):
            yield f"{key} is no valid request, and made a job"


def r18_errors_have_codes(history: History) -> Iterator[str]:
    """Every refusal has an expected code."""
    for answer in history.answers:
        if answer.status >= 400 and answer.code not in _EXPECTED_CODES:
            yield f"{answer.verb} {answer.about} was answered {answer.status} {answer.code!r}"


def r19_reports_are_whole(history: History) -> Iterator[str]:
    """Reports of a run are on the wire without a gap, from the first; those of the run whose
    result is stored, all of them. Only a full server may drop some, and a failover lose them."""
    runs = {run.id: run for run in history.runs}
    for job_id, job in history.jobs.items():
        numbers: dict[str, list[int]] = {}
        for event in job.events:
            if _of_run(event.data):
                numbers.setdefault(str(event.data["run"]), []).append(int(str(event.data["n"])))
        result = job.result.get("run") if isinstance(job.result, dict) else None
        if isinstance(result, str):
            numbers.setdefault(result, [])
        for name, seen in numbers.items():
            run = runs.get(name)
            if run is None or _was_full(history, run, job):
                continue
            expected = run.reported if name == result and run.reported is not None else 0
            missing = {*range(max([*seen, -1, expected - 1]) + 1)}.difference(seen)
            if len(seen) != len(set(seen)) or seen != sorted(seen):
                yield f"{job_id}: of run {name} there are the reports {seen}"
            elif not all(_report_may_be_lost(history, job_id, run, number) for number in missing):
                yield f"{job_id}: of run {name} there are the reports {seen}, not {missing}"


def r20_starts_are_used_once(history: History) -> Iterator[str]:
    """A run begins after its own start on the wire, before the job is started again or ends; two
    runs overlap only if their starts are at least a lease apart."""
    runs: dict[str, list[Run]] = {}
    for run in sorted(history.runs, key=lambda run: run.began_ms):
        # A process takes long to start, and runs on while its worker is frozen.
        if run.task in ("work", "block", "thread"):
            runs.setdefault(run.job_id, []).append(run)
    for job_id, own_runs in runs.items():
        job = history.jobs.get(job_id)
        if not job or clock_was_off(history, job_id):
            continue
        begun: list[tuple[Run, Event]] = []
        unused = [event for event in job.events if event.type == "running"]
        for run in own_runs:
            earlier = [event for event in unused if _fits(run, event)]
            if not earlier:
                if not _start_may_be_lost(history, run):
                    yield f"{job_id}: run {run.id} of attempt {run.attempt} has no start of its own"
                continue
            later = job.events[job.events.index(earlier[-1]) + 1 :]
            ends = (event for event in later if event.type == "running" or event.type in TERMINAL)
            after = next(ends, None)
            if after and after.ts + _TOLERANCE_MS < run.began_ms:
                if _start_may_be_lost(history, run):
                    continue
                late_ms = run.began_ms - after.ts
                yield f"{job_id}: run {run.id} began {late_ms:.0f} ms after the next {after.type}"
            unused.remove(earlier[-1])
            begun.append((run, earlier[-1]))
        for (first, start), (second, next_start) in pairwise(begun):
            apart_ms = next_start.ts - start.ts
            overlap = first.ended_ms is not None and second.began_ms < first.ended_ms
            if first.task != "thread" and overlap and apart_ms < 0.9 * history.lease_ms:
                yield f"{job_id}: runs {first.id} and {second.id} overlap, {apart_ms} ms apart"


def r21_the_server_is_not_charged(history: History) -> Iterator[str]:
    """A job is reclaimed from its worker only if meanwhile a fault hit that worker, the job's shard
    had no primary, or another handler blocked the worker before it had seen the start."""
    blocks = _blocks(history)
    poison = ((run.began_ms, run.worker) for run in history.runs if run.task == "poison")
    worker_faults = sorted([*history.worker_faults, *poison])
    runs: dict[str, list[Run]] = {}
    for run in sorted(history.runs, key=lambda run: run.began_ms):
        runs.setdefault(run.job_id, []).append(run)
    for job_id, job in history.jobs.items():
        if clock_was_off(history, job_id):
            continue
        start: Event | None = None
        for event in job.events:
            if event.type == "retrying" or event.step == "worker.release":
                start = None
            elif event.type == "running":
                worker = start and _worker_of(start, event, runs.get(job_id, ()))
                # A frozen worker loses its jobs for a while after the fault.
                if start and not (
                    any(
                        start.ts - 5 * history.lease_ms <= at <= event.ts
                        for at, hit in worker_faults
                        if hit == worker or not worker
                    )
                    or _had_no_primary(history, job_id, start.ts, event.ts)
                    or (
                        not worker
                        and any(
                            began <= start.ts + _TOLERANCE_MS and event.ts <= ended
                            for began, ended in blocks
                        )
                    )
                ):
                    yield f"{job_id} was taken from {worker} after {event.ts - start.ts} ms"
                start = event


def worker_starts_on_a_full_server(history: History) -> Iterator[str]:
    """A full server is drained by workers, so they must be able to start."""
    yield from history.failed_starts


def failover_is_survived(history: History) -> Iterator[str]:
    """Jobs that the lagging replica has continue; the others are lost with all their keys."""
    yield from history.failed_over


def emptied_is_survived(history: History) -> Iterator[str]:
    """After all keys were deleted, gateways and workers serve new jobs."""
    yield from history.emptied


RULES: Final[dict[str, Callable[[History], Iterator[str]]]] = {
    "R1": r1_accepted_is_there,
    "R2": r2_all_end,
    "R3": r3_one_end,
    "R4": r4_state_agrees,
    "R5": r5_runs_do_not_mix,
    "R6": r6_one_settle,
    "R7": r7_always_a_place,
    "R8": r8_runs_are_counted,
    "R9": r9_one_key_one_job,
    "R10": r10_at_rest,
    "R11": r11_canceled_is_canceled,
    "R12": r12_watchers_miss_nothing,
    "R13": r13_slots,
    "R14": r14_cron_once,
    "R15": r15_not_early,
    "R16": r16_in_line,
    "R17": r17_refused_does_not_run,
    "R18": r18_errors_have_codes,
    "R19": r19_reports_are_whole,
    "R20": r20_starts_are_used_once,
    "R21": r21_the_server_is_not_charged,
    "F8": failover_is_survived,
    "F9": emptied_is_survived,
    "F12": worker_starts_on_a_full_server,
}


def clock_was_off(history: History, job_id: str) -> bool:
    """Whether the server's clock jumped during a job's life: its times cannot be compared then."""
    job = history.jobs.get(job_id)
    if not job or not history.jumps:
        return False
    times = [event.ts for event in job.events]
    margin_ms = 5 * history.lease_ms
    first, last = min(times, default=0) - margin_ms, max(times, default=0) + margin_ms
    return any(began <= last and first <= ended for began, ended in history.jumps)


def _was_canceled_long_ago(history: History, job_id: str) -> bool:
    """Whether a job may be gone because it was canceled while it waited (J-57)."""
    requested_ms = history.cancel_requested.get(job_id)
    if requested_ms is None:
        return False
    margin_ms = 5 * history.lease_ms  # the server's clock jumps
    return history.collected_ms - requested_ms > 1000 * CANCELED_TTL_S - margin_ms


def _was_full(history: History, run: Run, job: Ended) -> bool:
    """Whether the server had no memory for some of the run's reports. They may be sent long after
    the handler returned, and before the job's end: while the server is unavailable they wait."""
    margin_ms = history.lease_ms
    ended_ms = run.ended_ms or run.began_ms + 5 * history.lease_ms
    if job.events:
        # By the server's clock, which jumps.
        ended_ms = max(ended_ms, job.events[-1].ts + 5 * history.lease_ms)
    return any(
        began - margin_ms <= ended_ms and run.began_ms <= ended + margin_ms
        for began, ended in history.full
    )


def _worker_of(start: Event, next_start: Event, runs: Sequence[Run]) -> str:
    """The worker that began a job after this start; empty if it is not known: it died before the
    handler began, or the handler was in a child process."""
    found = (run for run in runs if start.ts - 1 <= run.began_ms < next_start.ts)
    run = next(found, None)
    return run.worker if run and run.task != "process" else ""


def _blocks(history: History) -> list[tuple[float, float]]:
    """When handlers blocked the event loop of a worker, one after the other."""
    found: list[tuple[float, float]] = []
    own = (run for run in history.runs if run.task == "block")
    for _, runs in groupby(sorted(own, key=lambda run: (run.worker, run.began_ms)), _worker):
        for number, run in enumerate(runs):
            began_ms, ended_ms = run.began_ms, run.ended_ms or inf
            if number and began_ms <= found[-1][1] + _TOLERANCE_MS:
                began_ms = found.pop()[0]
            found.append((began_ms, ended_ms))
    return found


def _worker(run: Run) -> str:
    return run.worker


def _had_no_primary(history: History, job_id: str, since_ms: float, until_ms: float) -> bool:
    """Whether a lease that began and ran out at these times could not be renewed."""
    late_ms = 3 * history.lease_ms
    return any(
        each.has(job_id)
        and each.began_ms <= until_ms <= each.ended_ms + late_ms
        and since_ms <= each.ended_ms
        for each in history.outages
    )


def _may_lose(history: History, job_id: str, since_ms: float, until_ms: float) -> bool:
    """Whether a failover may have lost a write of the job that was made in this time (G-26)."""
    return any(
        each.has(job_id) and each.began_ms - _LAG_MS <= until_ms and since_ms <= each.ended_ms
        for each in history.losses
    )


def _was_lost(history: History, job_id: str, seen_ms: Sequence[float]) -> bool:
    """Whether one failover may have lost a write whose effect was seen at these times, and at no
    other. What is seen was written before, but not longer than a lease."""
    return any(
        each.has(job_id)
        and each.began_ms - _LAG_MS <= min(seen_ms)
        and max(seen_ms) <= each.ended_ms + history.lease_ms
        for each in history.losses
    )


def _submission_was_lost(history: History, job_id: str) -> bool:
    """Whether a failover may have lost the job: every response that knew it came then."""
    known = [
        answer.at_ms
        for answer in history.answers
        if job_id in (answer.job_id, answer.about) and answer.status < 400
    ]
    return _was_lost(history, job_id, known)


def _start_may_be_lost(history: History, run: Run) -> bool:
    """Whether a failover may have lost the start of a run. A handler begins at most a lease after
    its start was written; a child process takes longer to begin."""
    late_ms = history.lease_ms * (3 if run.task == "process" else 1)
    return _may_lose(history, run.job_id, run.began_ms - late_ms, run.began_ms)


def _report_may_be_lost(history: History, job_id: str, run: Run, number: int) -> bool:
    """Whether a failover may have lost a report: it was written between those before and after it
    that are there."""
    events = history.jobs[job_id].events
    own = [
        (int(str(event.data["n"])), event.ts) for event in events if event.data.get("run") == run.id
    ]
    since_ms = max((ts for n, ts in own if n < number), default=run.began_ms)
    until_ms = min((ts for n, ts in own if n > number), default=events[-1].ts)
    return _may_lose(history, job_id, since_ms, until_ms)


def _event_was_lost(history: History, job_id: str, entry: str) -> bool:
    """Whether a failover may have lost an event; its id is the time at which it was written."""
    at_ms = float(entry.partition("-")[0])
    return _may_lose(history, job_id, at_ms, at_ms)


def _split(seen: Sequence[str], mark: str) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for each in seen:
        if each == mark:
            parts.append([])
        else:
            parts[-1].append(each)
    return parts


def _fits(run: Run, event: Event) -> bool:
    return event.data.get("attempt") in (None, run.attempt) and event.ts <= run.began_ms + 1


def _kinds(job: Ended) -> list[str]:
    return [event.type for event in job.events]


def _of_run(data: object) -> bool:
    return isinstance(data, dict) and "run" in data and "n" in data


def _wanted_end(history: History, job_id: str, job: Ended) -> str:
    """The expected end; empty if faults or callers may decide it."""
    submission = history.submission_of(job_id)
    deliveries = int(job.fields.get("deliveries", "0"))
    lost = deliveries - (int(job.fields.get("attempt", "1")) - 1)
    if not submission or job_id in history.cancel_requested or lost >= history.max_deliveries:
        return ""
    if submission.task == "poison":
        return "error"
    return "done" if submission.fails < submission.max_attempts else "error"
