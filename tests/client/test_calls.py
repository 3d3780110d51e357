"""What is asked, asked again, and made of the answers; no network."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TypeVar

import msgspec
import pytest

from jobwire.client import errors
from jobwire.client.calls import (
    ApiRequest,
    ApiResponse,
    Pause,
    Plan,
    Reply,
    batch,
    cancel,
    get,
    job_path,
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
    from_answer,
)
from jobwire.client.messages import CancelAnswer, Job, NewJob
from jobwire.client.retry_budget import RetryBudget
from tests.support import clause

T = TypeVar("T")


class Talk:
    """Plays the gateway: says these replies, and notes what was asked."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.asked: list[ApiRequest] = []
        self.paused = 0

    def hold(self, plan: Plan[T]) -> T:
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
                self.asked.append(step)
                reply = self.replies.pop(0)


def _job(status: str = "queued", **more: object) -> ApiResponse:
    body = {"job_id": "j1", "task": "chat", "status": status, "from": "a later version", **more}
    return ApiResponse(200, msgspec.json.encode(body))


def _problem(status: int, code: str) -> ApiResponse:
    return ApiResponse(status, msgspec.json.encode({"code": code, "detail": f"it is {code}"}), 0.0)


LOST = Unreachable("cut", sent=True)


def test_trouble_that_passes_is_not_noticed_and_every_try_is_the_same_request() -> None:
    talk = Talk(Unreachable("refused"), LOST, _problem(503, "unavailable"), _job())
    job = talk.hold(submit(NewJob("chat", {"prompt": "é"}), RetryBudget(30)))
    assert job.job_id == "j1"
    assert talk.paused == 3
    assert len(talk.asked) == 4
    assert all(ask == talk.asked[0] for ask in talk.asked)
    assert talk.asked[0].headers["Idempotency-Key"].startswith("auto-")
    assert talk.asked[0].body == '{"task":"chat","payload":{"prompt":"é"}}'.encode()


def test_two_jobs_have_two_keys_and_a_key_of_ones_own_is_kept() -> None:
    talk = Talk(_job(), _job(), _job())
    for new in (NewJob("chat"), NewJob("chat"), NewJob("chat", idempotency_key="mine")):
        talk.hold(submit(new, RetryBudget(30)))
    keys = [ask.headers["Idempotency-Key"] for ask in talk.asked]
    assert len(set(keys)) == 3
    assert keys[2] == "mine"


def test_patience_has_an_end() -> None:
    talk = Talk(*[Unreachable("refused")] * 100)
    with pytest.raises(Unreachable, match="refused"):
        talk.hold(get("j1", RetryBudget(0)))
    assert len(talk.asked) == 1


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
def test_j19_each_refusal_is_an_error_of_its_kind_and_told_at_once(
    answer: ApiResponse, kind: type[ClientError]
) -> None:
    talk = Talk(answer)
    with pytest.raises(kind) as raised:
        talk.hold(submit(NewJob("chat"), RetryBudget(30)))
    assert type(raised.value) is kind
    assert talk.paused == 0, "asking again would not help"


def test_a_problem_brings_its_words_and_a_full_queue_says_when_to_come_back() -> None:
    body = b'{"code":"queue_full","detail":"9 jobs are waiting","request_id":"r1"}'
    error = from_answer(429, body, 5.0)
    assert isinstance(error, QueueFull)
    assert (str(error), error.code, error.status) == ("9 jobs are waiting", "queue_full", 429)
    assert (error.retry_after_s, error.problem["request_id"]) == (5.0, "r1")
    assert isinstance(from_answer(502, b"<html>", None), Unavailable), "a proxy, while we restart"


def test_a_rate_limit_is_waited_for_as_told() -> None:
    patience = RetryBudget(30)
    limited = from_answer(429, b'{"code":"rate_limited"}', 7.0)
    assert patience.pause_s(limited, 0.0, 0.0) == 7.0
    assert RetryBudget(5).pause_s(limited, 0.0, 0.0) is None, "longer than we are patient"


def test_pauses_grow_and_trouble_counts_from_its_beginning() -> None:
    patience, down = RetryBudget(30), Unreachable("down")
    pauses = [patience.pause_s(down, 0.0, 0.5) for _ in range(8)]
    assert all(one is not None and one <= 5.0 for one in pauses)
    assert pauses == sorted(pauses, key=lambda one: one or 0)
    assert patience.pause_s(down, 29.9, 0.5) is None
    patience.answered()
    assert patience.pause_s(down, 100.0, 0.5) == pauses[0]
    patience.answered(well=False)
    again = patience.pause_s(down, 500.0, 0.5)
    assert again is not None
    assert again == pauses[1], "it greets and hangs up: no reason to hurry"


