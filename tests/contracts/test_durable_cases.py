"""Durable jobs case by case, beside what the suites of DBOS, Temporal, Inngest and Restate assert.

`docs/durable-cases.md` has the table. Each case is a job on a real server; the worker is in the
test's own loop, and `tests/stories` has the same with processes that are killed.
"""

from __future__ import annotations

import asyncio
import enum
import json
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import msgspec
import pytest

from jobwire import App, ChildFailed, Context, Fail, Retry, StepFailed, SyncContext
from jobwire.job.messages import JobId
from jobwire.job.retry import fixed
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.testing import run
from jobwire.worker import Worker
from tests.contracts import durable_handlers
from tests.contracts.durable_handlers import KINDS, calls
from tests.contracts.test_durable_steps import ended, kinds_of, submit
from tests.contracts.test_durable_waits import make_due, until_suspended
from tests.support import clause, wait_until
from tests.support.raw import Raw
from tests.support.streams import StreamsLab
from tests.support.workers import started, stopped

QUEUE = "cases"
LONG_S = 3600


class World:
    """An App with one handler under test, and what its steps have paid."""

    def __init__(self, lab: StreamsLab, raw: Raw) -> None:
        self.lab, self.raw = lab, raw
        self.app = App(QUEUE)
        self.paid: list[str] = []

    def handler(self, function: Callable[..., Any], task: str = "main") -> None:
        self.app.handler(task, retries=2, backoff=fixed(0), uses={"durable"})(function)

    async def pay(self, name: str, value: Any = None) -> Any:
        """The function of a step."""
        self.paid.append(name)
        return name if value is None else value

    async def submit(self, payload: object = None, task: str = "main", **request: Any) -> JobId:
        return await submit(self.lab, task, payload or {}, queue=QUEUE, **request)

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[Worker]:
        tasks = dict.fromkeys(self.app.handlers, QUEUE)
        lab = self.lab
        engine = StreamsEngine(lab.connection, lab.settings, queues=[QUEUE], task_queues=tasks)
        worker = Worker(self.app, [engine], slots=16)
        running = await started(worker)
        try:
            yield worker
        finally:
            await stopped(worker, running)

    async def run(self, payload: object = None) -> Any:
        """The result of a job, or the code of its error."""
        async with self.working():
            return await self.end_of(await self.submit(payload))

    async def end_of(self, job_id: JobId) -> Any:
        found = await ended(self.lab, job_id)
        return found["result"] if found["code"] is None else found["code"]

    async def suspended(self, job_id: JobId) -> dict[str, Any]:
        return await until_suspended(self.raw, job_id)

    async def wake(self, job_id: JobId, *fields: str) -> None:
        make_due(self.raw, job_id, *fields)
        await self.lab.maintain("promote")

    def record(self, job_id: JobId) -> dict[str, str]:
        return self.raw.fields(f"job:{job_id}:steps")


@pytest.fixture
def world(lab: StreamsLab, raw: Raw) -> World:
    return World(lab, raw)


# ── recovery ─────────────────────────────────────────────────────────────────────────────────────


@clause("D-1", "D-20")
@pytest.mark.parametrize("step", ["one", "two", "one:2"])
@pytest.mark.parametrize("kind", KINDS)
async def test_d01_case_a_lost_worker_behind_a_step(kind: str, step: str, tmp_path: Path) -> None:
    path = str(tmp_path / "paid")
    ran = await run(durable_handlers.app, kind, {"path": path}, crash_after=step)
    assert (ran.result, ran.runs) == ([100, 100, 100], 2)
    assert calls(path) == ["one", "two", "three"]


@clause("D-3")
async def test_d03_case_a_deploy_between_two_steps(world: World) -> None:
    waits, go = asyncio.Event(), asyncio.Event()

    async def main(ctx: Context) -> str:
        await ctx.step("a", world.pay, "a")
        waits.set()
        await go.wait()
        return await ctx.step("b", world.pay, "b")

    world.handler(main)
    job_id = await world.submit()
    async with world.working():
        await wait_until(waits.is_set, "the first step")
    go.set()
    async with world.working():
        assert await world.end_of(job_id) == "b"
    assert world.paid == ["a", "b"]


