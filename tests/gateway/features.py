"""Gateway features for tests: an echo, resources of tenants, handlers that fail."""

from __future__ import annotations

import msgspec
from fastapi import HTTPException
from pydantic import BaseModel

from jobwire.api.problems import NOT_FOUND, ProblemKind
from jobwire.gateway.feature import Feature
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.router import CurrentRequest, needs, new_router
from jobwire.gateway.routes import Doc, HotRoute
from jobwire.job.errors import BackendUnavailable, RefusedError

FULL = ProblemKind("queue_full", 429, "the queue is full")
SMALL_BODY = 1000


class Thing(msgspec.Struct):
    name: str


class Form(BaseModel):
    name: str
    count: int = 1


async def echo(call: HttpRequest) -> Reply:
    body = await call.body()
    return Reply(body, headers=((b"x-principal", call.principal.tenant.encode()),))


async def thing(call: HttpRequest) -> Reply:
    """`/things/acme.1` belongs to the tenant acme; for others it is 404."""
    (thing_id,) = call.params
    if thing_id.partition(".")[0] != call.principal.tenant:
        raise Problem(NOT_FOUND)
    return Reply(msgspec.json.encode(Thing(thing_id)))


async def broken(_: HttpRequest) -> Reply:
    raise ValueError("hush: a secret of ours")


async def full(_: HttpRequest) -> Reply:
    raise Problem(FULL, headers=((b"retry-after", b"7"),))


async def refused(_: HttpRequest) -> Reply:
    raise RefusedError("no such task", code="unknown_task", detail="hush")


async def backend_unavailable(_: HttpRequest) -> Reply:
    raise BackendUnavailable("Valkey does not answer")


async def half(call: HttpRequest) -> None:
    """Raises after its response has begun."""
    await call.start(200, ((b"content-length", b"100"),))
    await call.send({"type": "http.response.body", "body": b"half", "more_body": True})
    raise ValueError("broke in the middle")


def _doc(summary: str, **more: object) -> Doc:
    return Doc(summary=summary, tag="test", **more)  # pyright: ignore[reportArgumentType] - by name


def test_feature() -> Feature:
    router = new_router("test")

    @router.post("/slow/form", openapi_extra=needs("submit", FULL, max_body=SMALL_BODY))
    async def form(form: Form, call: CurrentRequest) -> dict[str, object]:
        return {"name": form.name, "count": form.count, "tenant": call.principal.tenant}

    @router.get("/slow/broken", openapi_extra=needs("read"))
    async def slow_broken() -> None:
        raise ValueError("hush: a secret of ours")

    @router.get("/slow/teapot", openapi_extra=needs("read"))
    async def teapot() -> None:
        raise HTTPException(418, "short and stout", {"X-Spout": "yes"})

    @router.get("/slow/refused", openapi_extra=needs("read"))
    async def slow_refused() -> None:
        raise RefusedError("no such task", code="unknown_task")

    @router.get("/mixed", openapi_extra=needs("read"))
    async def mixed(limit: int = 1) -> dict[str, int]:
        return {"limit": limit}

    return Feature(
        name="test",
        hot=[
            HotRoute(
                "POST", "/echo", "submit", echo, _doc("echo", body=Thing), max_body=SMALL_BODY
            ),
            HotRoute("GET", "/things/{id}", "read", thing, _doc("a thing", answer=Thing)),
            HotRoute("DELETE", "/things/{id}", "admin", thing, _doc("no thing", status=204)),
            HotRoute("GET", "/broken", "read", broken, _doc("breaks")),
            HotRoute("GET", "/full", "read", full, _doc("full", problems=[FULL])),
            HotRoute("GET", "/refused", "read", refused, _doc("refuses")),
            HotRoute("GET", "/away", "read", backend_unavailable, _doc("away")),
            HotRoute("GET", "/half", "read", half, _doc("half")),
            HotRoute("POST", "/mixed", "submit", echo, _doc("mixed")),
        ],
        routers=[router],
    )


test_feature.__test__ = False  # pyright: ignore[reportFunctionMemberAccess] - no test, for pytest
