"""One ASGI application out of the rooms' routes.

Every request takes the same way: a `Call` is made, the door looks at it, a hot route answers or
FastAPI does, and whatever goes wrong becomes a problem document. Built by `wiring`, run by
`server`. Pure ASGI all through: one wrapping middleware of the usual kind would cost more than
the rest together.
"""

import re
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from jobwire.gateway import health, metrics, openapi, stream_tokens
from jobwire.gateway.admission import Admission
from jobwire.gateway.auth import Keyring, Scope
from jobwire.gateway.failures import as_problem
from jobwire.gateway.feature import Feature
from jobwire.gateway.health import Supervised
from jobwire.gateway.limits import RateLimit
from jobwire.gateway.metrics import HttpMetrics, ShellCollector
from jobwire.gateway.problems import MEDIA_TYPE, NOT_FOUND, WRONG_METHOD, Problem
from jobwire.gateway.request import (
    SCOPE_KEY,
    ClientGone,
    HttpRequest,
    Message,
    Receive,
    Reply,
    Send,
)
from jobwire.gateway.router import DOOR_KEY, ScopedRoute
from jobwire.gateway.routes import Doc, HotRoute, RouteTable
from jobwire.gateway.settings import GatewaySettings
from jobwire.gateway.streams import Streams
from jobwire.gateway.tokens import TokenMaker
from jobwire.job.errors import BackendUnavailable, JobwireError
from jobwire.log import bind, component

_log = component("gateway")


class Gateway:
    """The ASGI application."""

    def __init__(
        self,
        settings: GatewaySettings,
        rooms: Sequence[Feature],
        streams: Streams,
        *,
        version: str,
        supervised: Supervised | None = None,
    ) -> None:
        keyring = Keyring(settings.keys)
        tokens = TokenMaker(settings.token_secret, settings.token_ttl.total_seconds(), keyring)
        rate = RateLimit(settings.rate_limit, time.monotonic)
        self._door = Admission(keyring, tokens, rate, settings.max_body_bytes)
        self._tally = HttpMetrics()
        self.streams = streams

        checks = [check for room in rooms for check in room.checks]
        told = [room.remote_health for room in rooms if room.remote_health is not None]
        collectors = [collector for room in rooms for collector in room.collectors]
        readings = {room.name: room.scrape for room in rooms if room.scrape is not None}
        shell = ShellCollector(version, streams)
        self._table = RouteTable(
            [
                *health.routes(version, checks, supervised, told),
                metrics.route([self._tally, shell, *collectors], readings),
                HotRoute("GET", "/openapi.json", "public", self._openapi, _OPENAPI_DOC),
                *(route for room in rooms for route in room.hot),
            ]
        )
        self._fastapi = _fastapi(version, self._answer_failure)
        self._scoped: list[ScopedRoute] = []
        for room in (
            Feature(name="shell", routers=[stream_tokens.router(tokens, self._table)]),
            *rooms,
        ):
            for router in room.routers:
                # Not `include_router`: matching through it costs more than all of this shell.
                self._scoped += _scoped_routes(room.name, router.routes)
        self._fastapi.router.routes.extend(self._scoped)
        _refuse_twins([*self._table.routes, *self._scoped])
        document = openapi.document(self._fastapi, self._scoped, self._table.routes)
        self._document = Reply(msgspec.json.encode(document))

    @property
    def inventory(self) -> list[tuple[str, str, Scope]]:
        """Every route: method, path, scope."""
        hot: list[tuple[str, str, Scope]] = [
            (route.method, route.path, route.scope) for route in self._table.routes
        ]
        scoped: list[tuple[str, str, Scope]] = [
            (method, route.path, route.asked_scope)
            for route in self._scoped
            for method in sorted(route.methods or ())
        ]
        return [*hot, *scoped]

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise TypeError(f"only HTTP is spoken here, not {scope['type']}")
        began_s = time.perf_counter()
        call = HttpRequest(scope, receive, send)
        bind(request_id=call.request_id.decode())
        stream = False
        try:
            self._door.check_request(call)
            by_method, call.params = self._table.find(scope["path"])
            route = by_method.get(scope["method"])
            if route is None:
                await self._through_fastapi(call)
            else:
                call.route, stream = route.label, route.stream
                self._door.authorize(call, route.scope, route.max_body, stream=stream)
                reply = await route.endpoint(call)
                if reply is not None:
                    await call.reply(reply)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets a problem
            await self._fail(call, error)
        finally:
            self._tally.count(
                call.route, call.status, None if stream else time.perf_counter() - began_s
            )

    async def _through_fastapi(self, call: HttpRequest) -> None:
        """All that is not hot, with the same limits on the way in and headers on the way out."""
        scope = call.scope
        scope[SCOPE_KEY] = call
        scope[DOOR_KEY] = self._door
        if call.method == "HEAD":
            # It knows no HEAD: a GET makes the answer, and the server keeps its body back.
            scope = {**scope, "method": "GET"}
        send = call.send

        async def dressing(message: Message) -> None:
            if message["type"] == "http.response.start":
                call.status = message["status"]
                message["headers"] = call.with_default_headers(tuple(message["headers"]))
            elif not message.get("more_body"):
                call.finished = True
            await send(message)

        try:
            await self._fastapi(scope, call.counted_receive, dressing)
        finally:
            # The call holds the scope too: left in a ring, both would wait for the collector, and
            # each request would be made in memory that no cache knows.
            del call.scope[SCOPE_KEY]

    async def _fail(self, call: HttpRequest, error: Exception) -> None:
        """Answer with the problem, if there is still somebody to hear it."""
        # FastAPI raises again what it has answered; it was told in `_answer_failure`.
        if call.finished or isinstance(error, (ClientGone, ClientDisconnect)):
            return
        problem = self._told(call, error)
        if call.status:
            call.abort()
        else:
            await call.refuse(problem)

    def _told(self, call: HttpRequest, error: Exception) -> Problem:
        """The problem; what is our own fault goes to the log."""
        problem = as_problem(error)
        if isinstance(error, BackendUnavailable):
            # A server under us that is away would fill the log with tracebacks that say the same.
            _log.warning("%s %s: %s (%s)", call.method, call.path, error.message, error.detail)
        elif problem.kind.status >= 500 and not isinstance(error, Problem):
            _log.error("%s %s failed", call.method, call.path, exc_info=error)
        return problem

    async def _answer_failure(self, request: Request, error: Exception) -> Response:
        """FastAPI's way to us: the same problem, as a response of its kind."""
        call: HttpRequest = request.scope[SCOPE_KEY]
        problem = self._told(call, error)
        if problem.kind in (NOT_FOUND, WRONG_METHOD) and isinstance(error, HTTPException):
            problem = self._no_route(call, problem)
        return Response(
            problem.body(call.request_id.decode()),
            problem.kind.status,
            {name.decode(): value.decode() for name, value in problem.headers},
            MEDIA_TYPE.decode(),
        )

    def _no_route(self, call: HttpRequest, problem: Problem) -> Problem:
        """A path that other methods know is no 404."""
        allowed = set(self._table.find(call.path)[0])
        for name, value in problem.headers:
            if name == b"allow":
                allowed |= {method.strip() for method in value.decode().split(",")}
        if not allowed:
            return problem
        if "GET" in allowed:
            allowed.add("HEAD")
        return Problem(WRONG_METHOD, headers=((b"allow", ", ".join(sorted(allowed)).encode()),))

    async def _openapi(self, _: HttpRequest) -> Reply:
        return self._document


