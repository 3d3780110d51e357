"""The plans of the API methods: requests, retries and results; no network."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TypeVar

import msgspec
import pytest

from jobwire.api import jobs as api
from jobwire.client import errors, image_calls
from jobwire.client.calls import (
    ApiRequest,
    ApiResponse,
    Pause,
    Plan,
    Reply,
    batch,
    call,
    cancel,
    run,
    submit,
    wait,
)
from jobwire.client.errors import (
    AlreadyFinished,
    ApiError,
    BadAnswer,
    ClientError,
    Invalid,
    JobCanceled,
    JobFailed,
    QueueFull,
    TimedOut,
    Unavailable,
    UnknownTask,
    Unreachable,
    from_response,
)
from jobwire.client.messages import CancelAnswer, Job, NewJob
from jobwire.client.queue_calls import add_flow
from jobwire.client.retry_budget import RetryBudget
from tests.support import clause

T = TypeVar("T")


class FakeGateway:
    """Returns these replies in order and records the requests."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.requests: list[ApiRequest] = []
        self.paused = 0

    def execute(self, plan: Plan[T]) -> T:
        reply: Reply = None
        while True:
            try:
                step = plan.send(reply)
            except StopIteration as done:
                return done.value
            if isinstance(step, Pause):
                self.paused += 1
                reply = None
            else:
                self.requests.append(step)
                reply = self.replies.pop(0)


def _job(status: str = "queued", **more: object) -> ApiResponse:
    body: dict[str, object] = {"job_id": "j1", "task": "chat", "status": status, "ttl_s": 60}
    body |= {"created_ts": 0, "updated_ts": 0, "from": "a later version", **more}
    return ApiResponse(200, msgspec.json.encode(body))


def _problem(status: int, code: str) -> ApiResponse:
    return ApiResponse(status, msgspec.json.encode({"code": code, "detail": f"it is {code}"}), 0.0)


LOST = Unreachable("cut", sent=True)


def test_temporary_errors_are_retried_with_the_identical_request() -> None:
    gateway = FakeGateway(Unreachable("refused"), LOST, _problem(503, "unavailable"), _job())
    job = gateway.execute(submit(RetryBudget(30), NewJob("chat", {"prompt": "é"})))
    assert job.job_id == "j1"
    assert gateway.paused == 3
    assert len(gateway.requests) == 4
    assert all(request == gateway.requests[0] for request in gateway.requests)
    assert gateway.requests[0].headers["Idempotency-Key"].startswith("auto-")
    assert gateway.requests[0].body == '{"task":"chat","payload":{"prompt":"é"}}'.encode()


def test_each_job_has_its_own_key_and_a_given_key_is_kept() -> None:
    gateway = FakeGateway(_job(), _job(), _job())
    for new in (NewJob("chat"), NewJob("chat"), NewJob("chat", idempotency_key="mine")):
        gateway.execute(submit(RetryBudget(30), new))
    keys = [request.headers["Idempotency-Key"] for request in gateway.requests]
    assert len(set(keys)) == 3
    assert keys[2] == "mine"


def test_the_retry_budget_ends() -> None:
    gateway = FakeGateway(*[Unreachable("refused")] * 100)
    with pytest.raises(Unreachable, match="refused"):
        gateway.execute(call(RetryBudget(0), api.GET, "j1"))
    assert len(gateway.requests) == 1


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (_problem(422, "unknown_task"), UnknownTask),
        (_problem(422, "invalid_payload"), Invalid),
        (_problem(413, "payload_too_large"), Invalid),
        (_problem(401, "bad_key"), errors.Unauthorized),
        (_problem(403, "forbidden"), errors.Forbidden),
        (_problem(404, "job_not_found"), errors.NoSuchJob),
        (_problem(404, "not_found"), errors.NotFound),
        (_problem(409, "idempotency_mismatch"), errors.IdempotencyMismatch),
        (_problem(409, "not_retryable"), ApiError),
        (_problem(429, "queue_full"), QueueFull),
        (_problem(418, "teapot"), ApiError),
        (ApiResponse(404, b"<html>nginx</html>"), BadAnswer),
        (ApiResponse(200, b"<html>nginx</html>"), BadAnswer),
        (ApiResponse(200, b'{"job_id":"j1"}'), BadAnswer),
        (ApiResponse(302, b""), BadAnswer),
    ],
)
@clause("J-19")
def test_j19_each_refusal_raises_its_error_type_without_a_retry(
    answer: ApiResponse, kind: type[ClientError]
) -> None:
    gateway = FakeGateway(answer)
    with pytest.raises(kind) as raised:
        gateway.execute(submit(RetryBudget(30), NewJob("chat")))
    assert type(raised.value) is kind
    assert gateway.paused == 0, "a retry would not help"