@clause("D-11", "D-3")
async def test_d11_case_a_deploy_while_a_job_sleeps(world: World) -> None:
    async def main(ctx: Context) -> str:
        await ctx.step("a", world.pay, "a")
        await ctx.sleep(LONG_S)
        return await ctx.step("b", world.pay, "b")

    world.handler(main)
    job_id = await world.submit()
    async with world.working():
        await world.suspended(job_id)
    await world.wake(job_id, "t:sleep")
    async with world.working():
        assert await world.end_of(job_id) == "b"
    assert world.paid == ["a", "b"]


@clause("D-1")
@pytest.mark.parametrize("failures", [1, 2])
async def test_d01_case_an_attempt_that_fails_behind_steps(world: World, failures: int) -> None:
    async def main(ctx: Context) -> int:
        await ctx.step("a", world.pay, "a")
        if ctx.attempt <= failures:
            raise RuntimeError
        return ctx.attempt

    world.handler(main)
    assert await world.run() == failures + 1
    assert world.paid == ["a"]


# ── types of results ─────────────────────────────────────────────────────────────────────────────


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    label: str = ""


class Line(msgspec.Struct):
    start: Point
    end: Point | None = None


class Pair(NamedTuple):
    left: int
    right: str


class Movie(TypedDict):
    name: str


VALUES: dict[str, tuple[Any, Any]] = {
    "int": (int, 2**53),
    "float": (float, 0.1),
    "str": (str, "ä \u2028 \x00 😀"),
    "bool": (bool, False),
    "none": (None, None),
    "list": (list[int], [1, 2]),
    "dict": (dict[str, int], {"a": 1}),
    "dict-of-ints": (dict[int, str], {1: "a"}),
    "tuple": (tuple[int, str], (1, "a")),
    "set": (set[int], {1, 2}),
    "frozenset": (frozenset[str], frozenset({"a"})),
    "dataclass": (Point, Point(1, "a")),
    "struct": (Line, Line(Point(1))),
    "named-tuple": (Pair, Pair(1, "a")),
    "typed-dict": (Movie, {"name": "a"}),
    "enum": (Colour, Colour.RED),
    "datetime": (datetime, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
    "date": (date, date(2026, 1, 2)),
    "time": (time, time(3, 4)),
    "timedelta": (timedelta, timedelta(hours=1)),
    "uuid": (uuid.UUID, uuid.UUID(int=7)),
    "decimal": (Decimal, Decimal("1.10")),
    "bytes": (bytes, b"\x00\xff"),
    "union": (int | str, "a"),
    "nested": (dict[str, list[Point | None]], {"a": [Point(1), None]}),
}


@clause("D-4")
@pytest.mark.parametrize("case", VALUES)
async def test_d04_case_a_result_of_this_type(world: World, case: str) -> None:
    kind, value = VALUES[case]
    seen: list[Any] = []

    async def made() -> Any:
        return value

    made.__annotations__["return"] = kind

    async def main(ctx: Context) -> None:
        seen.append(await ctx.step("made", made))
        if ctx.attempt == 1:
            raise RuntimeError

    world.handler(main)
    assert await world.run() is None
    assert seen == [value, value]
    assert [type(each) for each in seen] == [type(value)] * 2


def cycle() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@clause("D-4", "D-6")
@pytest.mark.parametrize(
    ("value", "code"),
    [
        (object(), "step_invalid"),
        (float("nan"), "step_invalid"),
        ([float("inf")], "step_invalid"),
        (cycle(), "step_invalid"),
        ("\ud800", "step_invalid"),
        ("x" * 262_144, "step_too_large"),
    ],
    ids=["object", "nan", "infinity", "cycle", "surrogate", "too-large"],
)
async def test_d04_case_a_result_that_cannot_be_recorded(
    world: World, value: object, code: str
) -> None:
    async def main(ctx: Context) -> None:
        await ctx.step("a", world.pay, "a", value)

    world.handler(main)
    assert await world.run() == code
    assert world.paid == ["a"], "once, and not in another attempt"


# ── many steps ───────────────────────────────────────────────────────────────────────────────────


@clause("D-6")
async def test_d06_case_a_thousand_steps_and_one_more(world: World) -> None:
    async def main(ctx: Context) -> None:
        for _ in range(1_001):
            await ctx.step("a", world.pay, "a")

    world.handler(main)
    assert await world.run() == "step_too_large"
    assert len(world.paid) == 1_000


@clause("D-6")
async def test_d06_case_four_megabytes(world: World) -> None:
    async def main(ctx: Context) -> int:
        for count in range(17):
            try:
                await ctx.step("a", world.pay, "a", "x" * 260_000)
            except Fail:
                return count
        return -1

    world.handler(main)
    assert await world.run() == 16


@clause("D-2")
@pytest.mark.parametrize("form", ["gather", "group"])
async def test_d02_case_two_hundred_steps_at_a_time(world: World, form: str) -> None:
    async def main(ctx: Context) -> int:
        made = [ctx.step(f"s{at}", world.pay, "a", at) for at in range(200)]
        if form == "gather":
            found = await asyncio.gather(*made)
        else:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(each) for each in made]
            found = [task.result() for task in tasks]
        if ctx.attempt == 1:
            raise RuntimeError
        return sum(found)

    world.handler(main)
    assert (await world.run(), len(world.paid)) == (19_900, 200)


