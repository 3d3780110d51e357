"""J-10: kill -9 of the gateway at each step of a submission: a whole job, or none."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import httpx
import pytest

from jobwire.local import LocalValkey
from jobwire.systems.jobs.contract import StreamsKeys
from tests.stories.gateways import GatewayProgram
from tests.support import Fresh, Plain, Proxy, clause, wait_until_sync
from tests.support.raw import Raw
from tests.support.streams import runs

BODY: Final = '{"task":"chat","payload":{"prompt":"once"}}'
SUBMIT: Final = runs("submit")


class Scene:
    """A gateway behind a proxy, and one request with an idempotency key."""

    def __init__(self, valkey: LocalValkey, raw: Raw, key: str) -> None:
        self.proxy = Proxy(valkey.port).start()
        self.gateway = GatewayProgram(self.proxy.url(valkey.url))
        self.raw = raw
        self.key = key
        self._pool = ThreadPoolExecutor(1)

    def ask(self) -> None:
        """Post without waiting for the response, which may never come."""
        self._pool.submit(self._post)

    def _post(self) -> None:
        with contextlib.suppress(httpx.HTTPError):
            self.gateway.post(BODY, idempotency_key=self.key)

    def job_id(self) -> str | None:
        found = self.raw.call("GET", f"idempotency:{self.key}")
        return found if isinstance(found, str) else None

    def is_whole(self) -> bool:
        """Whether the job exists; fails if only a part of it does."""
        job_id = self.job_id()
        keys = StreamsKeys()
        if job_id is None:
            return False
        assert self.raw.field(keys.job(job_id), "status") == "queued"
        assert [event["type"] for _, event in self.raw.entries(keys.events(job_id))] == ["queued"]
        entries = dict(self.raw.entries(keys.queue))
        entry = self.raw.field(keys.job(job_id), "entry_id")
        assert entry is not None
        assert entries[entry]["job_id"] == job_id
        assert job_id in self.raw.members(keys.open)
        assert job_id in self.raw.members(keys.index())
        return True

    def close(self) -> None:
        self.gateway.close()
        self.proxy.stop()
        self._pool.shutdown()


@pytest.fixture
def scenes(valkey: LocalValkey, plain: Plain, fresh: Fresh) -> Iterator[list[Scene]]:
    """Five scenes, started concurrently."""
    raw = Raw(plain)
    made = [Scene(valkey, raw, fresh("key")) for _ in range(5)]
    for scene in made:
        scene.gateway.wait_until_up()
    yield made
    for scene in made:
        scene.close()


@clause("J-10", "J-9", "R-1", "R-6")
def test_j10_a_gateway_killed_at_any_step_leaves_a_whole_job_or_none(
    scenes: list[Scene], raw: Raw
) -> None:
    in_the_body, on_its_way, in_the_command, unanswered, late = scenes

    # Half of the request has arrived.
    with socket.create_connection(("127.0.0.1", in_the_body.gateway.port)) as peer:
        host = f"Host: 127.0.0.1:{in_the_body.gateway.port}"
        head = f"POST /v1/jobs HTTP/1.1\r\n{host}\r\nContent-Length: {len(BODY)}\r\n\r\n"
        peer.sendall(head.encode() + BODY[:20].encode())
        in_the_body.gateway.program.kill()
    assert not in_the_body.is_whole()

    # The command is sent, and never arrives.
    with on_its_way.proxy.hold(SUBMIT) as hold:
        on_its_way.ask()
        hold.wait_reached()
        on_its_way.gateway.program.kill()
        on_its_way.proxy.cut()
    assert not on_its_way.is_whole()

    # Half of the command arrives.
    in_the_command.proxy.cut_at(SUBMIT, size=200)
    in_the_command.ask()
    in_the_command.proxy.wait_seen(SUBMIT)
    in_the_command.gateway.program.kill()
    wait_until_sync(lambda: in_the_command.proxy.connections == 0, "the cut")
    assert not in_the_command.is_whole()

    # The command has run, and its reply is lost.
    unanswered.proxy.cut_reply(SUBMIT)
    unanswered.ask()
    wait_until_sync(unanswered.is_whole, "the job")
    unanswered.gateway.program.kill()
    assert unanswered.is_whole()

    # The command arrives after its sender has died.
    with late.proxy.hold(SUBMIT) as hold:
        late.ask()
        hold.wait_reached()
        late.gateway.program.kill()
        assert not late.is_whole()
    wait_until_sync(late.is_whole, "the job of a dead gateway")

    # A client without a response repeats the request with the same key: one job each.
    before = {scene.key: scene.job_id() for scene in scenes}
    survivor = late.gateway
    survivor.kill_and_start()
    for scene in scenes:
        answer = survivor.post(BODY, idempotency_key=scene.key)
        known = before[scene.key]
        assert answer.status_code == (202 if known is None else 200)
        assert known in (None, answer.json()["job_id"])
        assert scene.is_whole()
    waiting = [fields["job_id"] for _, fields in raw.entries("jobs:stream")]
    assert sorted(waiting) == sorted(str(scene.job_id()) for scene in scenes)


@pytest.fixture
def raw(plain: Plain) -> Raw:
    return Raw(plain)