def test_a_problem_keeps_its_message_and_retry_after() -> None:
    body = b'{"code":"queue_full","detail":"9 jobs are waiting","request_id":"r1"}'
    error = from_response(429, body, 5.0)
    assert isinstance(error, QueueFull)
    assert (str(error), error.code, error.status) == ("9 jobs are waiting", "queue_full", 429)
    assert (error.retry_after_s, error.problem["request_id"]) == (5.0, "r1")
    assert isinstance(from_response(502, b"<html>", None), Unavailable), (
        "a proxy, while the gateway restarts"
    )


def test_a_rate_limit_is_retried_after_retry_after() -> None:
    budget = RetryBudget(30)
    limited = from_response(429, b'{"code":"rate_limited"}', 7.0)
    assert budget.pause_s(limited, 0.0, 0.0) == 7.0
    assert RetryBudget(5).pause_s(limited, 0.0, 0.0) is None, "longer than the budget"


def test_pauses_grow_and_the_limit_counts_from_the_first_error() -> None:
    budget, down = RetryBudget(30), Unreachable("down")
    pauses = [budget.pause_s(down, 0.0, 0.5) for _ in range(8)]
    assert all(pause is not None and pause <= 5.0 for pause in pauses)
    assert pauses == sorted(pauses, key=lambda pause: pause or 0)
    assert budget.pause_s(down, 29.9, 0.5) is None
    budget.responded()
    assert budget.pause_s(down, 100.0, 0.5) == pauses[0]
    budget.responded(healthy=False)
    again = budget.pause_s(down, 500.0, 0.5)
    assert again is not None
    assert again == pauses[1], "it accepts and closes: the backoff goes on"


def test_run_returns_the_result_or_raises() -> None:
    assert FakeGateway(_job("done", result={"n": 1})).execute(
        run(RetryBudget(1), NewJob("x"), None)
    ) == {"n": 1}
    error = {"code": "timeout", "message": "too slow", "partial": "so f"}
    with pytest.raises(JobFailed, match="too slow") as failed:
        FakeGateway(_job("error", error=error)).execute(run(RetryBudget(1), NewJob("x"), None))
    assert (failed.value.code, failed.value.partial) == ("timeout", "so f")
    assert failed.value.job.job_id == "j1"
    with pytest.raises(JobCanceled):
        FakeGateway(_job("running"), _job("canceled")).execute(
            run(RetryBudget(1), NewJob("x"), None)
        )
    with pytest.raises(TimedOut, match="it continues") as late:
        FakeGateway(_job(), _job("running")).execute(run(RetryBudget(1), NewJob("x"), 0))
    assert late.value.job_id == "j1"


@pytest.mark.parametrize("error", ["it broke", ["a", 1], 7, {"code": 5}])
def test_any_json_of_a_foreign_worker_is_an_error(error: object) -> None:
    job = msgspec.json.decode(_job("error", error=error).body, type=Job)
    with pytest.raises(JobFailed):
        FakeGateway(_job("error", error=error)).execute(run(RetryBudget(1), NewJob("x"), None))
    assert job.failure.message