@clause("D-1")
async def test_d01_case_steps_in_threads_of_a_handler(world: World) -> None:
    def main(ctx: SyncContext) -> list[int]:
        def one(at: int) -> int:
            return ctx.step(f"s{at}", lambda: world.paid.append("a") or at)

        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(one, range(20)))
        if ctx.attempt == 1:
            raise RuntimeError
        return found

    world.handler(main)
    assert (await world.run(), len(world.paid)) == (list(range(20)), 20)


@clause("D-1")
async def test_d01_case_a_step_within_a_step(world: World) -> None:
    async def main(ctx: Context) -> str:
        async def outer() -> str:
            inner = await ctx.step("inner", world.pay, "inner")
            if ctx.attempt == 1:
                raise RuntimeError
            return await world.pay("outer", f"outer {inner}")

        return await ctx.step("outer", outer)

    world.handler(main)
    assert (await world.run(), world.paid) == ("outer inner", ["inner", "outer"])


# ── errors of steps ──────────────────────────────────────────────────────────────────────────────


class Declined(Exception):
    def __init__(self, code: int, *, note: object = None) -> None:
        super().__init__(f"code {code}")
        self.code, self.note = code, note


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def local_error() -> Exception:
    class LocalError(Exception):
        pass

    return LocalError("of a function")


def not_text() -> Exception:
    try:
        b"\xff".decode()
    except UnicodeDecodeError as error:
        return error
    raise AssertionError


ERRORS: dict[str, tuple[Callable[[], Exception], type[Exception], str]] = {
    "value-error": (lambda: ValueError("no", 7), ValueError, "('no', 7)"),
    "key-error": (lambda: KeyError("a"), KeyError, "'a'"),
    "os-error": (lambda: OSError(2, "missing"), FileNotFoundError, "[Errno 2] missing"),
    "timeout": (lambda: TimeoutError("late"), TimeoutError, "late"),
    "attributes": (lambda: Declined(5), Declined, "code 5"),
    "object-attribute": (lambda: Declined(5, note=object()), Declined, "code 5"),
    "no-text": (Silent, Silent, ""),
    "long-text": (lambda: ValueError("x" * 10_000), ValueError, "x" * 3_584),
    "surrogate": (lambda: ValueError("\ud800"), ValueError, "?"),
    "group": (lambda: ExceptionGroup("two", [ValueError()]), StepFailed, "two (1 sub-exception)"),
    "of-a-function": (local_error, StepFailed, "of a function"),
    "decode-error": (not_text, UnicodeDecodeError, ""),
    "library": (lambda: msgspec.ValidationError("bad"), msgspec.ValidationError, "bad"),
}


@clause("D-4a")
@pytest.mark.parametrize("case", ERRORS)
async def test_d04a_case_an_error_of_this_class_is_caught_again(world: World, case: str) -> None:
    make, kind, text = ERRORS[case]
    seen: list[Exception] = []

    async def fails() -> None:
        world.paid.append("a")
        raise make()

    async def main(ctx: Context) -> None:
        try:
            await ctx.step("a", fails)
        except Exception as error:  # noqa: BLE001 - of any class
            seen.append(error)
        await ctx.sleep(LONG_S)

    world.handler(main)
    job_id = await world.submit()
    async with world.working():
        await world.suspended(job_id)
        await world.wake(job_id, "t:sleep")
        assert await world.end_of(job_id) is None
    assert (world.paid, type(seen[1])) == (["a"], kind)
    again = seen[1]
    found = again.text if isinstance(again, StepFailed) else "" if case == "no-text" else str(again)
    assert found.startswith(text)
    assert len(world.record(job_id)["e:a"]) <= 4_200
    if isinstance(again, Declined):
        assert again.code == 5


