"""Gateway features for tests: an echo, resources of tenants, handlers that fail."""

from __future__ import annotations

import msgspec

from jobwire.api.operation import Operation
from jobwire.api.problems import NOT_FOUND, ProblemKind
from jobwire.gateway.feature import Feature
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.route import serve
from jobwire.job.errors import BackendUnavailable, RefusedError
from tests.gateway.routes import route

TEAPOT = ProblemKind("teapot", 418, "short and stout")
FULL = ProblemKind("queue_full", 429, "the queue is full")
SMALL_BODY = 1000


class Thing(msgspec.Struct):
    name: str


class Form(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    count: int = 1


class Filled(msgspec.Struct):
    name: str
    count: int
    tenant: str


class Limit(msgspec.Struct):
    limit: int = 1


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


FORM = Operation(
    "POST",
    "/form",
    "submit",
    "a form",
    tag="test",
    body=Form,
    answer=Filled,
    max_body=SMALL_BODY,
    problems=(FULL,),
)
MIXED = Operation("GET", "/mixed", "read", "mixed", tag="test", query=Limit, answer=Limit)


async def form(request: HttpRequest, body: Form) -> Filled:
    return Filled(body.name, body.count, request.principal.tenant)


async def teapot(_: HttpRequest) -> Reply:
    raise Problem(TEAPOT, headers=((b"x-spout", b"yes"),))


async def mixed(_request: HttpRequest, query: Limit) -> Limit:
    return query


def test_feature() -> Feature:
    return Feature(
        name="test",
        routes=[
            route("POST", "/echo", "submit", echo, takes=Thing, max_body=SMALL_BODY),
            route("GET", "/things/{id}", "read", thing, answer=Thing),
            route("DELETE", "/things/{id}", "admin", thing, status=204),
            route("GET", "/broken", "read", broken),
            route("GET", "/full", "read", full, problems=[FULL]),
            route("GET", "/refused", "read", refused),
            route("GET", "/away", "read", backend_unavailable),
            route("GET", "/half", "read", half),
            route("GET", "/teapot", "read", teapot),
            route("POST", "/mixed", "submit", echo),
            serve(FORM, form),
            serve(MIXED, mixed),
        ],
    )


test_feature.__test__ = False  # pyright: ignore[reportFunctionMemberAccess] - no test, for pytest
