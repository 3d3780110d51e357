"""D-4: results of steps, signals and results of children in the types of annotations."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field

from jobwire import App, Context, Fail
from jobwire.job.retry import fixed
from jobwire.json_types import reader
from jobwire.testing import run
from tests.contracts.test_durable_steps import ended, submit
from tests.contracts.test_durable_waits import QUEUE, working
from tests.support import clause
from tests.support.streams import StreamsLab

if TYPE_CHECKING:
    from decimal import Decimal


class P(BaseModel):
    x: int
    day: date = date(2026, 1, 2)


class Q(BaseModel):
    y: int


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    day: date


class Aliased(BaseModel):
    size: int = Field(alias="sizeInBytes")


@dataclass
class Holder:
    p: P
    more: list[P]


@dataclass
class Either:
    one: P | Q


class Struct(msgspec.Struct):
    p: P | None


class Typed(TypedDict):
    p: P


class NoJson:
    """No type of JSON, and no model."""


FIRST, DAY = P(x=1), date(2026, 1, 2)
VALUES: dict[str, tuple[Any, Any]] = {
    "list": (list[P], [FIRST, P(x=2)]),
    "optional": (P | None, FIRST),
    "nothing": (P | None, None),
    "dict": (dict[str, P], {"a": FIRST}),
    "tuple": (tuple[P, int], (FIRST, 3)),
    "pairs": (list[tuple[str, P | None]], [("a", FIRST), ("b", None)]),
    "dataclass": (Holder, Holder(FIRST, [P(x=2)])),
    "struct": (Struct, Struct(FIRST)),
    "typed-dict": (Typed, {"p": FIRST}),
    "union": (P | Q, Q(y=1)),
    "list-of-unions": (list[P | Q], [FIRST, Q(y=1)]),
    "model-or-number": (P | int, 3),
    "union-in-dataclass": (Either, Either(Q(y=2))),
    "model": (P, FIRST),
    "strict-model": (list[Strict], [Strict(day=DAY)]),
    "alias": (Aliased, Aliased(sizeInBytes=5)),
    "list-of-aliases": (list[Aliased], [Aliased(sizeInBytes=5)]),
    "dates": (dict[str, date], {"a": DAY}),
    "awaitable": (Awaitable[list[P]], [FIRST]),
}


def made(kind: Any, value: object, calls: list[str]) -> Any:
    """A function with this annotation."""

    def pay() -> Any:
        calls.append("paid")
        return value

    pay.__annotations__["return"] = kind
    return pay


@clause("D-4", "D-12", "D-15")
async def test_d04_models_of_pydantic_are_read_anywhere_in_a_type(lab: StreamsLab) -> None:
    """Regression: they were paid for, and then lost as `step_invalid`."""
    app, calls = App("types"), list[str]()

    @app.handler("types", retries=1, backoff=fixed(0), uses={"durable"})
    async def types(ctx: Context) -> None:
        kind, value = VALUES[ctx.payload["case"]]
        assert await ctx.step("made", made(kind, value, calls)) == value
        if ctx.attempt == 1:
            raise RuntimeError("once more")
        if ctx.payload["case"] != "awaitable":
            assert await ctx.wait_for_signal("value", kind) == value

    async with working(lab, app):
        for case, (_, value) in VALUES.items():
            calls.clear()
            job_id = await submit(lab, "types", {"case": case}, queue=QUEUE)
            text = msgspec.json.encode(value, enc_hook=lambda each: each.model_dump(mode="json"))
            await lab.queue.signal(job_id, "value", text.decode())
            assert ((await ended(lab, job_id))["status"], calls) == ("done", ["paid"]), case


@clause("D-4", "D-15")
async def test_d04_results_of_children_have_models_too() -> None:
    app = App("children")

    @app.handler("some")
    async def some(ctx: Context) -> list[P]:
        return [P(x=ctx.payload["x"])]

    @app.handler("parent", uses={"durable"})
    async def parent(ctx: Context) -> int:
        (found,) = await ctx.run(some, {"x": 7})
        return found.x

    assert (await run(app, parent)).result == 7


def unresolved() -> Decimal:
    raise AssertionError("it was paid for")


@clause("D-4")
async def test_d04_nothing_is_paid_for_a_type_that_cannot_be_read() -> None:
    class Local(BaseModel):
        x: int

    def local() -> Local:
        raise AssertionError("it was paid for")

    def seen() -> Local:
        return Local(x=1)

    assert seen().x == 1
    app, calls = App("types"), list[str]()

    @app.handler("types", retries=3, backoff=fixed(0))
    async def types(ctx: Context) -> None:
        for kind in (NoJson, list[NoJson], Struct | P, dict[str, NoJson | None]):
            with pytest.raises(Fail, match="no result is read as") as refused:
                await ctx.step("a", made(kind, None, calls))
            assert refused.value.code == "step_invalid"
        with pytest.raises(Fail, match="'Decimal' cannot be found"):
            await ctx.step("a", unresolved)
        with pytest.raises(Fail, match="'Local' cannot be found"):
            await ctx.step("a", local)

    ran = await run(app, types)
    assert (ran.error, calls) == (None, [])


@clause("D-12")
async def test_d12_a_wait_for_a_type_that_cannot_be_read_ends_before_it_begins() -> None:
    app = App("types")

    @app.handler("types", retries=3, backoff=fixed(0), uses={"durable"})
    async def types(ctx: Context) -> None:
        await ctx.wait_for_signal("a", list[NoJson])

    ran = await run(app, types, signals={"a": []})
    assert ran.error is not None
    assert (ran.error.code, ran.waits, ran.attempts) == ("signal_invalid", [], 1)


@clause("D-4")
def test_d04_the_reader_of_a_type_is_made_once() -> None:
    assert reader(list[P]) is reader(list[P])