@clause("D-4a")
@pytest.mark.parametrize("form", ["bare", "cause", "context", "group", "nested"])
async def test_d04a_case_an_error_that_ends_its_attempt(world: World, form: str) -> None:
    """The next attempt calls the step again, however the error has left the handler."""

    async def fails() -> str:
        world.paid.append("a")
        if len(world.paid) == 1:
            raise Declined(1)
        return "paid"

    async def main(ctx: Context) -> str:
        if form == "group":
            async with asyncio.TaskGroup() as group:
                task = group.create_task(ctx.step("a", fails))
            return task.result()
        if form == "nested":
            return await ctx.step("outer", ctx.step, "a", fails)
        try:
            return await ctx.step("a", fails)
        except Declined as error:
            if form == "cause":
                raise RuntimeError from error
            if form == "context":
                raise KeyError("another") from None
            raise

    world.handler(main)
    assert (await world.run(), world.paid) == ("paid", ["a", "a"])


@clause("D-4a")
@pytest.mark.parametrize("what", ["retry", "fail", "timeout"])
async def test_d04a_case_what_is_no_error_of_a_step(world: World, what: str) -> None:
    async def ends() -> None:
        world.paid.append("a")
        if what == "retry":
            raise Retry(0)
        if what == "fail":
            raise Fail("no", "no")
        await asyncio.sleep(60)

    async def main(ctx: Context) -> None:
        try:
            async with asyncio.timeout(0.01):
                await ctx.step("a", ends)
        except (Retry, Fail, TimeoutError):
            pass
        await ctx.wait_for_signal("go")

    world.handler(main)
    job_id = await world.submit()
    async with world.working():
        await world.suspended(job_id)
        assert "e:a" not in world.record(job_id)
        await world.lab.queue.signal(job_id, "go", "1")
        assert await world.end_of(job_id) is None
    assert world.paid == ["a", "a"]


# ── signals ──────────────────────────────────────────────────────────────────────────────────────


async def one_signal(ctx: Context) -> Any:
    return await ctx.wait_for_signal("a")


@clause("D-12")
@pytest.mark.parametrize("count", [1, 20, 100])
async def test_d12_case_numbered_signals(world: World, count: int) -> None:
    async def main(ctx: Context) -> int:
        return sum([await ctx.wait_for_signal(f"s{at}") for at in range(count)])

    world.handler(main)
    job_id = await world.submit()
    for at in range(count):
        assert await world.lab.queue.signal(job_id, f"s{at}", "1") == "recorded"
    if count == 100:
        assert await world.lab.queue.signal(job_id, "more", "1") == "full"
    async with world.working():
        assert await world.end_of(job_id) == count


@clause("D-12", "D-6")
async def test_d12_case_signals_while_late_large_and_repeated(world: World) -> None:
    world.handler(one_signal)
    job_id = await world.submit()
    large = json.dumps("x" * 65_000)
    async with world.working():
        await world.suspended(job_id)
        assert await world.lab.queue.signal(job_id, "a", large) == "recorded"
        assert await world.end_of(job_id) == "x" * 65_000
    assert await world.lab.queue.signal(job_id, "a", large) == "finished"
    assert await world.lab.queue.signal(JobId("none"), "a", "1") == "gone"


@clause("D-12")
async def test_d12_case_a_signal_behind_its_time(world: World) -> None:
    async def main(ctx: Context) -> str:
        try:
            await ctx.wait_for_signal("a", timeout_s=60)
        except TimeoutError:
            await ctx.wait_for_signal("b")
        return "late"

    world.handler(main)
    job_id = await world.submit()
    async with world.working():
        await world.suspended(job_id)
        await world.wake(job_id)
        await wait_until(lambda: "t:signal:b" in world.record(job_id), "the second wait")
        assert await world.lab.queue.signal(job_id, "a", "1") == "late"
        await world.lab.queue.signal(job_id, "b", "1")
        assert await world.end_of(job_id) == "late"


