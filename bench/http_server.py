"""One server in its own process: `python -m bench.http_server NAME FD`, on an open socket.

Each returns an empty JSON object on uvloop and httptools; they differ in the layers between uvicorn
and the handler. `streams` serves an event stream without events.
"""

import socket
import sys
from collections.abc import Callable
from typing import Any, Final

import uvicorn
import uvloop
from fastapi import FastAPI

from jobwire.gateway.app import Gateway
from jobwire.gateway.feature import Feature
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.router import needs, new_router
from jobwire.gateway.routes import Doc, HotRoute
from jobwire.gateway.server import HttpServer
from jobwire.gateway.settings import GatewaySettings
from jobwire.gateway.streams import Streams

_HEADERS: Final = [(b"content-type", b"application/json"), (b"content-length", b"2")]


async def bare(_: dict[str, Any], __: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": b"{}"})


def plain_fastapi() -> FastAPI:
    app = FastAPI()

    async def empty() -> dict[str, str]:
        return {}

    app.get("/empty")(empty)
    return app


def gateway() -> HttpServer:
    settings = GatewaySettings()
    streams = Streams(settings)
    router = new_router("bench")

    async def slow_empty() -> dict[str, str]:
        return {}

    router.get("/slow", openapi_extra=needs("read"))(slow_empty)

    async def empty(_: HttpRequest) -> Reply:
        return Reply(b"{}")

    async def events(request: HttpRequest) -> None:
        await streams.serve(request, lambda _: lambda: None, hello={})

    routes = Feature(
        name="bench",
        hot=[
            HotRoute("GET", "/empty", "read", empty, Doc(summary="empty", tag="bench")),
            HotRoute("GET", "/events", "read", events, Doc(summary="x", tag="bench"), stream=True),
        ],
        routers=[router],
    )
    return HttpServer(Gateway(settings, [routes], streams, version="bench"), settings)


async def serve(name: str, listening: socket.socket) -> None:
    if name in ("hot", "scoped", "streams"):
        await gateway().run_until_stopped(listening)
        return
    app: Callable[..., Any] = bare if name == "bare" else plain_fastapi()
    config = uvicorn.Config(app, http="httptools", ws="none", access_log=False, log_level="error")
    await uvicorn.Server(config).serve([listening])


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2]))))
