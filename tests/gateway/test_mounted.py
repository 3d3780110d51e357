"""The gateway as a part of another ASGI application, below a prefix, on a server of others."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import httpx
import pytest
import uvicorn

from jobwire.gateway.app import Gateway
from jobwire.gateway.request import Message, Receive, Send
from tests.gateway.features import test_feature
from tests.gateway.server import build

PREFIX = "/background"


class Parent:
    """An application that has the gateway below `PREFIX`, as frameworks mount one."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.lifespan: list[str] = []

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope["path"].startswith(PREFIX):
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body"})
        elif scope["type"] == "http":
            await self._gateway({**scope, "root_path": PREFIX}, receive, send)
        else:

            async def recorded(message: Message) -> None:
                self.lifespan.append(message["type"])
                await send(message)

            await self._gateway(scope, receive, recorded)


@pytest.fixture(scope="module")
def parent() -> Parent:
    return Parent(build(test_feature()))


@pytest.fixture(scope="module")
def client(parent: Parent) -> Iterator[httpx.Client]:
    listening = socket.create_server(("127.0.0.1", 0))
    # `on`: an application that does not answer the lifespan does not start.
    config = uvicorn.Config(parent, lifespan="on", log_level="warning", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=asyncio.run, args=(server.serve([listening]),), daemon=True)
    thread.start()
    try:
        port = listening.getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=url, timeout=30, trust_env=False) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()
    assert parent.lifespan == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_paths_begin_at_the_mount(client: httpx.Client) -> None:
    assert client.get("/other").status_code == 204
    assert client.get(f"{PREFIX}/livez").status_code == 200
    assert client.get(f"{PREFIX}/things/default.1").json() == {"name": "default.1"}
    answer = client.post(f"{PREFIX}/echo", json={"name": "x"})
    assert (answer.status_code, answer.json()) == (200, {"name": "x"})
    assert client.get(f"{PREFIX}/v1/me").json()["tenant"] == "default"
    assert client.post(f"{PREFIX}/form", json={"name": "x"}).json()["name"] == "x"


def test_other_paths_are_not_found(client: httpx.Client) -> None:
    for path in (PREFIX, f"{PREFIX}/", f"{PREFIX}/nothing", f"{PREFIX}{PREFIX}/livez"):
        answer = client.get(path)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), path
    answer = client.get(f"{PREFIX}more/livez")
    assert answer.status_code == 404


async def test_other_kinds_of_connections_are_refused(parent: Parent) -> None:
    async def never() -> Message:
        raise AssertionError

    async def send(_: Message) -> None:
        raise AssertionError

    with pytest.raises(TypeError, match="only http is served"):
        await parent({"type": "websocket", "path": "/"}, never, send)


def test_an_encoded_slash_below_a_mount_does_not_separate(client: httpx.Client) -> None:
    assert client.get(f"{PREFIX}/things/default.a%2Fb").json() == {"name": "default.a/b"}
    assert client.get(f"{PREFIX}/things%2Fdefault.a").status_code == 404