@clause("D-12", "D-9a")
@pytest.mark.parametrize("order", ["ab", "ba"])
async def test_d12_case_two_signals_of_a_gather(world: World, order: str) -> None:
    async def main(ctx: Context) -> Any:
        return await asyncio.gather(ctx.wait_for_signal("a"), ctx.wait_for_signal("b"))

    world.handler(main)
    job_id = await world.submit()
    async with world.working():
        for name in order:
            await world.suspended(job_id)
            await world.lab.queue.signal(job_id, name, f'"{name}"')
        assert await world.end_of(job_id) == ["a", "b"]


# ── first of several ─────────────────────────────────────────────────────────────────────────────


async def first_of(*calls: Awaitable[Any]) -> Any:
    """As in docs/waiting.md."""
    tasks = [asyncio.ensure_future(each) for each in calls]
    done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in left:
        task.cancel()
    return done.pop().result()


@clause("D-9a")
@pytest.mark.parametrize("case", ["signal", "child", "first-child", "timeout"])
async def test_d09a_case_the_first_of_several_waits(world: World, case: str) -> None:
    async def main(ctx: Context) -> Any:
        if case == "timeout":
            found = await first_of(ctx.wait_for_signal("a"), ctx.sleep(LONG_S))
        elif case == "first-child":
            found = await first_of(ctx.run("never", {}), ctx.run("echo", {"x": 2}))
        else:
            other = ctx.run("echo", {"x": 2}) if case == "child" else ctx.wait_for_signal("b")
            found = await first_of(ctx.wait_for_signal("a"), other)
        return [found, await ctx.step("then", world.pay, "then")]

    async def echo(ctx: Context) -> int:
        return ctx.payload["x"]

    async def never(ctx: Context) -> None:
        await ctx.sleep(LONG_S)

    world.handler(main)
    world.handler(echo, "echo")
    world.handler(never, "never")
    job_id = await world.submit()
    async with world.working():
        if case in ("signal", "timeout"):
            await world.suspended(job_id)
        if case == "signal":
            await world.lab.queue.signal(job_id, "b", "2")
        elif case == "timeout":
            await world.wake(job_id, "t:sleep")
        assert await world.end_of(job_id) == [None if case == "timeout" else 2, "then"]
    assert world.paid == ["then"]
    for child in (job for job in world.raw.members("jobs:suspended")):
        await world.lab.queue.cancel(JobId(child))


# ── children ─────────────────────────────────────────────────────────────────────────────────────


async def child(ctx: Context) -> Any:
    match ctx.payload["do"]:
        case "fail":
            raise Fail("no", "no")
        case "retry" if ctx.attempt == 1:
            raise RuntimeError
        case "large":
            return "x" * 300_000
        case "deeper":
            left = ctx.payload["left"]
            return 1 + await ctx.run("child", {"do": "deeper", "left": left - 1}) if left else 0
        case "steps":
            return await ctx.step("s", int)
        case "signal":
            return await ctx.wait_for_signal("a", timeout_s=60)
        case "gather":
            made = [await ctx.submit("child", {"do": "x"}) for _ in range(2)]
            return await ctx.gather(*made)
        case done:
            return done


CHILDREN: dict[str, tuple[list[dict[str, Any]], Any]] = {
    "one": ([{"do": "x"}], ["x"]),
    "six": ([{"do": "x"}] * 6, ["x"] * 6),
    "retried": ([{"do": "retry"}], ["retry"]),
    "failed": ([{"do": "fail"}], "child_failed"),
    "failed-beside-done": ([{"do": "x"}, {"do": "fail"}], "child_failed"),
    "large": ([{"do": "large"}], ["x" * 300_000]),
    "eight-deep": ([{"do": "deeper", "left": 7}], [7]),
    "nine-deep": ([{"do": "deeper", "left": 8}], "child_failed"),
    "with-steps": ([{"do": "steps"}], [0]),
    "nested-gather": ([{"do": "gather"}] * 2, [["x", "x"]] * 2),
    "hundred": ([{"do": "x"}] * 100, ["x"] * 100),
}


