"""FastAPI routes, each with its access (see `access`); a route without one cannot be declared.

    router = new_router("jobs")

    @router.get("/v1/tasks", openapi_extra=needs("read"))
    async def tasks(request: CurrentRequest) -> Tasks: ...

For routes that are not hot. Admission runs before FastAPI reads the body. The first sentence of the
function's docstring is the summary in the OpenAPI document.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Depends, Request, Response
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from jobwire.api.problems import ProblemKind
from jobwire.gateway.access import Access, SelfAuthenticated, check_access
from jobwire.gateway.admission import Admission
from jobwire.gateway.request import JSON, SCOPE_KEY, HttpRequest, Reply
from jobwire.gateway.routes import Doc

ADMISSION_KEY: Final = "jobwire.admission"
NEEDS_KEY: Final = "x-jobwire"
_encode = msgspec.json.Encoder().encode


def needs(
    access: Access, *problems: ProblemKind, max_body: int = 0, doc: Doc | None = None
) -> dict[str, Any]:
    """The scope that a route requires or the proof that it verifies, and the problems that it may
    answer with."""
    needed = {"access": access, "max_body": max_body, "problems": problems, "doc": doc}
    return {NEEDS_KEY: needed}


def documented(access: Access, doc: Doc) -> dict[str, Any]:
    """The same with the documentation of a hot route, for a route whose answer is a msgspec type.

    `doc.parameters` are those that the route reads from the request by itself; parameters of the
    function are documented by FastAPI.
    """
    return needs(access, *doc.problems, doc=doc)


class ScopedRoute(APIRoute):
    """A FastAPI route that declares its access."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        extra: dict[str, Any] = options.get("openapi_extra") or {}
        required = extra.get(NEEDS_KEY)
        if required is None:
            raise TypeError(f"{path}: the scope is missing; add openapi_extra=needs(scope)")
        check_access(path, required["access"])
        # Not part of the OpenAPI document, which FastAPI would put it into.
        options["openapi_extra"] = {name: extra[name] for name in extra if name != NEEDS_KEY}
        super().__init__(path, endpoint, **options)
        self.access: Access = required["access"]
        self.own_max_body: int = required["max_body"]
        self.own_problems: Sequence[ProblemKind] = required["problems"]
        self.doc: Doc | None = required["doc"]

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.methods is None or scope["method"] in self.methods:
            admission: Admission = scope[ADMISSION_KEY]
            request: HttpRequest = scope[SCOPE_KEY]
            request.route = f"{scope['method']} {self.path_format}"
            request.check_query()
            if isinstance(self.access, SelfAuthenticated):
                await admission.verify(request, self.access, self.own_max_body)
            else:
                admission.authorize(request, self.access, self.own_max_body)
            if self.body_field is not None:
                request.require_media_type(JSON)
        await super().handle(scope, receive, send)


def new_router(tag: str) -> APIRouter:
    """A router for the routes of one feature."""
    return APIRouter(route_class=ScopedRoute, tags=[tag])


def json_response(body: object, status: int = 200) -> Response:
    """The response of a FastAPI route whose answer is a msgspec type: quicker than pydantic, and
    JSON of callers and handlers (`msgspec.Raw`) is passed byte for byte."""
    return response(Reply(_encode(body), status))


def response(reply: Reply) -> Response:
    """The reply of a hot route as the response of a FastAPI route."""
    headers = {name.decode(): value.decode() for name, value in reply.headers}
    return Response(reply.body, reply.status, headers, reply.media_type.decode())


def _current_request(fastapi_request: Request) -> HttpRequest:
    return fastapi_request.scope[SCOPE_KEY]


CurrentRequest = Annotated[HttpRequest, Depends(_current_request)]
"""Parameter of a FastAPI route: the `HttpRequest`, with its `principal`."""