_OPENAPI_DOC = Doc(summary="This document", tag="health", answer=dict)


def _fastapi(
    version: str, answer: Callable[[Request, Exception], Coroutine[None, None, Response]]
) -> FastAPI:
    failures = (HTTPException, RequestValidationError, Problem, JobwireError, Exception)
    return FastAPI(
        title="jobwire",
        version=version,
        description="Background jobs with live progress. Whatever answers GET answers HEAD.",
        openapi_url=None,
        redirect_slashes=False,
        # Its own, asked for at several places of every request.
        telemetry={"tracing": False, "metrics": False, "logs": False, "operation_spans": False},
        exception_handlers=dict[int | type[Exception], Callable[[Request, Any], Any]].fromkeys(
            failures, answer
        ),
    )


def _scoped_routes(room: str, routes: Sequence[object]) -> list[ScopedRoute]:
    scoped = [route for route in routes if isinstance(route, ScopedRoute)]
    if len(scoped) != len(routes):
        raise TypeError(f"room {room}: make its router with gateway.router.new_router")
    return scoped


def _refuse_twins(routes: Sequence[HotRoute | ScopedRoute]) -> None:
    seen: set[tuple[str, str]] = set()
    for route in routes:
        methods = {route.method} if isinstance(route, HotRoute) else route.methods or set[str]()
        for method in methods:
            shape = (method, re.sub(r"\{.*?\}", "{}", route.path))
            if shape in seen:
                raise ValueError(f"{method} {route.path} is declared twice")
            seen.add(shape)