@clause("D-14", "D-15", "D-16")
@pytest.mark.parametrize("case", CHILDREN)
async def test_d15_case_children(world: World, case: str) -> None:
    payloads, wanted = CHILDREN[case]

    async def main(ctx: Context) -> Any:
        made = [await ctx.submit("child", each) for each in payloads]
        return await ctx.gather(*made)

    world.handler(main)
    world.handler(child, "child")
    assert await world.run() == wanted


@clause("D-15")
@pytest.mark.parametrize("case", ["exceptions", "branches", "same-key", "unknown", "detached"])
async def test_d15_case_ways_of_waiting_for_children(world: World, case: str) -> None:
    async def main(ctx: Context) -> Any:
        match case:
            case "exceptions":
                made = [await ctx.submit("child", {"do": each}) for each in ("x", "fail")]
                one, other = await ctx.gather(*made, return_exceptions=True)
                return [one, isinstance(other, ChildFailed) and other.error["code"]]
            case "branches":
                made = [ctx.run("child", {"do": "x"}, key=str(at)) for at in range(6)]
                return await asyncio.gather(*made)
            case "same-key":
                first = await ctx.submit("child", {"do": "x"}, key="k")
                second = await ctx.submit("child", {"do": "other"}, key="k")
                return [first.job_id == second.job_id, await ctx.gather(second)]
            case "unknown":
                return await ctx.run("nobody", {})
            case _:
                await ctx.submit("child", {"do": "x"})
                return "done"

    world.handler(main)
    world.handler(child, "child")
    wanted = {
        "exceptions": ["x", "no"],
        "branches": ["x"] * 6,
        "same-key": [True, ["x"]],
        "unknown": "unknown_task",
        "detached": "done",
    }
    assert await world.run() == wanted[case]


@clause("D-16")
async def test_d16_case_children_are_canceled_with_their_parent(world: World) -> None:
    async def main(ctx: Context) -> None:
        await ctx.run("child", {"do": "signal"})

    world.handler(main)
    world.handler(child, "child")
    job_id = await world.submit()
    async with world.working():
        await wait_until(lambda: len(world.raw.members("jobs:suspended")) == 2, "both to wait")
        await world.lab.queue.cancel(job_id)
        assert await world.end_of(job_id) == "canceled"
        (found,) = [each for name, each in world.record(job_id).items() if name.startswith("k:")]
        grandchild = json.loads(found)[0]
        await world.wake(grandchild, "t:signal:a")
        assert await world.end_of(JobId(grandchild)) == "canceled"


# ── restart, cancel, retry ───────────────────────────────────────────────────────────────────────


@clause("D-24")
@pytest.mark.parametrize("form", ["steps", "children"])
async def test_d24_case_thirty_beginnings(world: World, form: str) -> None:
    async def main(ctx: Context) -> Any:
        turn = ctx.payload.get("turn", 1)
        if form == "steps":
            found = await ctx.step("a", world.pay, "a", turn)
        else:
            found = await ctx.run("child", {"do": turn})
        return found if turn == 30 else await ctx.restart({"turn": turn + 1})

    world.handler(main)
    world.handler(child, "child")
    assert await world.run() == 30
    assert len(world.paid) == (30 if form == "steps" else 0)


@clause("D-9", "D-1")
async def test_d09_case_a_cancel_in_a_step_lets_it_clean_up(world: World) -> None:
    begun = asyncio.Event()

    async def slow() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            world.paid.append("cleaned")

    async def main(ctx: Context) -> None:
        try:
            await ctx.step("a", slow)
        finally:
            world.paid.append("ended")

    world.handler(main)
    job_id = await world.submit()
    async with world.working():
        await wait_until(begun.is_set, "the step")
        await world.lab.queue.cancel(job_id)
        assert await world.end_of(job_id) == "canceled"
    assert (world.paid, world.record(job_id)) == (["cleaned", "ended"], {})


@clause("D-1", "D-9a")
async def test_d01_case_a_plain_function_that_was_canceled_is_recorded(world: World) -> None:
    """It runs in a thread, which nothing can stop: what it has paid for is kept for a retry."""
    begun, go = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow() -> str:
        loop.call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(go.wait(), loop).result()
        return "paid"

    async def main(ctx: Context) -> None:
        await ctx.step("a", slow)
        world.paid.append("went on")

    world.handler(main)
    job_id = await world.submit()
    async with world.working():
        await wait_until(begun.is_set, "the step")
        await world.lab.queue.cancel(job_id)
        go.set()
        assert await world.end_of(job_id) == "canceled"
    assert (json.loads(world.record(job_id)["s:a"])[2], world.paid) == ("paid", [])


