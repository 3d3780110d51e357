"""D-25: retry and cancel of many jobs by task, code and time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jobwire import Client
from jobwire.cli.exits import Exit
from jobwire.job.messages import Failed, JobError, JobId
from jobwire.local import LocalValkey
from jobwire.systems.jobs.settings import StreamsSettings
from tests.cli.runner import jobwire
from tests.support import clause
from tests.support.jobs_http import ServedJobs, bearer, problem
from tests.support.raw import Raw
from tests.support.streams import StreamsLab

TASK = "chat"


async def failed(
    lab: StreamsLab, count: int, code: str = "e", text: str = "m", **more: Any
) -> list[JobId]:
    """New jobs that have failed."""
    worker = await lab.worker(TASK, "plan")
    ids = [await lab.submit(json.dumps({"n": n}), **{"task": TASK, **more}) for n in range(count)]
    error = Failed(JobError(code, text))
    await worker.settle([(leased, error) for leased in await worker.take(count)], 0)
    return ids


def bulk(served: ServedJobs, act: str, key: str = "", **body: object) -> dict[str, Any]:
    headers = bearer(key) if key else {}
    answer = served.client.post(f"/v1/jobs/{act}", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def counts(answer: dict[str, Any]) -> tuple[int, ...]:
    return tuple(answer[name] for name in ("matched", "changed", "already", "refused"))


def queued(raw: Raw) -> list[str | None]:
    """The jobs in the default queue, by what they are retries of."""
    jobs = [fields["job_id"] for _, fields in raw.entries("jobs:stream")]
    return [raw.field(f"job:{job}", "retry_of") for job in jobs]


@clause("D-25")
async def test_d25_failed_jobs_are_retried_by_task_and_code_each_once(
    served: ServedJobs, lab: StreamsLab, raw: Raw
) -> None:
    slow = await failed(lab, 3, "timeout", "took 12345678 s\nmore")
    other = await failed(lab, 2, "boom")
    await failed(lab, 1, "timeout", task="plan")
    dry = bulk(served, "retry", task=TASK, code="timeout", dry_run=True)
    assert (counts(dry), dry["dry_run"], dry["cursor"]) == ((3, 0, 0, 0), True, None)
    assert queued(raw) == [], "nothing was changed"
    assert counts(bulk(served, "retry", task=TASK, code="timeout")) == (3, 3, 0, 0)
    assert sorted(queued(raw), key=str) == sorted(slow)
    again = bulk(served, "retry", task=TASK, code="timeout")
    assert (counts(again), len(queued(raw))) == ((3, 0, 3, 0), 3), "each once"
    new = raw.entries("jobs:stream")[0][1]
    old = raw.fields(f"job:{raw.field('job:' + new['job_id'], 'retry_of')}")
    assert (new["payload"], old["status"]) == (old["payload"], "error")
    message = served.client.get("/v1/failures").json()["failures"]
    assert {kind["message"] for kind in message if kind["code"] == "timeout"} == {"took … s", "m"}
    assert counts(bulk(served, "retry", task=TASK, message="took … s", dry_run=True))[0] == 3
    assert counts(bulk(served, "retry", task=TASK)) == (5, 2, 3, 0)
    assert set(other) < set(queued(raw))


@clause("D-25")
async def test_d25_since_is_the_time_of_the_failure_and_of_the_submission(
    served: ServedJobs, lab: StreamsLab, raw: Raw
) -> None:
    early, late = await failed(lab, 2)
    raw.call("HSET", f"job:{early}", "updated_ts", "5000", "created_ts", "1000")
    raw.call("HSET", f"job:{late}", "updated_ts", "5001", "created_ts", "1000")
    assert counts(bulk(served, "retry", task=TASK, since=5001)) == (1, 1, 0, 0)
    (new,) = [fields["job_id"] for _, fields in raw.entries("jobs:stream")]
    now_ms = raw.now_ms()
    assert counts(bulk(served, "cancel", task=TASK, since=now_ms + 60_000))[0] == 0
    assert counts(bulk(served, "cancel", task=TASK, since=now_ms - 60_000)) == (1, 1, 0, 0)
    assert raw.field(f"job:{new}", "status") == "canceled"


@clause("D-25")
async def test_d25_a_call_is_bounded_and_goes_on_at_its_cursor(
    served: ServedJobs, lab: StreamsLab, raw: Raw
) -> None:
    ids = await failed(lab, 7)
    answer = bulk(served, "retry", task=TASK, limit=3)
    assert counts(answer) == (3, 3, 0, 0)
    while answer["cursor"]:
        answer = bulk(served, "retry", task=TASK, limit=3, cursor=answer["cursor"])
    assert sorted(queued(raw), key=str) == sorted(ids)


@clause("D-25", "J-16")
async def test_d25_waiting_jobs_are_canceled_and_running_ones_asked_to_stop(
    served: ServedJobs, lab: StreamsLab, raw: Raw
) -> None:
    worker = await lab.worker(TASK)
    running = await lab.submit(task=TASK)
    (leased,) = await worker.take(1)
    waiting = [await lab.submit(task=TASK, delay_s=delay) for delay in (0, 60)]
    other = await lab.submit(task="plan")
    assert counts(bulk(served, "cancel", task=TASK, dry_run=True)) == (2, 0, 0, 0)
    assert counts(bulk(served, "cancel", task=TASK)) == (2, 2, 0, 0)
    states = [raw.field(f"job:{job}", "status") for job in (*waiting, running, other)]
    assert states == ["canceled", "canceled", "running", "queued"]
    assert counts(bulk(served, "cancel", task=TASK, status="running")) == (1, 1, 0, 0)
    assert raw.field(f"job:{running}", "cancel_ts")
    await worker.settle([(leased, Failed(JobError("e", "m")))], 0)


@clause("D-25", "J-57")
async def test_d25_only_the_callers_own_jobs_are_changed(
    keyed: ServedJobs, lab: StreamsLab, raw: Raw
) -> None:
    await failed(lab, 2, tenant="acme")
    await failed(lab, 1)
    assert counts(bulk(keyed, "retry", "globex", task=TASK))[0] == 0
    assert counts(bulk(keyed, "retry", "plain", task=TASK, dry_run=True))[0] == 1
    assert counts(bulk(keyed, "retry", "acme", task=TASK)) == (2, 2, 0, 0)
    (job, _) = [fields["job_id"] for _, fields in raw.entries("jobs:stream")]
    assert raw.field(f"job:{job}", "tenant") == "acme"
    for act in ("retry", "cancel"):
        path = f"/v1/jobs/{act}"
        answer = keyed.client.post(path, json={"task": TASK}, headers=bearer("acme-reader"))
        problem(answer, 403, "forbidden")
        wrong = {"task": TASK, "tenant": "acme"}
        answer = keyed.client.post(path, json=wrong, headers=bearer("globex"))
        assert answer.status_code in (403, 422)


@clause("D-25")
def test_d25_bad_requests_change_nothing(served: ServedJobs) -> None:
    for body in (
        *({}, {"task": ""}, {"task": TASK, "limit": 1001}, {"task": TASK, "cursor": "x"}),
        *({"task": TASK, "since": -1}, {"task": TASK, "status": "done"}, {"task": TASK, "x": 1}),
    ):
        for act in ("retry", "cancel"):
            answer = served.client.post(f"/v1/jobs/{act}", json=body)
            problem(answer, 422, "invalid_request")
    answer = served.client.post("/v1/jobs/retry", json={"task": "no-such-task"})
    problem(answer, 422, "unknown_task")


@clause("D-25", "J-12")
async def test_d25_a_full_queue_stops_the_call_which_can_be_repeated(
    valkey: LocalValkey, lab: StreamsLab, raw: Raw
) -> None:
    await failed(lab, 5)
    limited = StreamsSettings(max_queue=3)
    with ServedJobs(valkey.url, jobs=limited) as served:
        answer = bulk(served, "retry", task=TASK)
        assert counts(answer) == (5, 3, 0, 2)
        assert answer["problem"]["code"] == "queue_full"
        raw.call("XTRIM", "jobs:stream", "MAXLEN", 0)
        answer = bulk(served, "retry", task=TASK, cursor=answer["cursor"])
        assert counts(answer) == (5, 2, 3, 0)
    assert len(queued(raw)) == 2


@clause("D-25")
async def test_d25_in_the_client_and_on_the_command_line(
    served: ServedJobs, lab: StreamsLab, tmp_path: Path
) -> None:
    await failed(lab, 3, "timeout")
    with Client(served.url) as client:
        assert client.retry_many(TASK, code="timeout", dry_run=True).matched == 3
        assert client.retry_many(TASK, limit=1).changed == 1
        assert client.cancel_many(TASK).changed == 1

    def cli(*words: str, code: int = 0) -> Any:
        done = jobwire(*words, cwd=tmp_path, env={"JOBWIRE_URL": served.url})
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout) if code == 0 else done.stderr

    select = ("--task", TASK, "--code", "timeout", "--since", "1h")
    assert cli("retry", *select, "--dry-run") == {"matched": 3, "dry_run": True}
    assert "add --yes" in cli("retry", *select, code=2)
    assert cli("retry", *select, "--yes") == {"changed": 2, "already": 1, "refused": 0}
    assert cli("cancel", "--task", TASK, "--yes")["changed"] == 2
    nothing = {"changed": 0, "already": 0, "refused": 0}
    assert cli("cancel", "--task", TASK, "--yes") == nothing
    assert "--task" in cli("retry", code=2)
    assert "not both" in cli("cancel", "abc", "--task", TASK, code=2)
    assert "options that select jobs need --task" in cli("retry", "abc", "--code", "x", code=2)
    # An empty variable in a script selects nothing, not everything.
    empty = cli("cancel", "--task", TASK, "--since", "", "--yes", code=2)
    assert "--since: '' is not a duration" in empty


@clause("D-25", "J-12")
async def test_d25_a_refusal_that_passes_is_not_the_end_of_the_jobs(
    valkey: LocalValkey, lab: StreamsLab, raw: Raw
) -> None:
    """Regression: on the first page the answer had no cursor, as if there were no more jobs."""
    ids = await failed(lab, 5)
    raw.call("HSET", f"job:{ids[-1]}", "payload", '"no object"')  # refused for good, and first
    with ServedJobs(valkey.url, jobs=StreamsSettings(max_queue=3)) as served:
        answer = bulk(served, "retry", task=TASK)
        assert counts(answer) == (5, 3, 0, 2)
        assert answer["problem"]["code"] == "queue_full"
        assert answer["cursor"]
        raw.call("XTRIM", "jobs:stream", "MAXLEN", 0)
        answer = bulk(served, "retry", task=TASK, cursor=answer["cursor"])
        assert (counts(answer), answer["cursor"]) == ((5, 1, 3, 1), None)


@clause("D-25")
async def test_d25_a_job_that_is_refused_for_good_does_not_stop_the_command(
    served: ServedJobs, lab: StreamsLab, raw: Raw, tmp_path: Path
) -> None:
    """Regression: after one such job the command ended with the first call."""
    ids = [job for _ in range(11) for job in await failed(lab, 100)]
    raw.call("HSET", f"job:{ids[-1]}", "payload", '"no object"')
    words = ("retry", "--task", TASK, "--yes")
    done = jobwire(*words, cwd=tmp_path, env={"JOBWIRE_URL": served.url})
    assert done.returncode == Exit.REFUSED, done.stderr
    assert json.loads(done.stdout) == {"changed": 1_099, "already": 0, "refused": 1}
    assert len(queued(raw)) == 1_099
