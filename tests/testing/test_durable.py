"""D-20: users' tests of steps, without a server."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from jobwire import App, ChildFailed, Context, Fail, Retry
from jobwire.job.retry import fixed
from jobwire.testing import run, run_sync
from jobwire.worker.failed_job import FailedJobError
from tests.contracts import durable_handlers, waiting_handlers
from tests.contracts.durable_handlers import KINDS, calls
from tests.support import clause


@clause("D-20")
@pytest.mark.parametrize("kind", KINDS)
async def test_d20_a_crash_after_a_step_pays_nothing_again(tmp_path: Path, kind: str) -> None:
    for step in ("one", "two", "one:2"):
        path = str(tmp_path / step.replace(":", "-"))
        ran = await run(durable_handlers.app, kind, {"path": path}, crash_after=step)
        assert ran.result == [100, 100, 100]
        assert (ran.runs, ran.attempts) == (2, 1), "a crash is no attempt"
        assert ran.calls == {"one": 1, "two": 1, "one:2": 1}
        assert calls(path) == ["one", "two", "three"]
        assert [str(data)[:14] for data in ran.of("step_done")][:1] == ["{'name': 'one'"]


@clause("D-20", "D-7")
def test_d20_calls_count_failed_ones_too() -> None:
    app = App("failing")

    @app.handler("failing", retries=1, backoff=fixed(0))
    async def failing(ctx: Context) -> int:
        def later() -> int:
            if ctx.attempt < 3:
                raise Retry(0)
            return ctx.attempt

        if ctx.attempt == 1:
            await ctx.step("first", str, ctx.attempt)
            raise RuntimeError
        return await ctx.step_once("later", later)

    ran = run_sync(app, "failing")
    assert ran.error is not None, "one record gives one more failure, not two"
    assert ran.calls == {"first": 1, "later": 1}
    ran = run_sync(app, "failing", max_attempts=3)
    assert (ran.result, ran.calls) == (3, {"first": 1, "later": 2})


@clause("D-20", "D-23")
def test_d20_an_app_with_on_failure_can_be_tested() -> None:
    """Regression: no handler of such an App could be run."""
    app = App("alarms")

    @app.handler("tell-owner")
    async def tell_owner(ctx: Context) -> str:
        return f"told about {ctx.payload['task']}"

    @app.handler("render", on_failure=tell_owner)
    async def render(ctx: Context) -> None:
        raise Fail("no_audio", "there is no sound")

    ran = run_sync(app, render)
    assert ran.error is not None
    assert ran.error.code == "no_audio"
    assert run_sync(app, "tell-owner", {"task": "render"}).result == "told about render"


@clause("D-20")
async def test_d20_an_error_around_a_child_is_raised() -> None:
    """Regression: the test of the user waited for ever."""
    entered: list[int] = []

    @asynccontextmanager
    async def once() -> AsyncGenerator[None]:
        if entered:
            raise RuntimeError("the port is in use")
        entered.append(1)
        yield

    app = App("once", lifespan=once)

    @app.handler("parent", uses={"durable"})
    async def parent(ctx: Context) -> None:
        await ctx.run("parent", {})

    with pytest.raises(RuntimeError, match="the port is in use"):
        await run(app, "parent")


@clause("D-20", "D-16")
async def test_d20_children_are_bounded() -> None:
    app = App("deep")

    @app.handler("deep", uses={"durable"})
    async def deep(ctx: Context) -> None:
        await ctx.run("deep", {})

    ran = await run(app, "deep")
    assert ran.error is not None
    assert "child_limit" in ran.error.message


@clause("D-20")
def test_d20_waits_are_over_at_once() -> None:
    ran = run_sync(waiting_handlers.app, "async", {"path": "/dev/null", "sleep_s": 3600})
    assert (ran.result, ran.waits) == (["one", "two"], ["sleep"])
    work = {"path": "/dev/null", "signal": "go", "children": ["a", "bad"]}
    ran = run_sync(waiting_handlers.app, "thread", work, signals={"go": {"by": "ann"}})
    assert ran.error is not None
    assert ran.error.code == "child_failed"
    assert (ran.waits, ran.calls["render"], ran.calls["one"]) == (["signal go", "children"], 2, 1)
    ran = run_sync(waiting_handlers.app, "process", {"path": "/dev/null", "signal": "go"})
    assert ran.result == ["one", "timeout", "two"]


@clause("D-12")
@pytest.mark.parametrize("kind", KINDS)
def test_d12_a_signal_that_does_not_come_ends_the_job_in_one_attempt(kind: str) -> None:
    """The end of the wait is recorded: another attempt would not wait."""
    ran = run_sync(waiting_handlers.app, f"{kind}-unanswered", max_attempts=3)
    assert ran.error is not None
    assert (ran.error.code, ran.error.message) == (
        "signal_timeout",
        "the signal 'go' did not come in time",
    )
    assert ran.waits == ["signal go"]
    assert (ran.attempts, ran.waits_s) == (1, [])


@clause("D-20")
def test_d20_a_crash_after_a_step_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"crash_after='three'.* only: one, two, one:2"):
        run_sync(durable_handlers.app, "async", {"path": str(tmp_path / "x")}, crash_after="three")


@clause("D-20", "D-24")
async def test_d20_a_signal_that_was_read_does_not_come_again_after_a_restart() -> None:
    """As on a server, where one that nobody has read is kept."""
    app = App("turns")

    @app.handler("turns", uses={"durable"})
    async def turns(ctx: Context) -> object:
        names = ctx.payload.get("names", ["a"])
        found = [await ctx.wait_for_signal(name) for name in names]
        return found if ctx.payload else await ctx.restart({"names": ["b", "a"]})

    ran = await run(app, turns, signals={"a": 1, "b": 2})
    assert ran.error is not None
    assert (ran.error.code, ran.waits) == ("signal_timeout", ["signal a", "signal b", "signal a"])


@clause("D-20")
async def test_d20_children_get_signals_and_errors_have_one_shape() -> None:
    app, seen = App("family"), list[object]()

    @app.handler("child", uses={"durable"})
    async def child(ctx: Context) -> object:
        seen.append(await ctx.wait_for_signal("go"))
        ctx.partial = "half"
        raise Fail("no", "not today")

    @app.handler("parent", uses={"durable"})
    async def parent(ctx: Context) -> object:
        seen.append(await ctx.wait_for_signal("go"))
        (failed,) = await ctx.gather(await ctx.submit(child, {}), return_exceptions=True)
        assert isinstance(failed, ChildFailed)
        return failed.error

    ran = await run(app, parent, signals={"go": 1, "child:go": 2})
    wanted = FailedJobError("no", "not today", False, 1, "half")
    assert (ran.result, seen) == (msgspec.to_builtins(wanted), [1, 2, 1])
    assert (await run(app, child, signals={"go": 3})).error == wanted


@clause("D-20", "D-7")
async def test_d20_a_wait_counts_attempts_anew_as_on_a_server() -> None:
    app = App("waits")

    @app.handler("waits", retries=1, backoff=fixed(0), uses={"durable"})
    async def waits(ctx: Context) -> object:
        if ctx.attempt == 1:
            raise RuntimeError("before")
        await ctx.sleep(60)
        if ctx.attempt == 2:
            raise RuntimeError("behind")
        return [ctx.attempt, ctx.job.deliveries]

    assert (await run(app, waits)).result == [3, 3]
