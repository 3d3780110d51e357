"""Functions as tools: selection, arguments, at most one run."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Literal

import pytest

from jobwire.handlers.llm import LlmSettings, register
from jobwire.handlers.llm.tools import BadArguments, as_tool
from jobwire.job.errors import Fail, Retry
from jobwire.worker import App
from tests.handlers.llm.recorder import Bench
from tests.handlers.llm.upstream import Act, Upstream, says
from tests.support import clause, wait_until

Unit = Literal["celsius", "fahrenheit"]


def get_weather(city: str, unit: Unit = "celsius") -> str:
    """The weather in a city: rain, sun, temperature.

    Further paragraphs are not part of the description.
    """
    return f"sunny in {city}, in {unit}"


def set_timer(minutes: int, label: str | None = None) -> dict[str, object]:
    """Set a timer that rings after some minutes."""
    return {"rings_in": minutes, "label": label}


def app_with(*functions: Callable[..., object]) -> App:
    app = App()
    for function in functions:
        app.tool(function)
    return app


def calls(name: str, **arguments: object) -> Act:
    return says(json.dumps({"call": {"tool": name, "arguments": arguments}}))


def bench_with(url: str, *functions: Callable[..., object], **settings: object) -> Bench:
    made = LlmSettings(base_url=url, model="tester", **settings)  # pyright: ignore[reportArgumentType] - each test gives its own
    return Bench(made, app_with(*functions))


# ── choosing ─────────────────────────────────────────────────────────────────────────────────────


@clause("J-50")
async def test_j50_a_real_model_chooses_in_json() -> None:
    async with Upstream(calls("get_weather", city="Norway", unit=None)) as upstream:
        bench = bench_with(upstream.url, get_weather, set_timer)
        record = await bench.run("tool", {"prompt": "Is it raining in Oslo?"})
    assert record.result == {
        "tool": "get_weather",
        "arguments": {"city": "Norway"},
        "chosen_by": "model",
        "score": None,
        "ran": True,
        "output": "sunny in Norway, in celsius",
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
        "model": "tester",
        "confirm": False,
    }
    form = upstream.requests[0].body["response_format"]["json_schema"]["schema"]
    offered = form["properties"]["call"]["anyOf"]
    assert [each["properties"]["tool"]["enum"] for each in offered] == [
        ["get_weather"],
        ["set_timer"],
        ["none"],
    ]
    assert offered[0]["properties"]["arguments"]["required"] == ["city", "unit"]


@clause("J-50")
@pytest.mark.parametrize(
    ("act", "code"),
    [
        (calls("none"), "tool_no_match"),
        (calls("rm_rf", path="/"), "output_invalid"),
        (calls("set_timer", minutes="soon"), "tool_bad_arguments"),
        (calls("set_timer"), "tool_bad_arguments"),
        (calls("set_timer", minutes=3, seconds=4), "tool_bad_arguments"),
        (calls("get_weather", city="Oslo", unit="kelvin"), "tool_bad_arguments"),
        (says("I would use get_weather."), "output_invalid"),
        (says('{"call": {"tool": "get_w', finish="length"), "output_truncated"),
    ],
)
async def test_j50_the_models_tool_call_is_checked(act: Act, code: str) -> None:
    async with Upstream(act) as upstream:
        with pytest.raises(Fail) as failed:
            await bench_with(upstream.url, get_weather, set_timer).run("tool", {"prompt": "Go"})
    assert failed.value.code == code


@clause("J-50")
async def test_j50_only_the_named_tools_are_offered() -> None:
    async with Upstream(calls("get_weather", city="Oslo")) as upstream:
        bench = bench_with(upstream.url, get_weather, set_timer)
        with pytest.raises(Fail) as failed:
            await bench.run("tool", {"prompt": "Go", "tools": ["set_timer"]})
        assert failed.value.code == "output_invalid"
        with pytest.raises(Fail, match="'format_disk'; this worker has: get_weather") as failed:
            await bench.run("tool", {"prompt": "Go", "tools": ["format_disk"]})
    assert failed.value.code == "tool_unknown"
    assert "get_weather" not in upstream.requests[0].body["messages"][0]["content"]


# ── running ──────────────────────────────────────────────────────────────────────────────────────


async def run_one(
    function: Callable[..., object], *, limit_s: float = 60, **about: object
) -> Exception | object:
    """Run a tool without parameters; return the outcome."""
    async with Upstream(calls(function.__name__)) as upstream:
        bench = bench_with(upstream.url, function, tool_timeout=timedelta(seconds=limit_s))
        return (await bench.run("tool", {"prompt": "Go"}, **about)).result["output"]


@clause("J-50")
async def test_j50_a_tool_runs_in_a_thread() -> None:
    def where() -> str:
        """Where it runs."""
        return threading.current_thread().name

    assert await run_one(where) == "tool-where"


@clause("J-50")
async def test_j50_a_failed_tool_is_never_retried() -> None:
    def breaks() -> None:
        """Breaks."""
        raise ConnectionError("secret detail")

    def asks_for_more() -> None:
        """Requests a retry."""
        raise Retry(5, "try me later")

    def returns_nonsense() -> object:
        """Returns what is no JSON."""
        return object()

    def returns_no_number() -> float:
        """Returns what is no number."""
        return float("nan")

    for function, words in (
        (breaks, "breaks raised ConnectionError"),
        (asks_for_more, "asks_for_more: try me later"),
        (returns_nonsense, "returned a value of type object, which has no JSON form"),
        (returns_no_number, "cannot be published"),
    ):
        with pytest.raises(Fail, match=words) as failed:
            await run_one(function)
        assert failed.value.code == "tool_failed"
        assert "secret" not in failed.value.message


@clause("J-50")
async def test_j50_a_failure_is_reported_before_the_job_ends() -> None:
    def breaks() -> None:
        """Breaks."""
        raise ConnectionError

    async with Upstream(calls("breaks")) as upstream:
        bench = bench_with(upstream.url, breaks)
        context, outlet = bench.context("tool", {"prompt": "Go"})
        with pytest.raises(Fail):
            await bench.handle(context)
    event = outlet.events[-1]
    assert event.kind == "tool_result"
    assert (event.data["ok"], event.data["error"]) == (False, "breaks raised ConnectionError")


@clause("J-50")
async def test_j50_a_slow_tool_is_abandoned_at_its_time_limit() -> None:
    release = threading.Event()

    def sleeps() -> None:
        """Sleeps."""
        release.wait(30)

    try:
        with pytest.raises(Fail, match=r"longer than 0\.3 s") as failed:
            await run_one(sleeps, limit_s=0.3)
        assert failed.value.code == "tool_timeout"
    finally:
        release.set()


@clause("J-50")
async def test_j50_a_tool_without_capacity_is_retried_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Functions past their time limit continue in their threads; with too many of them the next job
    waits."""
    ran: list[int] = []

    def counts() -> None:
        """Counts."""
        ran.append(1)

    monkeypatch.setattr("jobwire.handlers.llm.tool_runner._slots", threading.Semaphore(0))
    with pytest.raises(Retry, match="too many tools"):
        await run_one(counts, limit_s=0.3)
    assert ran == []


