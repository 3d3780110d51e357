"""J-35, J-36: kinds of handlers, their outcomes, payload types and registration."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from jobwire.job.errors import Fail, Retry
from jobwire.job.messages import (
    Canceled,
    Done,
    Failed,
    JobId,
    Json,
    LeasedJob,
    Outcome,
    RetryLater,
)
from jobwire.job.retry import fixed
from jobwire.worker import App, Context
from tests.support import clause, wait_until
from tests.worker.conftest import BrokenModel, StartWorker
from tests.worker.memory import MemoryEngine, MemoryServer, Record

Ended = Callable[[JobId], Awaitable[Record]]


def failure(outcome: Outcome | None) -> tuple[str, str]:
    assert isinstance(outcome, Failed | RetryLater), outcome
    return outcome.error.code, outcome.error.message


@clause("J-36")
async def test_j36_an_async_def_runs_in_the_loop(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    app = App()

    @app.handler("add")
    async def add(ctx: Context) -> int:
        await asyncio.sleep(0)
        return ctx.payload["a"] + ctx.payload["b"]

    await work(app, engine)
    record = await ended(server.add("add", {"a": 2, "b": 3}))
    assert record.outcome == Done("5")


@clause("J-36")
async def test_j36_a_def_runs_in_a_thread(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    app = App()

    @app.handler("where")
    def where(ctx: Context) -> str:
        return threading.current_thread().name

    await work(app, engine)
    record = await ended(server.add("where"))
    assert isinstance(record.outcome, Done)
    assert "jobwire-handler" in record.outcome.result_json


async def test_many_jobs_of_both_kinds_all_end_once(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker
) -> None:
    app = App()

    @app.handler("quick")
    async def quick(ctx: Context) -> int:
        return ctx.payload["n"]

    @app.handler("slow")
    async def slow(ctx: Context) -> int:
        await asyncio.sleep(0.001)
        return ctx.payload["n"]

    @app.handler("thread")
    def thread(ctx: Context) -> int:
        return ctx.payload["n"]

    jobs = {
        server.add(task, {"n": number}): number
        for number in range(300)
        for task in ("quick", "slow", "thread")
    }
    await work(app, engine, slots=16)
    await wait_until(lambda: len(server.settles) == len(jobs), "all jobs to end")
    assert set(server.settles.values()) == {1}
    assert all(server.jobs[job].outcome == Done(str(number)) for job, number in jobs.items())


# ── how handlers end ─────────────────────────────────────────────────────────────────────────────


@clause("J-35")
@pytest.mark.parametrize("kind", ["coroutine", "waiting coroutine", "thread"])
async def test_j35_an_exception_of_a_handler_is_retried(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, kind: str
) -> None:
    app = App()
    seen: list[int] = []

    def flaky(ctx: Context) -> str:
        seen.append(ctx.attempt)
        if ctx.attempt < 3:
            raise RuntimeError("secret detail")
        return "at last"

    async def flaky_async(ctx: Context) -> str:
        if kind == "waiting coroutine":
            await asyncio.sleep(0)
        return flaky(ctx)

    app.handler("flaky", retries=2, backoff=fixed(0))(flaky if kind == "thread" else flaky_async)
    await work(app, engine)
    job = server.add("flaky")
    await wait_until(lambda: server.jobs[job].outcome == Done('"at last"'))
    assert seen == [1, 2, 3]


@clause("J-35")
async def test_j35_the_last_attempt_fails_with_a_generic_message(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    app = App()

    @app.handler("bad")
    async def bad(ctx: Context) -> None:
        raise RuntimeError("password 123")

    await work(app, engine)
    record = await ended(server.add("bad"))
    assert failure(record.outcome) == ("handler_error", "the handler raised RuntimeError")
    assert isinstance(record.outcome, Failed)
    assert "password 123" in record.outcome.error.detail
    assert "runner.py" not in record.outcome.error.detail


@clause("J-35")
async def test_j35_retry_sets_the_delay_and_fail_ends_the_job(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    app = App()

    @app.handler("later", retries=5)
    async def later(ctx: Context) -> None:
        raise Retry(after=timedelta(hours=1), message="upstream is busy", code="busy")

    @app.handler("never", retries=5)
    async def never(ctx: Context) -> None:
        ctx.partial = {"text": "so far"}
        raise Fail("no_such_model", "there is no model of that name")

    await work(app, engine)
    later_record = await ended(server.add("later"))
    assert isinstance(later_record.outcome, RetryLater)
    assert later_record.outcome.after_s == 3600
    assert failure(later_record.outcome) == ("busy", "upstream is busy")
    never_record = await ended(server.add("never"))
    assert failure(never_record.outcome) == ("no_such_model", "there is no model of that name")
    assert isinstance(never_record.outcome, Failed)
    assert never_record.outcome.error.partial_json == '{"text":"so far"}'


@clause("J-35")
async def test_j35_the_jobs_own_limits_precede_the_handlers(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker
) -> None:
    app = App()
    seen: list[int] = []

    @app.handler("bad", retries=50, backoff=fixed(0))
    async def bad(ctx: Context) -> None:
        seen.append(ctx.attempt)
        raise RuntimeError

    await work(app, engine)
    job = server.add("bad", max_attempts=2)
    await wait_until(lambda: isinstance(server.jobs[job].outcome, Failed))
    assert seen == [1, 2]


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (object(), "result_not_json"),
        (float("nan"), "result_not_json"),
        ({"deep": [None, float("inf")]}, "result_not_json"),
        ("half a surrogate \ud800", "result_not_json"),
        (BrokenModel(), "result_not_json"),
        ("x" * 1_048_577, "result_too_large"),
    ],
)
@clause("J-6")
async def test_j06_a_result_that_cannot_be_stored_is_a_permanent_failure(
    server: MemoryServer,
    engine: MemoryEngine,
    work: StartWorker,
    ended: Ended,
    result: object,
    code: str,
) -> None:
    app = App()

    @app.handler("odd", retries=3)
    async def odd(ctx: Context) -> object:
        return result

    await work(app, engine)
    record = await ended(server.add("odd"))
    assert isinstance(record.outcome, Failed)
    assert record.outcome.error.code == code


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, BaseException])
async def test_no_exception_of_a_handler_leaves_the_runner(
    server: MemoryServer,
    engine: MemoryEngine,
    work: StartWorker,
    ended: Ended,
    error: type[BaseException],
) -> None:
    app = App()

    @app.handler("quick")
    async def quick(ctx: Context) -> None:
        raise error

    @app.handler("slow")
    async def slow(ctx: Context) -> None:
        await asyncio.sleep(0)
        raise error

    @app.handler("thread")
    def thread(ctx: Context) -> None:
        raise error

    await work(app, engine)
    for task in ("quick", "slow", "thread"):
        record = await ended(server.add(task))
        assert failure(record.outcome) == (
            "handler_error",
            f"the handler raised {error.__name__}",
        )


async def test_a_job_with_a_preset_outcome_is_settled_without_a_run(
    server: MemoryServer,
    engine: MemoryEngine,
    work: StartWorker,
    ended: Ended,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = App()
    ran: list[str] = []

    @app.handler("task")
    async def task(ctx: Context) -> None:
        ran.append(ctx.job.id)

    plain = server.lease

    def foregone(record: Record) -> LeasedJob:
        return plain(record)._replace(preset_outcome=Canceled())

    monkeypatch.setattr(server, "lease", foregone)
    await work(app, engine)
    record = await ended(server.add("task"))
    assert record.outcome == Canceled()
    assert ran == []


# ── typed payloads ───────────────────────────────────────────────────────────────────────────────


class Struct(msgspec.Struct):
    n: int
    words: list[str] = msgspec.field(default_factory=list[str])


@dataclass
class Data:
    n: int
    words: list[str]


class Typed(TypedDict):
    n: int
    words: list[str]


class Model(pydantic.BaseModel):
    n: int
    words: list[str]


@pytest.mark.parametrize("model", [Struct, Data, Typed, Model])
@pytest.mark.parametrize("form", ["context", "payload", "both"])
async def test_a_payload_arrives_as_the_annotated_type(
    server: MemoryServer,
    engine: MemoryEngine,
    work: StartWorker,
    ended: Ended,
    model: type,
    form: str,
) -> None:
    app = App()
    seen: list[object] = []

    async def by_context(ctx: Context) -> None:
        seen.append(ctx.payload)

    async def by_payload(photo: object) -> None:
        seen.append(photo)

    async def by_both(photo: object, ctx: Context) -> None:
        assert ctx.payload is photo
        seen.append(photo)

    forms = {"context": by_context, "payload": by_payload, "both": by_both}
    by_context.__annotations__["ctx"] = Context[model]
    by_payload.__annotations__["photo"] = model
    by_both.__annotations__["photo"] = model
    app.handler("typed")(forms[form])
    await work(app, engine)
    await ended(server.add("typed", {"n": 1, "words": ["a"]}))
    wanted = {"n": 1, "words": ["a"]} if model is Typed else model(n=1, words=["a"])
    assert seen == [wanted]


@pytest.mark.parametrize("model", [Struct, Data, Typed, Model])
@pytest.mark.parametrize("kind", ["coroutine", "thread"])
@clause("J-6")
async def test_j06_an_invalid_payload_is_a_permanent_failure_with_its_path(
    server: MemoryServer,
    engine: MemoryEngine,
    work: StartWorker,
    ended: Ended,
    model: type,
    kind: str,
) -> None:
    app = App()

    async def typed(ctx: Context) -> None:
        raise AssertionError

    def typed_thread(ctx: Context) -> None:
        raise AssertionError

    for function in (typed, typed_thread):
        function.__annotations__["ctx"] = Context[model]
    app.handler("typed", retries=3)(typed if kind == "coroutine" else typed_thread)
    await work(app, engine)
    record = await ended(server.add("typed", {"n": 1, "words": ["a", 7]}))
    assert isinstance(record.outcome, Failed)
    code, message = failure(record.outcome)
    assert code == "invalid_payload"
    assert message.startswith("payload.words[1]: ")


def test_a_payload_of_any_kind_is_not_checked() -> None:
    app = App()

    @app.handler("json")
    async def json_(payload: Json) -> None: ...

    @app.handler("context")
    async def context(ctx: Context[Json]) -> None: ...

    @app.handler("any")
    async def any_(payload: Any) -> None: ...

    assert {handler.signature.payload_type for handler in app.handlers.values()} == {None}


async def test_schema_and_example_are_published(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker
) -> None:
    app = App()

    @app.handler("struct", example={"n": 1})
    async def struct(payload: Struct) -> None: ...

    @app.handler("model")
    async def model(payload: Model) -> None: ...

    @app.handler("any")
    async def anything(ctx: Context) -> None: ...

    await work(app, engine)
    cards = {card.name: card for card in engine.cards}
    assert json.loads(cards["struct"].example_json) == {"n": 1}
    assert "words" in cards["struct"].schema_json
    assert json.loads(cards["model"].schema_json)["properties"].keys() == {"n", "words"}
    assert cards["any"].schema_json == ""


# ── registering ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"timeout_s": 0}, "timeout_s=0 must be more than 0"),
        ({"timeout_s": float("inf")}, "timeout_s=inf"),
        ({"retries": -1}, "retries=-1 must not be negative"),
        ({"concurrency": 0}, "concurrency=0 must be at least 1"),
        ({"example": {"n": "no"}}, "the example is not valid: payload.n: expected `int`"),
    ],
)
def test_a_bad_option_gets_a_one_line_error(options: dict[str, object], words: str) -> None:
    async def handler(payload: Struct) -> None: ...

    with pytest.raises(ValueError, match="handler 'task': ") as raised:
        App().handler("task", **options)(handler)  # pyright: ignore[reportArgumentType] - wrong on purpose
    assert words in str(raised.value)


def test_a_task_has_one_handler() -> None:
    app = App()

    @app.handler("task")
    async def first(ctx: Context) -> None: ...

    with pytest.raises(ValueError, match="task 'task' has a handler already"):
        app.handler("task")(first)


def test_a_function_that_cannot_be_a_handler_is_refused() -> None:
    async def nothing() -> None: ...
    async def three(ctx: Context, one: int, two: int) -> None: ...
    async def keyword(ctx: Context, *, depth: int) -> None: ...

    for function, words in ((nothing, "takes ()"), (three, "takes (ctx, one, two)")):
        with pytest.raises(TypeError, match="a handler takes the context"):
            App().handler("task")(function)
        with pytest.raises(TypeError) as raised:
            App().handler("task")(function)
        assert words in str(raised.value)
    with pytest.raises(TypeError, match="the keyword parameter 'depth' needs a default"):
        App().handler("task")(keyword)


def test_a_process_handler_must_be_importable() -> None:
    def local(ctx: Context) -> None: ...

    with pytest.raises(TypeError, match="at the top level of a module"):
        App().handler("task", process=True)(local)


async def test_a_def_that_returns_a_coroutine_gets_an_error(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    app = App()

    async def inner() -> None: ...

    @app.handler("hidden")
    def hidden(ctx: Context) -> object:
        return inner()

    await work(app, engine)
    record = await ended(server.add("hidden"))
    assert isinstance(record.outcome, Failed)
    assert "register it as `async def`" in record.outcome.error.detail


async def test_an_app_without_handlers_is_refused(engine: MemoryEngine, work: StartWorker) -> None:
    with pytest.raises(ValueError, match="the app has no handlers"):
        await work(App(), engine)


@clause("J-35")
async def test_j35_a_partial_text_that_is_too_large_is_cut(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    app = App()

    @app.handler("long")
    async def long(ctx: Context) -> None:
        ctx.partial = "é" * 400_000
        raise Fail("stopped", "enough")

    await work(app, engine)
    record = await ended(server.add("long"))
    assert isinstance(record.outcome, Failed)
    partial = json.loads(record.outcome.error.partial_json)
    assert partial.startswith("ééé")
    assert partial.endswith("of 400000 characters)")