def test_wait_sends_prefer_wait() -> None:
    gateway = FakeGateway(_job("running"), LOST, _job("done"))
    assert gateway.execute(wait(RetryBudget(30), "j1", None)).status == "done"
    assert [request.headers["Prefer"] for request in gateway.requests] == ["wait=55"] * 3
    assert gateway.requests[0].wait_s == 55


def test_a_cancel_repeated_after_a_lost_response_succeeds() -> None:
    gateway = FakeGateway(LOST, _problem(409, "already_finished"), _job("canceled"))
    assert gateway.execute(cancel(RetryBudget(30), "j1")) == CancelAnswer("j1", "canceled")
    with pytest.raises(AlreadyFinished):
        FakeGateway(LOST, _problem(409, "already_finished"), _job("done")).execute(
            cancel(RetryBudget(30), "j1")
        )
    with pytest.raises(AlreadyFinished):
        FakeGateway(_problem(409, "already_finished")).execute(cancel(RetryBudget(30), "j1"))


def test_a_batch_is_split_and_each_job_has_a_key() -> None:
    def made(count: int) -> ApiResponse:
        results: list[object] = [{"status": 202, "job_id": f"j{n}"} for n in range(count)]
        results[0] = {"status": 422, "problem": {"code": "unknown_task", "detail": "no such task"}}
        return ApiResponse(200, msgspec.json.encode({"results": results}))

    gateway = FakeGateway(made(1000), made(5))
    results = gateway.execute(
        batch(RetryBudget(1), [NewJob("chat", {"n": n}) for n in range(1005)])
    )
    assert len(results) == 1005
    assert isinstance(results[0], UnknownTask)
    assert results[1] == "j1"
    sent = [job for request in gateway.requests for job in json.loads(request.body or b"")["jobs"]]
    assert [job["payload"]["n"] for job in sent] == list(range(1005))
    assert len({job["idempotency_key"] for job in sent}) == 1005
    with pytest.raises(BadAnswer, match="5 results for 1 jobs"):
        FakeGateway(made(5)).execute(batch(RetryBudget(1), [NewJob("chat")]))
    assert FakeGateway().execute(batch(RetryBudget(1), [])) == []


@dataclass
class Question:
    prompt: str


def test_a_payload_may_be_a_dataclass_and_must_be_json() -> None:
    gateway = FakeGateway(_job())
    gateway.execute(submit(RetryBudget(1), NewJob("chat", Question("hi"), ttl_s=5, delay_s=0.5)))
    assert json.loads(gateway.requests[0].body or b"") == {
        "task": "chat",
        "payload": {"prompt": "hi"},
        "ttl_s": 5,
        "delay_s": 0.5,
    }
    for bad in ({"x": float("nan")}, {"x": "\ud800"}, {"x": object()}):
        with pytest.raises(Invalid, match="no JSON form"):
            FakeGateway().execute(submit(RetryBudget(1), NewJob("chat", bad)))


def test_an_id_is_quoted_in_the_path() -> None:
    assert api.GET.url("../admin?x#y") == "/v1/jobs/..%2Fadmin%3Fx%23y"


@pytest.mark.parametrize("children", [7, [7], {"name": "b"}, [{"name": "b", "children": "c"}]])
def test_children_that_are_no_jobs_are_refused(children: object) -> None:
    flow = {"name": "a", "children": children}
    with pytest.raises(Invalid, match="list of jobs"):
        FakeGateway().execute(add_flow(RetryBudget(1), "mail", flow))


def test_an_image_that_is_not_ready_in_time_is_named_as_an_image() -> None:
    body = {"image_id": "i1", "status": "processing", "filename": ""}
    body |= {"created_at": "2026-02-24T10:00:00Z", "updated_at": "2026-02-24T10:00:00Z"}
    image = ApiResponse(200, msgspec.json.encode(body))
    with pytest.raises(TimedOut, match="image i1 has not ended within 0 s"):
        FakeGateway(image).execute(image_calls.wait(RetryBudget(1), "i1", 0))