@clause("J-50")
async def test_j50_a_job_that_is_stopped_while_its_tool_runs_does_not_run_it_again() -> None:
    """A time limit of the job, or the worker's end: the next attempt would call it again."""
    begun, release = threading.Event(), threading.Event()

    def charges() -> None:
        """Charges a card."""
        begun.set()
        release.wait(30)

    async with Upstream(calls("charges")) as upstream:
        bench = bench_with(upstream.url, charges)
        context, _ = bench.context("tool", {"prompt": "Go"})
        job = asyncio.ensure_future(bench.handle(context))
        await wait_until(begun.is_set, "the tool to begin")
        job.cancel()
        with pytest.raises(Fail, match="not run again") as failed:
            await job
        release.set()
    assert failed.value.code == "tool_failed"


@clause("J-50")
async def test_j50_a_job_whose_worker_was_lost_does_not_run_its_tool() -> None:
    ran: list[int] = []

    def counts() -> None:
        """Counts."""
        ran.append(1)

    with pytest.raises(Fail, match="a worker was lost") as failed:
        await run_one(counts, deliveries=2, record={"o:run": "token of the lost worker"})
    assert failed.value.code == "tool_failed"
    assert ran == []
    await run_one(counts, deliveries=2)  # the worker was lost before the tool began
    assert ran == [1]
    output = await run_one(counts, deliveries=3, record={"s:run": "[1,1,7]"})
    assert (output, ran) == (7, [1]), "it has run: its output is known"


