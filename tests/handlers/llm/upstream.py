"""A scripted model server: right, wrong or missing responses. Real HTTP on loopback.

A test gives it one act for each request it expects; the last act is repeated. It records the
requests, and detects when a client has disconnected.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Self


@dataclass
class Request:
    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]


class Line:
    """The connection, as an act sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def head(self, status: int = 200, **headers: str) -> None:
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.raw("\r\n".join([*lines, "", ""]).encode())

    async def chunk(self, data: bytes) -> None:
        await self.raw(b"%x\r\n%s\r\n" % (len(data), data))

    async def raw(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def gone(self) -> None:
        """Wait until the client has closed the connection."""
        while await self._reader.read(1024):
            pass


Act = Callable[[Line], Awaitable[None]]


class Upstream:
    """`async with Upstream(act, act) as upstream: …upstream.url…`"""

    def __init__(self, *acts: Act) -> None:
        self.acts = list(acts)
        self.requests: list[Request] = []
        self.left = 0
        """How many clients disconnected while the server waited for it."""
        self.url = ""
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    def act_for(self, _request: Request) -> Act:
        """The act for the next request."""
        return self.acts.pop(0) if len(self.acts) > 1 else self.acts[0]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await _read(reader)
            if not request.body:  # a check that the server is up
                return await Line(reader, writer).head(404, content_length="0")
            self.requests.append(request)
            await self.act_for(request)(Line(reader, writer))
        except _Gone:
            self.left += 1
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


class Stage(Upstream):
    """A scripted server for many jobs at once: the requested model's name selects the acts.
    A request for vectors without an act gets some."""

    def __init__(self, acts: Mapping[str, Sequence[Act]]) -> None:
        super().__init__()
        self._plays = {name: list(each) for name, each in acts.items()}

    def act_for(self, request: Request) -> Act:
        acts = self._plays.get(request.body["model"], [])
        if not acts and request.path.endswith("/embeddings"):
            return vectors(*([1.0, 0.0] for _ in request.body["input"]))
        return acts.pop(0) if len(acts) > 1 else acts[0]

    def asked(self, model: str) -> list[Request]:
        """The requests for one model."""
        return [each for each in self.requests if each.body["model"] == model]


class _Gone(Exception):
    pass


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])
    }
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(head[0].split()[1], headers, json.loads(body or b"{}"))


# ── acts of a server ─────────────────────────────────────────────────────────────────────────────


def delta(text: str, finish: str | None = None) -> bytes:
    """One piece of an answer."""
    choice: dict[str, object] = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return event({"model": "tester", "choices": [choice]})


def event(data: object) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
USAGE = event(
    {
        "model": "tester",
        "choices": [],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
    }
)


def says(*texts: str, finish: str = "stop") -> Act:
    """A complete answer in these pieces."""
    return streams(*(delta(text) for text in texts), delta("", finish), USAGE, DONE)


def streams(*chunks: bytes, cut: bool = False, then: Act | None = None) -> Act:
    """A stream of these chunks. `cut`: cut in the middle of the body; `then`: what follows
    instead of its end."""

    async def act(line: Line) -> None:
        await line.head(content_type="text/event-stream", transfer_encoding="chunked")
        for chunk in chunks:
            await line.chunk(chunk)
        if then is not None:
            await then(line)
        elif not cut:
            await line.chunk(b"")

    return act


def ends_without_length(*chunks: bytes) -> Act:
    """A body whose end is the end of the connection, as old proxies do."""

    async def act(line: Line) -> None:
        await line.head(content_type="text/event-stream", connection="close")
        for chunk in chunks:
            await line.raw(chunk)

    return act


def answers(
    status: int, body: object = "", content_type: str = "application/json", **headers: str
) -> Act:
    """A whole answer."""
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()

    async def act(line: Line) -> None:
        length = str(len(data))
        await line.head(status, content_type=content_type, content_length=length, **headers)
        await line.raw(data)

    return act


def refuses(status: int, message: str = "", code: str | None = None, **headers: str) -> Act:
    """An error as such servers write it."""
    return answers(status, {"error": {"message": message, "code": code}}, **headers)


async def waits(line: Line) -> None:
    """Sends nothing until the client has disconnected."""
    await line.gone()
    raise _Gone


async def hangs_up(_line: Line) -> None:
    """Closes the connection without a response."""


def vectors(*numbers: Sequence[float], model: str = "tester-embed") -> Act:
    """An answer with these vectors, the last one first."""
    data = [{"index": at, "embedding": list(each)} for at, each in enumerate(numbers)]
    usage = {"prompt_tokens": 3, "total_tokens": 3}
    return answers(200, {"model": model, "data": data[::-1], "usage": usage})