def test_run_gives_the_result_or_what_went_wrong() -> None:
    assert Talk(_job("done", result={"n": 1})).hold(run(NewJob("x"), RetryBudget(1), None)) == {
        "n": 1
    }
    error = {"code": "timeout", "message": "too slow", "partial": "so f"}
    with pytest.raises(JobFailed, match="too slow") as failed:
        Talk(_job("error", error=error)).hold(run(NewJob("x"), RetryBudget(1), None))
    assert (failed.value.code, failed.value.partial) == ("timeout", "so f")
    assert failed.value.job.job_id == "j1"
    with pytest.raises(JobCanceled):
        Talk(_job("running"), _job("canceled")).hold(run(NewJob("x"), RetryBudget(1), None))
    with pytest.raises(TimedOut, match="it goes on") as late:
        Talk(_job(), _job("running")).hold(run(NewJob("x"), RetryBudget(1), 0))
    assert late.value.job_id == "j1"


@pytest.mark.parametrize("error", ["it broke", ["a", 1], 7, {"code": 5}])
def test_whatever_a_foreign_worker_calls_an_error_is_one(error: object) -> None:
    job = msgspec.json.decode(_job("error", error=error).body, type=Job)
    with pytest.raises(JobFailed):
        Talk(_job("error", error=error)).hold(run(NewJob("x"), RetryBudget(1), None))
    assert job.failure.message


def test_waiting_asks_the_gateway_to_wait() -> None:
    talk = Talk(_job("running"), LOST, _job("done"))
    assert talk.hold(wait("j1", RetryBudget(30), None)).status == "done"
    assert [ask.headers["Prefer"] for ask in talk.asked] == ["wait=55"] * 3
    assert talk.asked[0].wait_s == 55


def test_a_cancel_asked_twice_because_its_answer_was_lost_has_worked() -> None:
    talk = Talk(LOST, _problem(409, "already_finished"), _job("canceled"))
    assert talk.hold(cancel("j1", RetryBudget(30))) == CancelAnswer("j1", "canceled")
    with pytest.raises(AlreadyFinished):
        Talk(LOST, _problem(409, "already_finished"), _job("done")).hold(
            cancel("j1", RetryBudget(30))
        )
    with pytest.raises(AlreadyFinished):
        Talk(_problem(409, "already_finished")).hold(cancel("j1", RetryBudget(30)))


def test_a_batch_of_any_size_goes_in_portions_with_a_key_each() -> None:
    def made(count: int) -> ApiResponse:
        results: list[object] = [{"status": 202, "job_id": f"j{n}"} for n in range(count)]
        results[0] = {"status": 422, "problem": {"code": "unknown_task", "detail": "no such task"}}
        return ApiResponse(200, msgspec.json.encode({"results": results}))

    talk = Talk(made(1000), made(5))
    results = talk.hold(batch([NewJob("chat", {"n": n}) for n in range(1005)], RetryBudget(1)))
    assert len(results) == 1005
    assert isinstance(results[0], UnknownTask)
    assert results[1] == "j1"
    sent = [job for ask in talk.asked for job in json.loads(ask.body or b"")["jobs"]]
    assert [job["payload"]["n"] for job in sent] == list(range(1005))
    assert len({job["idempotency_key"] for job in sent}) == 1005
    with pytest.raises(BadAnswer, match="5 results for 1 jobs"):
        Talk(made(5)).hold(batch([NewJob("chat")], RetryBudget(1)))
    assert Talk().hold(batch([], RetryBudget(1))) == []


@dataclass
class Question:
    prompt: str


def test_a_payload_may_be_a_dataclass_and_must_be_json() -> None:
    talk = Talk(_job())
    talk.hold(submit(NewJob("chat", Question("hi"), ttl_s=5, delay_s=0.5), RetryBudget(1)))
    assert json.loads(talk.asked[0].body or b"") == {
        "task": "chat",
        "payload": {"prompt": "hi"},
        "ttl_s": 5,
        "delay_s": 0.5,
    }
    for bad in ({"x": float("nan")}, {"x": "\ud800"}, {"x": object()}):
        with pytest.raises(Invalid, match="no JSON form"):
            Talk().hold(submit(NewJob("chat", bad), RetryBudget(1)))


def test_an_id_stays_in_its_place() -> None:
    assert job_path("../admin?x#y") == "/v1/jobs/..%2Fadmin%3Fx%23y"
