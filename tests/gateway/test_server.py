"""The server stops in order, and answers whatever its application does."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from datetime import timedelta
from typing import Any

import pytest

from jobwire.gateway.feature import Feature
from jobwire.gateway.request import HttpRequest, Message, Receive, Reply, Send
from jobwire.gateway.settings import GatewaySettings
from tests.gateway.routes import route
from tests.gateway.server import Serving, read_answer, status_of
from tests.support import clause, wait_until_sync


class Slow:
    """A route that answers when it is told to."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.may_end = threading.Event()
        self.feature = Feature(name="slow", routes=[route("GET", "/slow", "read", self._answer)])

    async def _answer(self, _: HttpRequest) -> Reply:
        self.started.set()
        while not self.may_end.is_set():
            await asyncio.sleep(0.01)
        return Reply(b'"done"')


def ask(served: Serving, path: str) -> socket.socket:
    peer = served.open_socket()
    peer.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return peer


@clause("O-9")
def test_a_request_in_flight_ends_before_the_server_does() -> None:
    slow = Slow()
    with (
        Serving(GatewaySettings(drain=timedelta(seconds=30)), slow.feature) as served,
        ask(served, "/slow") as asked,
        ask(served, "/livez") as idle,
    ):
        read_answer(idle)
        assert slow.started.wait(30)
        served.stop()
        assert idle.recv(1) == b"", "an idle connection is closed at once"
        with pytest.raises(OSError, match="refused"):
            served.open_socket()
        slow.may_end.set()
        answer = read_answer(asked)
        assert status_of(answer) == 200
        assert b"connection: close" in answer
        assert answer.endswith(b'"done"')
        assert asked.recv(1) == b""


@clause("O-9")
@pytest.mark.parametrize("how", ["in time", "second stop"])
def test_a_request_that_does_not_end_is_cancelled_and_answered(how: str) -> None:
    slow = Slow()
    drain = timedelta(seconds=0.1 if how == "in time" else 300)
    with (
        Serving(GatewaySettings(drain=drain), slow.feature) as served,
        ask(served, "/slow") as asked,
    ):
        assert slow.started.wait(30)
        served.stop()
        if how == "second stop":
            served.stop()
        answer = read_answer(asked)
        assert status_of(answer) == 500
        assert b'"code":"internal"' in answer
        assert asked.recv(1) == b""


async def _nothing(_: Message, __: Receive, ___: Send) -> None:
    return


async def _raises(_: Message, __: Receive, ___: Send) -> None:
    raise RuntimeError("a fault of the middleware")


async def _half(_: Message, __: Receive, send: Send) -> None:
    headers = [(b"content-length", b"10")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"12345", "more_body": True})


@clause("O-9")
@pytest.mark.parametrize(
    ("app", "answered"),
    [(_nothing, 500), (_raises, 500), (_half, 200)],
    ids=["nothing", "raises", "half"],
)
def test_an_application_that_does_not_answer(app: Any, answered: int) -> None:
    with Serving() as served:
        served.server.state.app = app
        with ask(served, "/livez") as asked:
            answer = read_answer(asked)
            assert status_of(answer) == answered
            if answered == 200:
                assert answer.endswith(b"\r\n\r\n12345"), "cut off, not completed"
        wait_until_sync(lambda: not served.server.state.connections, "the connection to be closed")
        wait_until_sync(lambda: not served.server.state.tasks, "its task to end")


@clause("O-10")
def test_the_gateway_needs_no_other_server() -> None:
    """A server that the application of a user runs on may be of any version."""
    code = "import sys; sys.modules['uvicorn'] = None; import jobwire.programs.gateway"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
