"""O-15: a request that waits ends when its client leaves, whatever it waits for."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any, Final

import pytest

from jobwire.local import LocalValkey
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.jobs.http import openai
from jobwire.systems.jobs.schema_documents import task_definitions
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Connection
from tests.support import clause, wait_until
from tests.support.jobs_http import ServedJobs
from tests.systems.queues.served import ServedQueues

Asked = tuple[str, dict[str, Any]]

CHAT: Final[Asked] = ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]})
EMBED: Final[Asked] = ("/v1/embeddings", {"input": ["a", "b"]})
JOB: Final[Asked] = ("/v1/jobs", {"task": "chat", "payload": {}})


@pytest.fixture
def served(valkey: LocalValkey) -> Iterator[ServedJobs]:
    with ServedQueues(valkey.url, jobs=True) as served:
        yield served


async def leaves(served: ServedJobs, request: bytes, *, half: bool) -> None:
    """Send a request that waits, leave, and see its task end."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as peer:
        peer.sendall(request)
        await wait_until(lambda: served.waiting == 1, "the request to wait")
        peer.shutdown(socket.SHUT_WR if half else socket.SHUT_RDWR)
        await wait_until(lambda: served.under_way == 0, "the request to end")


def post(path: str, body: object) -> bytes:
    text = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nPrefer: wait=60\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(text) + text


@clause("O-15", "J-13")
@pytest.mark.parametrize("half", [False, True], ids=["left", "half-closed"])
@pytest.mark.parametrize("asked", [CHAT, EMBED, JOB], ids=["chat", "embed", "job"])
async def test_o15_a_wait_for_a_job_ends_with_its_client(
    served: ServedJobs, connection: Connection, asked: Asked, half: bool
) -> None:
    await StreamsEngine(connection, StreamsSettings()).register(task_definitions(), 1)
    await leaves(served, post(*asked), half=half)


@clause("O-15")
@pytest.mark.parametrize("asked", [CHAT, EMBED], ids=["chat", "embed"])
async def test_o15_a_wait_for_a_worker_ends_with_its_client(
    served: ServedJobs, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai, "_WORKER_WAIT_S", 600.0)
    await leaves(served, post(*asked), half=False)


@clause("O-15")
async def test_o15_a_wait_for_a_job_of_a_queue_ends_with_its_client(served: ServedQueues) -> None:
    path = f"/v1/queues/emails/jobs/{served.add('emails')}"
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nPrefer: wait=60\r\n\r\n".encode()
    await leaves(served, head, half=False)


async def test_a_client_that_stays_is_told_that_no_worker_came(
    served: ServedJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai, "_WORKER_WAIT_S", 0.1)
    path, body = CHAT
    answer = served.client.post(path, json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_worker")
