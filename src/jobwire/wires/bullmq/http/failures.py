"""Routes over the queue server: while it does not answer they are `unavailable`, not `internal`."""

from fastapi import APIRouter
from starlette.types import Receive, Scope, Send

from jobwire.gateway.request import HttpRequest
from jobwire.gateway.route import Endpoint
from jobwire.gateway.router import ScopedRoute
from jobwire.wires.bullmq.replies import raises_unavailable


class WireRoute(ScopedRoute):
    """A FastAPI route that reads or writes queues."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        with raises_unavailable():
            await super().handle(scope, receive, send)


def wire_router() -> APIRouter:
    """A router for such routes."""
    return APIRouter(route_class=WireRoute, tags=["queues"])


def guarded(endpoint: Endpoint) -> Endpoint:
    """The same for a hot route."""

    async def call(request: HttpRequest) -> None:
        with raises_unavailable():
            await endpoint(request)

    return call
