"""Tools for tests of jobs over HTTP: a gateway in a thread of its own, and a reader of events."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Generator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from typing import Self, cast

import httpx
import uvloop

from jobwire.gateway.app import Gateway
from jobwire.gateway.auth import hash_of
from jobwire.gateway.feature import Feature
from jobwire.gateway.server import HttpServer
from jobwire.gateway.settings import GatewaySettings, KeySettings, ScopeName
from jobwire.gateway.sse_connections import SseConnections
from jobwire.job.messages import Json
from jobwire.systems.jobs.contract import StreamsKeys
from jobwire.systems.jobs.follow import Follower
from jobwire.systems.jobs.http import feature
from jobwire.systems.jobs.schema_documents import task_definitions
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Connection
from tests.support.threads import call_on_loop

JsonObject = dict[str, Json]


def key(name: str, *scopes: ScopeName, tenant: str = "default") -> KeySettings:
    """A key for tests: `jw_` and its name."""
    return KeySettings(name=name, hash=hash_of(f"jw_{name}"), scopes=scopes, tenant=tenant)


def bearer(name: str) -> dict[str, str]:
    """The header of a key made by `key`."""
    return {"authorization": f"Bearer jw_{name}"}


class ServedJobs:
    """`with ServedJobs(valkey.url) as served: served.client.post("/v1/jobs", …)`."""

    def __init__(
        self,
        valkey_url: str,
        jobs: StreamsSettings | None = None,
        gateway: GatewaySettings | None = None,
    ) -> None:
        self._valkey_url = valkey_url
        self._jobs = jobs or StreamsSettings()
        self._settings = gateway or GatewaySettings()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
        self.port: int = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.name = f"tests-gateway-{self.port}"
        self._thread = threading.Thread(target=uvloop.run, args=(self._serve(),), daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: HttpServer | None = None
        self._ready = threading.Event()
        self.streams = SseConnections(self._settings)
        self.follower = Follower(StreamsKeys(self._jobs.key_prefix))

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        async with (
            Connection.open(self._valkey_url, name=self.name) as connection,
            self.follower.running(self._valkey_url, self.name),
        ):
            jobs = self._jobs_feature(connection)
            gateway = Gateway(self._settings, [jobs], self.streams, version="0.0.test")
            self._server = HttpServer(gateway, self._settings, self._ready.set)
            self._loop = loop
            await self._server.run_until_stopped(self._listening)

    def _jobs_feature(self, connection: Connection) -> Feature:
        cards = task_definitions()
        return feature(connection, self._jobs, self.follower, self.streams, cards, self._settings)

    def __enter__(self) -> Self:
        self._thread.start()
        self.client = httpx.Client(base_url=self.url, timeout=30, trust_env=False, verify=False)
        assert self._ready.wait(30), "the gateway did not start"
        return self

    def stop(self) -> None:
        """As SIGTERM does."""
        assert self._loop is not None
        assert self._server is not None
        call_on_loop(self._loop, self._server.stop)

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.stop()
        self._thread.join(30)
        assert not self._thread.is_alive(), "the gateway did not stop"

    @property
    def under_way(self) -> int:
        """The number of requests in flight."""
        assert self._server is not None
        return len(self._server.state.tasks)

    @property
    def waiting(self) -> int:
        """Those of them that do nothing but wait."""
        assert self._server is not None
        return [each.awaits_end for each in tuple(self._server.state.connections)].count(True)

    # Shortcuts

    def submit(self, task: str = "chat", payload: object = None, **more: object) -> JsonObject:
        """Submit a job that must be accepted."""
        body = {"task": task, "payload": {"prompt": "hi"} if payload is None else payload, **more}
        answer = self.client.post("/v1/jobs", json=body)
        assert answer.status_code == 202, answer.text
        return cast(JsonObject, answer.json())

    def job(self, job_id: object, **headers: str) -> JsonObject:
        answer = self.client.get(f"/v1/jobs/{job_id}", headers=headers)
        assert answer.status_code == 200, answer.text
        return cast(JsonObject, answer.json())

    def events(self, job_id: object, query: str = "", **headers: str) -> EventReader:
        """Open a job's events; close it, or use it with `with`."""
        return EventReader(self.port, f"/v1/jobs/{job_id}/events{query}", headers)


def problem(answer: httpx.Response, status: int, code: str) -> JsonObject:
    """The problem document of a refusal that must be this one."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document = cast(JsonObject, answer.json())
    assert document["code"] == code, document
    assert document["status"] == status
    assert document["request_id"] == answer.headers["x-request-id"]
    return document


@dataclass(frozen=True)
class Seen:
    """One event as a browser dispatches it."""

    name: str
    data: Json
    id: str | None


class EventReader:
    """Reads a stream as the standard says: fields by line, an event at each empty line."""

    def __init__(self, port: int, path: str, headers: dict[str, str]) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=30)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request("GET", path, headers=named)
        self.answer: HTTPResponse = self._connection.getresponse()
        self._raw = b""
        self.comments: list[str] = []

    def next(self) -> Seen | None:
        """The next event, or None at the end; comments are put aside."""
        while True:
            while b"\n\n" not in self._raw:
                part = self.answer.read1(65536)
                if not part:
                    return None
                self._raw += part
            block, _, self._raw = self._raw.partition(b"\n\n")
            seen = read_block(block.decode())
            if isinstance(seen, Seen):
                return seen
            self.comments.append(seen)

    def rest(self) -> list[Seen]:
        """Everything to the end of the stream."""
        return list(iter(self.next, None))

    def until(self, name: str) -> list[Seen]:
        """Everything up to the next event of this name."""
        seen: list[Seen] = []
        while not seen or seen[-1].name != name:
            event = self.next()
            assert event is not None, f"the stream ended before {name!r}: {seen}"
            seen.append(event)
        return seen

    def close(self) -> None:
        self.answer.close()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_block(block: str) -> Seen | str:
    """An event, or the text of a comment."""
    name, data, event_id = "message", list[str](), None
    for line in block.split("\n"):
        field, _, value = line.partition(": ")
        match field:
            case "":
                return value
            case "event":
                name = value
            case "data":
                data.append(value)
            case "id":
                event_id = value
            case _:
                raise AssertionError(f"unknown field in {block!r}")
    return Seen(name, cast("Json", json.loads("\n".join(data))), event_id)


@contextlib.contextmanager
def watching(*readers: EventReader) -> Generator[None]:
    """Close them all at the end."""
    with contextlib.ExitStack() as stack:
        for reader in readers:
            stack.enter_context(reader)
        yield
