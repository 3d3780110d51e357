"""FastAPI routes, each with its scope; a route without one cannot be declared.

    router = new_router("jobs")

    @router.get("/v1/tasks", openapi_extra=needs("read"))
    async def tasks(call: ThisCall) -> Tasks: ...

For everything that is not hot. The door is passed before FastAPI reads the body.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from jobwire.gateway import auth
from jobwire.gateway.admission import Admission
from jobwire.gateway.problems import ProblemKind
from jobwire.gateway.request import JSON, SCOPE_KEY, HttpRequest

DOOR_KEY: Final = "jobwire.door"
NEEDS_KEY: Final = "x-jobwire"


def needs(scope: auth.Scope, *problems: ProblemKind, max_body: int = 0) -> dict[str, Any]:
    """What a route asks of its caller, and the problems that it may answer with."""
    return {NEEDS_KEY: {"scope": scope, "max_body": max_body, "problems": problems}}


class ScopedRoute(APIRoute):
    """A route that lets nobody in who lacks its scope."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        extra: dict[str, Any] = options.get("openapi_extra") or {}
        asked = extra.get(NEEDS_KEY)
        if asked is None:
            raise TypeError(f"{path}: say who may call it: openapi_extra=needs(scope)")
        super().__init__(path, endpoint, **options)
        self.asked_scope: auth.Scope = asked["scope"]
        self.asked_max_body: int = asked["max_body"]
        self.own_problems: Sequence[ProblemKind] = asked["problems"]

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.methods is None or scope["method"] in self.methods:
            door: Admission = scope[DOOR_KEY]
            call: HttpRequest = scope[SCOPE_KEY]
            call.route = f"{scope['method']} {self.path_format}"
            door.authorize(call, self.asked_scope, self.asked_max_body)
            if self.body_field is not None:
                call.require_media_type(JSON)
        await super().handle(scope, receive, send)


def new_router(tag: str) -> APIRouter:
    """A router for one room's routes."""
    return APIRouter(route_class=ScopedRoute, tags=[tag])


def _this_call(request: Request) -> HttpRequest:
    return request.scope[SCOPE_KEY]


ThisCall = Annotated[HttpRequest, Depends(_this_call)]
"""The `Call` behind a FastAPI route; `call.principal` says who asks."""
