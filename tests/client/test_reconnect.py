"""Event streams over lost connections: jobs, BullMQ queues and images, with both clients."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

import pytest

from jobwire.client import AsyncClient, Client, Unreachable, retry_budget
from jobwire.client.retry_budget import RetryBudget
from jobwire.job.retry import Backoff

_OK = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
_NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"
_GREETINGS = {
    "job": _OK + b'event: hello\ndata: {"job_id":"x","status":"running"}\n\n',
    "queue": _OK + b'event: hello\ndata: {"queue":"mail"}\n\n',
    "image": _OK + b": open\n\n",
}


@contextlib.asynccontextmanager
async def _gateway(answers: Sequence[bytes]) -> AsyncGenerator[str]:
    """A server that sends the next answer to each connection and closes it; without an answer left,
    it does not listen any more."""
    left = list(answers)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        response = left.pop(0)
        if not left:
            server.close()
        writer.write(response)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def _streams(client: AsyncClient) -> dict[str, AsyncIterator[object]]:
    return {
        "job": client.events("x"),
        "queue": client.queue("mail").events(),
        "image": client.images.events("x"),
    }


async def _follow(client: str, stream: str, url: str, patience_s: float) -> list[object]:
    if client == "async":
        async with AsyncClient(url, patience_s=patience_s) as jobs:
            return [event async for event in _streams(jobs)[stream]]

    def follow() -> list[object]:
        with Client(url, patience_s=patience_s) as jobs:
            match stream:
                case "job":
                    return list(jobs.events("x"))
                case "queue":
                    return list(jobs.queue("mail").events())
                case _:
                    return list(jobs.images.events("x"))

    return await asyncio.to_thread(follow)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_budget, "_BACKOFF", Backoff("exponential", 0.001, 0.05, 0.5))


@pytest.mark.parametrize("client", ["async", "sync"])
@pytest.mark.parametrize("stream", ["job", "queue", "image"])
async def test_a_gateway_that_is_gone_is_reported_after_the_retry_budget(
    client: str, stream: str
) -> None:
    """The greeting of the first connection must not renew the budget of the later ones."""
    async with _gateway([_GREETINGS[stream]]) as url, asyncio.timeout(30):
        with pytest.raises(Unreachable):
            await _follow(client, stream, url, patience_s=0.3)


@pytest.mark.parametrize("client", ["async", "sync"])
@pytest.mark.parametrize("stream", ["job", "queue", "image"])
async def test_a_gateway_that_greets_and_closes_is_not_flooded(
    client: str, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a connection with events, or one that lasted, starts the backoff anew."""
    tries: list[int] = []
    pause_s = RetryBudget.pause_s

    def recorded(
        self: RetryBudget, error: Unreachable, now_s: float, random_fraction: float
    ) -> float | None:
        pause = pause_s(self, error, now_s, random_fraction)
        tries.append(self.tries)
        return pause

    monkeypatch.setattr(RetryBudget, "pause_s", recorded)
    async with _gateway([*[_GREETINGS[stream]] * 4, _NO_CONTENT]) as url, asyncio.timeout(30):
        assert await _follow(client, stream, url, patience_s=30.0) == []
    assert tries == [1, 2, 3, 4]


_ENDED = _OK + b'event: hello\ndata: {"queue":"mail","job_id":"x","state":"completed"}\n\n'
_WAITING = b'id: 1-0\nevent: waiting\ndata: {"event":"waiting","job_id":"x","ts":1,"fields":{}}\n\n'
_COMPLETED = (
    b'id: 2-0\nevent: completed\ndata: {"event":"completed","job_id":"x","ts":2,"fields":{}}\n\n'
)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([_ENDED + _WAITING, _ENDED + _COMPLETED], ["waiting", "completed"]),
        ([_ENDED + _WAITING, _NO_CONTENT], ["waiting"]),
        ([_ENDED], []),
    ],
    ids=["closed before the last event", "last event trimmed", "all events trimmed"],
)
async def test_the_past_events_of_an_ended_queue_job_are_complete(
    answers: list[bytes], expected: list[str]
) -> None:
    """A gateway that stops while it sends the past events closes the stream too."""
    async with _gateway(answers) as url, AsyncClient(url) as client, asyncio.timeout(30):
        events = [event.event async for event in client.queue("mail").events("x")]
    assert events == expected