@clause("D-9a")
async def test_d09a_case_a_plain_function_does_not_stop_the_worker(world: World) -> None:
    """Another job ends meanwhile, in the same worker."""
    go = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow() -> str:
        asyncio.run_coroutine_threadsafe(go.wait(), loop).result()
        return "slow"

    async def main(ctx: Context) -> str:
        return await ctx.step("a", slow) if ctx.payload else "quick"

    world.handler(main)
    first, second = await world.submit({"slow": 1}), await world.submit()
    async with world.working():
        assert await world.end_of(second) == "quick"
        go.set()
        assert await world.end_of(first) == "slow"


@clause("D-5")
@pytest.mark.parametrize("form", ["error", "retry", "lost"])
async def test_d05_case_a_step_that_may_run_once(world: World, form: str) -> None:
    async def pays() -> str:
        await world.pay("a")
        if form != "lost" and len(world.paid) == 1:
            raise Retry(0) if form == "retry" else RuntimeError
        return "paid"

    async def main(ctx: Context) -> str:
        if form == "lost":
            world.raw.call("HSET", f"job:{ctx.job.id}:steps", "o:a", "another-worker")
            world.raw.call("HSET", f"job:{ctx.job.id}", "steps", "1")
            if ctx.attempt == 1:
                raise RuntimeError
        return await ctx.step_once("a", pays)

    world.handler(main)
    assert await world.run() == ("paid" if form == "retry" else "step_interrupted")
    assert len(world.paid) == {"error": 1, "retry": 2, "lost": 0}[form]


# ── sleeps ───────────────────────────────────────────────────────────────────────────────────────


@clause("D-11")
@pytest.mark.parametrize("seconds", [0, 0.01, timedelta(milliseconds=5)])
async def test_d11_case_a_sleep_in_the_worker(world: World, seconds: Any) -> None:
    async def main(ctx: Context) -> str:
        await ctx.sleep(seconds)
        return "slept"

    world.handler(main)
    assert await world.run() == "slept"
    assert not world.raw.exists("jobs:suspended")


@clause("D-11")
@pytest.mark.parametrize("seconds", [5, 86_400, timedelta(days=3650)])
async def test_d11_case_a_sleep_without_a_worker(world: World, seconds: Any) -> None:
    async def main(ctx: Context) -> str:
        await ctx.sleep(seconds)
        await ctx.sleep(seconds)
        return "slept twice"

    world.handler(main)
    job_id = await world.submit()
    async with world.working():
        for field in ("t:sleep", "t:sleep:2"):
            await wait_until(lambda field=field: field in world.record(job_id), "the sleep")
            await world.suspended(job_id)
            await world.wake(job_id, field)
        assert await world.end_of(job_id) == "slept twice"


# ── what is otherwise than elsewhere ─────────────────────────────────────────────────────────────


@clause("D-12")
@pytest.mark.parametrize("value", ["2", '"1"', "[1]"])
async def test_d12_case_a_signal_has_one_value(world: World, value: str) -> None:
    world.handler(one_signal)
    job_id = await world.submit()
    assert await world.lab.queue.signal(job_id, "a", "1") == "recorded"
    assert await world.lab.queue.signal(job_id, "a", value) == "other"
    async with world.working():
        assert await world.end_of(job_id) == 1


@clause("D-12")
async def test_d12_case_a_signal_of_another_type_ends_the_job(world: World) -> None:
    async def main(ctx: Context) -> int:
        return await ctx.wait_for_signal("a", int)

    world.handler(main)
    job_id = await world.submit()
    await world.lab.queue.signal(job_id, "a", '"one"')
    async with world.working():
        assert await world.end_of(job_id) == "signal_invalid"
    assert world.raw.field(f"job:{job_id}", "attempt") is None


@clause("D-13")
async def test_d13_case_the_cancel_of_a_suspended_job_runs_no_code(world: World) -> None:
    async def main(ctx: Context) -> None:
        world.paid.append("begun")
        try:
            await ctx.sleep(LONG_S)
        except asyncio.CancelledError:
            world.paid.append("suspended")
            raise

    world.handler(main)
    job_id = await world.submit()
    async with world.working():
        await world.suspended(job_id)
        await world.lab.queue.cancel(job_id)
        assert await world.end_of(job_id) == "canceled"
    assert world.paid == ["begun", "suspended"]


