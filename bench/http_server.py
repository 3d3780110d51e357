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

from jobwire.api.operation import Operation
from jobwire.gateway.app import Gateway
from jobwire.gateway.feature import Feature
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.route import serve as serve_operation
from jobwire.gateway.server import HttpServer
from jobwire.gateway.settings import GatewaySettings
from jobwire.gateway.sse_connections import SseConnections

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
    streams = SseConnections(settings)
    nothing = Operation("GET", "/empty", "read", "empty", tag="bench")
    followed = Operation("GET", "/events", "read", "events", tag="bench", stream=True)

    async def empty(_request: HttpRequest) -> Reply:
        return Reply(b"{}")

    async def events(request: HttpRequest) -> None:
        await streams.serve(request, lambda _: lambda: None, hello={})

    routes = Feature(
        name="bench",
        routes=[serve_operation(nothing, empty), serve_operation(followed, events)],
    )
    return HttpServer(Gateway(settings, [routes], streams, version="bench"), settings)


async def serve(name: str, listening: socket.socket) -> None:
    if name in ("gateway", "streams"):
        await gateway().run_until_stopped(listening)
        return
    app: Callable[..., Any] = bare if name == "bare" else plain_fastapi()
    config = uvicorn.Config(app, http="httptools", ws="none", access_log=False, log_level="error")
    await uvicorn.Server(config).serve([listening])


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2]))))
