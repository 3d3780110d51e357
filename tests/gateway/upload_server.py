"""A gateway with upload routes, in its own process: `python -m tests.gateway.upload_server`.

Prints its port. Its memory can be measured from outside.
"""

from __future__ import annotations

import asyncio
import hashlib
import signal
import socket
from typing import Final

import msgspec
import uvloop

from jobwire.api.problems import UNAUTHORIZED, WRONG_MEDIA_TYPE, ProblemKind
from jobwire.gateway.access import SelfAuthenticated
from jobwire.gateway.app import Gateway
from jobwire.gateway.auth import Principal
from jobwire.gateway.feature import Feature
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import ClientGone, HttpRequest, Reply
from jobwire.gateway.route import Endpoint, Route
from jobwire.gateway.server import HttpServer
from jobwire.gateway.settings import GatewaySettings
from jobwire.gateway.sse_connections import SseConnections
from tests.gateway.routes import route

REFUSED: Final = {"unauthorized": 401, "used": 409, "too-large": 413, "wrong-type": 415}
"""The routes below /uploads/ that refuse every body before they read any of it."""
LATE_BYTES: Final = 8 << 20
USED: Final = ProblemKind("used", 409, "this upload was used")
PAGE: Final = b'<!doctype html><title>Upload</title><input type="file">'


class Received(msgspec.Struct):
    size: int
    sha256: str


async def no_token(_: HttpRequest) -> Principal:
    raise Problem(UNAUTHORIZED)


async def used(_: HttpRequest) -> Reply:
    raise Problem(USED)


async def wrong_type(_: HttpRequest) -> Reply:
    raise Problem(WRONG_MEDIA_TYPE)


async def accepted(request: HttpRequest) -> Reply:
    size, digest = 0, hashlib.sha256()
    async for chunk in request.chunks():
        size += len(chunk)
        digest.update(chunk)
    return Reply(msgspec.json.encode(Received(size, digest.hexdigest())))


async def late(request: HttpRequest) -> Reply:
    """Refuses a body that it has begun to read."""
    size = 0
    async for chunk in request.chunks():
        size += len(chunk)
        if size > LATE_BYTES:
            raise Problem(USED)
    return Reply(b"{}")


class Held:
    """Uploads that are not read until they are released, each by its name."""

    def __init__(self) -> None:
        self._released: dict[str, asyncio.Event] = {}
        self._gone: list[str] = []

    def _event(self, request: HttpRequest) -> asyncio.Event:
        return self._released.setdefault(request.params[0], asyncio.Event())

    async def upload(self, request: HttpRequest) -> Reply:
        size = 0
        try:
            async for chunk in request.chunks():
                size += len(chunk)
                await self._event(request).wait()
        except ClientGone:
            self._gone += request.params
            raise
        return Reply(b"%d" % size)

    async def release(self, request: HttpRequest) -> Reply:
        self._event(request).set()
        return Reply(b"{}")

    async def gone(self, _: HttpRequest) -> Reply:
        """The uploads that ended before their body."""
        return Reply(msgspec.json.encode(self._gone))


async def page(_: HttpRequest) -> Reply:
    policy = (b"content-security-policy", b"default-src 'none'; connect-src 'self'; img-src data:")
    return Reply(PAGE, headers=(policy,), media_type=b"text/html")


def uploads() -> Feature:
    held = Held()
    token = SelfAuthenticated(no_token, "uploadToken", {"type": "http", "scheme": "bearer"})

    def put(name: str, endpoint: Endpoint, max_body: int = 8 << 30) -> Route:
        return route("PUT", f"/uploads/{name}", "submit", endpoint, max_body=max_body)

    return Feature(
        name="uploads",
        routes=[
            route("GET", "/page", "public", page),
            route("PUT", "/uploads/unauthorized", token, accepted, max_body=8 << 30),
            put("used", used),
            put("too-large", accepted, max_body=1000),
            put("wrong-type", wrong_type),
            put("accepted", accepted),
            put("late", late),
            put("held/{name}", held.upload),
            route("POST", "/release/{name}", "submit", held.release),
            route("GET", "/gone", "read", held.gone),
        ],
    )


async def serve(listening: socket.socket) -> None:
    settings = GatewaySettings()
    streams = SseConnections(settings)
    gateway = Gateway(settings, [uploads()], streams, version="0.0.test")
    server = HttpServer(gateway, settings)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stop)
    print(f"port {listening.getsockname()[1]}", flush=True)
    await server.run_until_stopped(listening)


if __name__ == "__main__":
    uvloop.run(serve(socket.create_server(("127.0.0.1", 0), backlog=128)))