@clause("D-9")
async def test_d09_case_no_step_begins_behind_a_cancel(world: World) -> None:
    begun = asyncio.Event()

    async def main(ctx: Context) -> None:
        try:
            begun.set()
            await asyncio.sleep(60)
        finally:
            await ctx.step("clean", world.pay, "clean")

    world.handler(main)
    job_id = await world.submit()
    async with world.working():
        await wait_until(begun.is_set, "the handler")
        await world.lab.queue.cancel(job_id)
        assert await world.end_of(job_id) == "canceled"
    assert world.paid == []


@clause("D-2")
@pytest.mark.parametrize("order", ["ab", "ba", "b", "abc"])
async def test_d02_case_code_may_change_between_two_runs(world: World, order: str) -> None:
    """Peers refuse a run whose calls have another order; here only names are looked up."""

    async def main(ctx: Context) -> Any:
        names = "ab" if ctx.attempt == 1 else order
        found = [await ctx.step(name, world.pay, name) for name in names]
        if ctx.attempt == 1:
            raise RuntimeError
        return found

    world.handler(main)
    assert await world.run() == list(order)
    assert world.paid == (["a", "b", "c"] if "c" in order else ["a", "b"])


@clause("D-7")
async def test_d07_case_ever_new_names_are_progress(world: World) -> None:
    async def main(ctx: Context) -> int:
        await ctx.step(f"s{ctx.attempt}", world.pay, "a")
        if ctx.attempt < 10:
            raise RuntimeError
        return ctx.attempt

    world.handler(main)
    assert await world.run() == 10


@clause("D-9a")
@pytest.mark.parametrize("form", ["gather", "task"])
async def test_d09a_case_the_rest_of_a_failed_attempt_ends_with_it(world: World, form: str) -> None:
    """It ran on beside the next attempt."""
    ends: list[int] = []

    async def main(ctx: Context) -> int:
        async def other() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                ends.append(ctx.attempt)

        async def fails() -> None:
            await asyncio.sleep(0)
            raise RuntimeError

        if ctx.attempt == 2:
            return len(ends)
        if form == "task":
            ends_later = asyncio.create_task(other())
            await asyncio.sleep(0)
            assert not ends_later.done()
            await fails()
        await asyncio.gather(other(), fails())
        return -1

    world.handler(main)
    assert await world.run() == 1


@clause("D-9a")
async def test_d09a_case_a_timeout_around_a_wait_alone_is_none(world: World) -> None:
    """The run ends before it: a wait with a limit is `first_of(…, ctx.sleep(…))`."""

    async def main(ctx: Context) -> str:
        async with asyncio.timeout(30):
            return await ctx.wait_for_signal("a")

    world.handler(main)
    job_id = await world.submit()
    async with world.working():
        await world.suspended(job_id)
        await world.lab.queue.signal(job_id, "a", '"late"')
        assert await world.end_of(job_id) == "late"


@clause("D-2")
@pytest.mark.parametrize("name", ["", "a b", "a:2", "ä", "x" * 101])
async def test_d02_case_a_name_that_is_none_ends_the_job_at_once(world: World, name: str) -> None:
    async def main(ctx: Context) -> None:
        await ctx.step(name, world.pay, "a")

    world.handler(main)
    job_id = await world.submit()
    async with world.working():
        assert await world.end_of(job_id) == "step_invalid"
    assert (world.paid, world.raw.field(f"job:{job_id}", "attempt")) == ([], None)


@clause("D-1")
async def test_d01_case_a_stream_of_tokens_between_steps(world: World) -> None:
    async def main(ctx: Context) -> None:
        await ctx.step("a", world.pay, "a")
        for at in range(50):
            await ctx.emit("token", {"text": str(at)})
        await ctx.step("b", world.pay, "b")

    world.handler(main)
    job_id = await world.submit()
    async with world.working():
        await world.end_of(job_id)
    kinds = [kind for kind in kinds_of(await world.lab.events(job_id)) if kind != "running"]
    assert kinds == ["queued", "step_done", *["token"] * 50, "step_done", "done"]
