"""`jobwire.testing`: a handler run in memory, a real server by fixture."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel

from jobwire import App, Context, Fail, Retry
from jobwire.job.retry import fixed
from jobwire.testing import Ran, Said, run, run_sync
from jobwire.worker.middleware import CallNext
from tests.support import clause

pytest_plugins = ["pytester"]
app = App()


@dataclass
class Question:
    prompt: str


@app.handler("chat")
async def chat(ctx: Context, payload: Question) -> dict[str, str]:
    await ctx.progress(50, "thinking")
    await ctx.emit("token", {"text": "Hel"}, step="model")
    return {"text": f"Hello, {payload.prompt}"}


@app.handler("shaky", retries=5, backoff=fixed(30))
def shaky(ctx: Context) -> int:
    ctx.log(f"attempt {ctx.attempt}")
    if ctx.attempt < 3:
        raise Retry(after=7 if ctx.attempt == 1 else None)
    return ctx.attempt


@app.handler("broken")
async def broken(ctx: Context) -> None:
    raise Fail("no_luck", "it was not to be")


@app.handler("slow")
async def slow(ctx: Context) -> None:
    ctx.partial = {"so": "far"}
    await asyncio.sleep(3600)


class Order(BaseModel):
    """A payload of pydantic."""

    item: str
    on: date


@contextlib.asynccontextmanager
async def lifespan() -> AsyncGenerator[str]:
    yield "the pool"


shop = App("shop", lifespan=lifespan)


@shop.middleware
async def audited(ctx: Context, call_next: CallNext) -> object:
    await ctx.emit("audit", {"task": ctx.job.task})
    return await call_next()


@shop.cron("0 3 * * *", payload={"item": "tea", "on": "2026-11-18"}, name="nightly")
@shop.handler("order", queue="orders", retries=1)
async def order(ctx: Context, payload: Order) -> list[str]:
    return [payload.item, payload.on.isoformat(), ctx.job.source, str(ctx.state)]


@shop.handler("*", queue="films", wire="bullmq", uses={"postpone"})
async def film(ctx: Context) -> str:
    return f"{ctx.job.task} on {ctx.job.source}"


@shop.handler("order", queue="urgent")
async def urgent(ctx: Context) -> str:
    return "at once"


@clause("J-54")
async def test_j54_a_handler_is_chosen_as_it_is_registered() -> None:
    """By its function, its queue, its wire or its cron entry; inside lifespan and middleware."""
    tea = Order(item="tea", on=date(2026, 11, 18))
    wanted = ["tea", "2026-11-18", "orders", "the pool"]
    for ran in (
        await run(shop, order, tea),
        await run(shop, "order", tea, queue="orders"),
        await run(shop, cron="nightly"),
    ):
        assert (ran.result, ran.of("audit")) == (wanted, [{"task": "order"}])
    assert (await run(shop, "order", queue="urgent")).result == "at once"
    assert (await run(shop, "cut", queue="films", wire="bullmq")).result == "cut on films"


@clause("J-54")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"task": "order"},
            "'order' has several handlers; choose one by queue=: 'orders', 'urgent'",
        ),
        (
            {"task": "order", "queue": "other"},
            "no handler for 'order' on the queue 'other'; it has: ",
        ),
        ({"cron": "daily"}, "cron='daily' names an entry, without a task; the app has: nightly"),
        ({"task": chat}, "the app has no handler for <function chat"),
    ],
)
def test_j54_a_handler_that_is_not_there_is_a_value_error(
    arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        run_sync(shop, **arguments)


async def test_a_result_and_its_events() -> None:
    ran = await run(app, "chat", Question("you"))
    assert ran == Ran(
        result={"text": "Hello, you"},
        events=[
            Said("progress", {"percent": 50, "message": "thinking"}),
            Said("token", {"text": "Hel"}, "model"),
        ],
        attempts=1,
    )
    assert ran.of("token") == [{"text": "Hel"}]


async def test_a_payload_is_checked_as_by_a_worker() -> None:
    ran = await run(app, "chat", {"promt": "you"})
    assert ran.error is not None
    assert ran.error.code == "invalid_payload"
    assert "prompt" in ran.error.message


@pytest.mark.timeout(30)
def test_retries_start_at_once_and_their_delays_are_recorded() -> None:
    ran = run_sync(app, "shaky")
    assert ran.result == 3
    assert ran.waits_s == [7.0, 30.0]
    assert [event.data for event in ran.events if event.kind == "log"] == [
        {"level": "info", "message": f"attempt {number}"} for number in (1, 2, 3)
    ]
    assert run_sync(app, "shaky", max_attempts=1).error is not None


async def test_failures_and_timeouts_are_errors() -> None:
    failed = (await run(app, "broken")).error
    assert failed is not None
    assert (failed.code, failed.message) == ("no_luck", "it was not to be")
    late = (await run(app, "slow", timeout_s=0.05)).error
    assert late is not None
    assert (late.code, late.partial) == ("timeout", {"so": "far"})


async def test_an_unknown_task_is_a_value_error() -> None:
    with pytest.raises(
        ValueError, match="no handler for 'caht'; it has: broken, chat, shaky, slow"
    ):
        await run(app, "caht")


def test_the_fixture_provides_a_real_server(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest('pytest_plugins = ["jobwire.testing.pytest_plugin"]')
    pytester.makepyfile(
        """
        import asyncio
        from jobwire.valkey import Connection

        async def ping(url):
            async with Connection.open(url) as connection:
                return await connection.call("PING")

        def test_it_answers(jobwire_valkey):
            assert asyncio.run(ping(jobwire_valkey)) == "PONG"
        """
    )
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=1)