@clause("J-50", "D-1")
async def test_j50_a_choice_of_the_model_is_made_once() -> None:
    def counts(number: int) -> int:
        """Counts."""
        return number

    chosen = {"name": "counts", "arguments": {"number": 3}, "by": "model", "usage": None}
    made = json.dumps([1, 1, {**chosen, "model": "m"}])
    async with Upstream(calls("counts", number=4)) as upstream:
        bench = bench_with(upstream.url, counts)
        record = await bench.run("tool", {"prompt": "Go"}, record={"s:choose": made})
        assert upstream.requests == []
    assert (record.result["output"], record.result["arguments"]) == (3, {"number": 3})


@clause("J-50")
async def test_j50_an_output_that_no_record_can_hold_is_in_the_result() -> None:
    def talks() -> str:
        """Talks."""
        return "x" * 300_000

    async with Upstream(calls("talks")) as upstream:
        record = await bench_with(upstream.url, talks).run("tool", {"prompt": "Go"})
    assert len(record.result["output"]) == 300_000


@clause("J-50")
async def test_j50_a_large_output_is_in_the_result_and_not_in_the_event() -> None:
    def talks() -> str:
        """Talks."""
        return "x" * 100_000

    async with Upstream(calls("talks")) as upstream:
        record = await bench_with(upstream.url, talks).run("tool", {"prompt": "Go"})
    assert len(record.result["output"]) == 100_000
    assert record.of("tool_result")[0]["result_bytes"] == 100_002


# ── what can be a tool ───────────────────────────────────────────────────────────────────────────


def test_a_tool_is_read_from_its_signature() -> None:
    tool = as_tool("get_weather", get_weather)
    assert tool.description == "The weather in a city: rain, sun, temperature."
    city, unit = tool.parameters
    assert (city.schema(), city.required) == ({"type": "string"}, True)
    assert (unit.schema(), unit.required) == ({"enum": ["celsius", "fahrenheit"]}, False)
    assert tool.check({"city": "Oslo"}) == {"city": "Oslo"}
    assert tool.check({"city": "Oslo", "unit": None}) == {"city": "Oslo"}
    with pytest.raises(BadArguments):
        tool.check(["Oslo"])


def test_an_invalid_tool_is_an_error_at_start() -> None:
    def no_words(x: int) -> int:
        return x

    def no_type(x: object) -> int:
        """No type to speak of."""
        return 0

    def odd_type(x: list[int]) -> int:
        """An odd type."""
        return len(x)

    def any_number(*x: int) -> int:
        """Any number."""
        return sum(x)

    async def waits() -> None:
        """Waits."""

    for function, words in (
        (no_words, "needs a docstring"),
        (no_type, "'x' needs a type: str, int, float, bool or Literal"),
        (odd_type, "'x' needs a type"),
        (any_number, "'x' cannot be passed by name"),
        (waits, "plain `def`"),
    ):
        app = app_with(function)
        with pytest.raises(TypeError, match=words):
            register(app, LlmSettings())


def test_two_tools_of_one_name_are_refused() -> None:
    app = app_with(get_weather)
    with pytest.raises(ValueError, match="get_weather"):
        app.tool(get_weather)


def test_an_app_keeps_its_own_handlers_and_its_own_tools() -> None:
    app = app_with(set_timer)

    @app.handler("chat")
    async def chat(payload: dict[str, str]) -> str:
        return payload["prompt"]

    register(app, LlmSettings())
    assert app.handlers["chat"].function is chat
    assert set(app.handlers) == {"chat", "plan", "code", "tool", "rag", "embed"}
    assert json.loads(app.handlers["tool"].definition.example_json) == {
        "prompt": "set_timer(minutes=1)",
        "tools": ["set_timer"],
        "run": False,
    }
