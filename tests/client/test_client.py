"""Both clients against a real gateway and a real worker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from jobwire import AsyncClient, Client, NewJob
from jobwire.client import (
    AlreadyFinished,
    ApiError,
    BadAnswer,
    Event,
    IdempotencyMismatch,
    JobFailed,
    NoSuchJob,
    TimedOut,
    Unauthorized,
    UnknownTask,
    Unreachable,
    http,
)
from jobwire.client.target import BadAddress
from jobwire.gateway.auth import new_key
from jobwire.local import free_port
from tests.fleet.runner import Fleet
from tests.support import Proxy, clause, wait_until, wait_until_sync
from tests.support.resp import Command

COUNT = ["queued", "running", "progress", "progress", "progress", "done"]


@pytest.fixture
def jobs(fleet: Fleet) -> Client:
    return fleet.client()


@clause("J-10", "J-13")
async def test_run_returns_the_result_async_and_sync(fleet: Fleet) -> None:
    async with fleet.async_client() as jobs:
        assert await jobs.run("count", {"to": 4}) == {"counted": 4}
    with fleet.client() as plain:
        assert await asyncio.to_thread(plain.run, "count", {"to": 5}) == {"counted": 5}


def test_a_job_that_fails_or_is_late_raises(fleet: Fleet) -> None:
    with fleet.client() as jobs:
        with pytest.raises(JobFailed, match="it was not to be") as failed:
            jobs.run("fail")
        assert failed.value.code == "no_luck"
        with pytest.raises(TimedOut) as late:
            jobs.run("forever", wait_s=0.1)
        job_id = late.value.job_id
        assert jobs.get(job_id).status in ("queued", "running")
        assert jobs.cancel(job_id).outcome in ("canceled", "canceling")
        assert jobs.wait(job_id).status == "canceled"
        with pytest.raises(AlreadyFinished):
            jobs.cancel(job_id)
        assert jobs.run("shaky") == 3


def test_refusals_have_error_types(fleet: Fleet) -> None:
    with fleet.client() as jobs:
        with pytest.raises(UnknownTask):
            jobs.submit("no-such-task")
        with pytest.raises(NoSuchJob):
            jobs.get("no-such-job")
        with pytest.raises(NoSuchJob):
            next(jobs.events("no-such-job"))
        first = jobs.submit("count", idempotency_key="test_refusals")
        assert jobs.submit("count", idempotency_key="test_refusals").job_id == first.job_id
        with pytest.raises(IdempotencyMismatch):
            jobs.submit("count", {"to": 9}, idempotency_key="test_refusals")


def test_retry_creates_a_new_job(fleet: Fleet) -> None:
    with fleet.client() as jobs:
        old = jobs.submit("fail")
        assert jobs.wait(old.job_id).status == "error"
        new = jobs.retry(old.job_id)
        assert new.job_id != old.job_id
        assert new.retry_of == old.job_id
        done = jobs.submit("count", {"to": 1})
        jobs.wait(done.job_id)
        with pytest.raises(ApiError) as refused:
            jobs.retry(done.job_id)
        assert refused.value.code == "not_retryable"


def test_a_batch_has_a_result_for_each_job(fleet: Fleet) -> None:
    with fleet.client() as jobs:
        made = jobs.batch([NewJob("count", {"to": 1}), NewJob("unknown"), NewJob("count")])
        assert isinstance(made[1], UnknownTask)
        for job_id in (made[0], made[2]):
            assert isinstance(job_id, str)
            assert jobs.wait(job_id).status == "done"


def test_lists_and_tasks(fleet: Fleet) -> None:
    with fleet.client() as jobs:
        job = jobs.submit("count", {"to": 1})
        jobs.wait(job.job_id)
        page = jobs.list(task="count", status="done", limit=1)
        assert [line.job_id for line in page.jobs] == [job.job_id]
        assert 1 <= page.scanned <= page.total
        delayed = jobs.get(jobs.submit("count", {"to": 1}, delay_s=60).job_id)
        assert delayed.due_ts == delayed.created_ts + 60_000
        jobs.cancel(delayed.job_id)
        task = jobs.task("count")
        assert task is not None
        assert (task.live, task.example) == (True, {"to": 3})
        assert jobs.task("unknown") is None


@clause("J-15")
async def test_events_are_complete_and_in_order_async_and_sync(fleet: Fleet) -> None:
    async with fleet.async_client() as jobs:
        job = await jobs.submit("count")
        seen = [event async for event in jobs.events(job.job_id)]
    assert [event.type for event in seen] == COUNT
    assert seen[2].data == {"percent": pytest.approx(33.333, abs=0.01), "message": "at 1"}
    assert all(event.id and event.ts for event in seen)
    with fleet.client() as plain:
        rest = list(plain.events(job.job_id, after=seen[2].id))
        assert list(plain.events(job.job_id, after=seen[-1].id)) == [], "the job has ended"
    async with fleet.async_client() as jobs:
        assert [event async for event in jobs.events(job.job_id, after=seen[-1].id)] == []
    assert rest == seen[3:]


async def test_leaving_the_iteration_closes_the_stream(fleet: Fleet) -> None:
    async with fleet.async_client() as jobs:
        job = await jobs.submit("forever")
        async with contextlib.aclosing(jobs.events(job.job_id)) as events:
            async for event in events:
                if event.type == "progress":
                    break
        await jobs.cancel(job.job_id)
    with fleet.client() as plain:
        for event in plain.events(job.job_id):
            if event.type == "queued":
                break


def test_a_client_is_safe_to_share_between_threads(fleet: Fleet) -> None:
    results: list[object] = []
    with fleet.client() as jobs:
        threads = [
            threading.Thread(
                target=lambda: results.append(jobs.run("count", {"to": 1})), daemon=True
            )
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert results == [{"counted": 1}] * 8


# ── find the gateway ─────────────────────────────────────────────────────────────────────────────


@clause("O-12")
def test_o12_the_gateway_is_found_by_variable_else_by_the_endpoints_file(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("JOBWIRE_URL", "JOBWIRE_API_KEY", "JOBWIRE_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(
        Unreachable, match=r"nothing runs in \.jobwire or above it. Start one: jobwire up"
    ):
        Client()
    (tmp_path / ".jobwire").mkdir()
    (tmp_path / ".jobwire" / "endpoints.json").write_text(
        f'{{"http":"{fleet.url}","valkey":"","s3":null,"pids":{{}},"version":"0"}}'
    )
    with Client() as jobs:
        assert jobs.url == fleet.url
        assert jobs.run("count", {"to": 1}) == {"counted": 1}
    monkeypatch.setenv("JOBWIRE_URL", "http://localhost:1/")
    with Client() as jobs:
        assert jobs.url == "http://localhost:1"


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8080",
        "ftp://localhost",
        "http://",
        "http://h:99999",
        "http://u:p@h",
        "http://h?x",
    ],
)
def test_a_bad_address_is_refused(url: str) -> None:
    with pytest.raises(BadAddress):
        Client(url)
    with pytest.raises(BadAddress):
        AsyncClient(url)


def test_a_bad_key_is_refused_and_not_shown() -> None:
    with pytest.raises(BadAddress) as refused:
        Client("http://localhost", api_key="jw_secret\n")
    assert "secret" not in str(refused.value)


def test_unreachable_is_raised_after_the_retry_budget() -> None:
    with Client(f"http://127.0.0.1:{free_port()}", patience_s=0.2) as jobs:
        with pytest.raises(Unreachable, match="no answer from http://127"):
            jobs.get("x")
        with pytest.raises(Unreachable, match="no answer from http://127"):
            next(jobs.events("x"))


async def test_another_program_at_the_address_is_reported(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 6\r\n\r\n<html>")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, AsyncClient(f"http://127.0.0.1:{port}") as jobs:
        with pytest.raises(BadAnswer, match="is this address jobwire's"):
            await jobs.get("x")


def test_the_api_key_is_sent(own_fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    key, hashed = new_key()
    keys = [{"name": "k", "hash": hashed, "scopes": ["submit", "read"]}]
    own_fleet.start_gateway(JOBWIRE_GATEWAY_KEYS=json.dumps(keys))
    with own_fleet.client() as anonymous, pytest.raises(Unauthorized):
        anonymous.submit("chat", {"prompt": "x"})
    with Client(own_fleet.url, api_key="jw_wrong") as unknown, pytest.raises(Unauthorized):
        unknown.list()
    monkeypatch.setenv("JOBWIRE_API_KEY", key)
    with own_fleet.client() as known:
        job = known.submit("chat", {"prompt": "x"})
        assert next(known.events(job.job_id)).type == "queued"


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_an_idle_stream_is_reopened(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No heartbeat arrives, and the connection is not closed either."""
    monkeypatch.setattr(http, "STREAM_TIMEOUT", httpx.Timeout(5, read=0.2))
    requests: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append((await reader.readuntil(b"\r\n\r\n")).lower())
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        writer.write(b'event: hello\ndata: {"job_id":"j","status":"running"}\n\n')
        # On a busy machine also the first event may be too late for the client.
        is_seen = b"last-event-id: 7-0" in requests[-1]
        name, event_id = ("done", "8-0") if is_seen else ("running", "7-0")
        body = f'id: {event_id}\nevent: {name}\ndata: {{"type":"{name}","ts":1,"data":{{}}}}\n\n'
        writer.write(body.encode())
        await writer.drain()
        with contextlib.suppress(ConnectionError):
            await reader.read()  # until the client goes
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    def watch() -> list[Event]:
        with Client(url) as jobs:
            return list(jobs.events("j"))

    async with server:
        if kind == "async":
            async with AsyncClient(url) as jobs:
                seen = [event async for event in jobs.events("j")]
        else:
            seen = await asyncio.to_thread(watch)
    assert [event.type for event in seen] == ["running", "done"]
    assert len(requests) >= 2


# ── over restarts ────────────────────────────────────────────────────────────────────────────────


class Gate:
    """Lets the handler `gated` report one number more."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, count: int = 1) -> None:
        with self.path.open("a") as file:
            file.write("open\n" * count)


def _numbers(events: list[Event]) -> list[int]:
    numbers = [event.data for event in events if event.type == "number"]
    return [cast("dict[str, int]", data)["n"] for data in numbers]


@clause("R-8", "J-15")
@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_r8_events_continue_over_gateways_that_stop_and_die(
    own_fleet: Fleet, tmp_path: Path, kind: str
) -> None:
    """A gateway is stopped, the next one is killed, both while the job reports: the client receives
    every event once and in order, and no error."""
    gateway = own_fleet.start_gateway()
    own_fleet.start_worker()
    gate, seen = Gate(tmp_path / "gate"), list[Event]()

    async def watch_async(job_id: str) -> None:
        async with own_fleet.async_client() as jobs:
            async for event in jobs.events(job_id):
                seen.append(event)

    def watch(job_id: str) -> None:
        with own_fleet.client() as jobs:
            for event in jobs.events(job_id):
                seen.append(event)

    async with own_fleet.async_client() as jobs:
        job = await jobs.submit("gated", {"gate": str(gate.path), "to": 30})
        watching = asyncio.create_task(
            watch_async(job.job_id) if kind == "async" else asyncio.to_thread(watch, job.job_id)
        )
        gate.open(5)
        await wait_until(lambda: len(_numbers(seen)) >= 5)
        gateway.terminate()
        gate.open(5)  # while no gateway serves the stream
        await asyncio.to_thread(gateway.wait)
        gateway = await asyncio.to_thread(own_fleet.start_gateway)
        gate.open(5)
        await wait_until(lambda: len(_numbers(seen)) >= 15)
        gateway.kill()
        gate.open(5)
        await asyncio.to_thread(own_fleet.start_gateway)
        gate.open(10)
        await asyncio.wait_for(watching, 60)
        whole = [event async for event in jobs.events(job.job_id)]
    assert _numbers(seen) == list(range(1, 31))
    assert seen == whole, "the live events are the stored events"
    assert len({event.id for event in seen}) == len(seen)
    assert seen[-1].type == "done"


def _posts(proxy: Proxy) -> list[str]:
    """The POST requests that reached the gateway."""
    return re.findall(r"POST (\S+)", proxy.sent.decode())


async def _call(kind: str, proxy: Proxy, method: str, *arguments: Any) -> Any:
    """Call a method of either client through a proxy."""
    url = f"http://{proxy.address}"
    if kind == "async":
        async with AsyncClient(url) as jobs:
            return await getattr(jobs, method)(*arguments)
    with Client(url) as jobs:
        return await asyncio.to_thread(getattr(jobs, method), *arguments)


def _is_post(command: Command) -> bool:
    return command.raw.startswith(b"POST")


@clause("R-6", "J-11")
@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_r6_a_lost_response_creates_no_second_job(fleet: Fleet, kind: str) -> None:
    """The connection breaks after the gateway has created the job, before its response arrives. The
    client repeats the request and receives the same job."""
    with Proxy(fleet.port) as proxy:
        proxy.cut_reply(_is_post)
        job = await _call(kind, proxy, "submit", "count", {"to": 1})
        first, second = re.findall(r'"job_id":"([^"]+)"', proxy.received.decode())
        assert first == second == job.job_id
        assert b"idempotency-replayed: true" in proxy.received
        assert _posts(proxy) == ["/v1/jobs"] * 2

        proxy.forget_seen()
        proxy.cut_reply(_is_post)
        made = await _call(kind, proxy, "batch", [NewJob("count"), NewJob("fail")])
        ids = re.findall(r'"job_id":"([^"]+)"', proxy.received.decode())
        assert ids == [*made, *made]

        with fleet.client() as plain:
            assert (await asyncio.to_thread(plain.wait, made[1])).status == "error"
        proxy.forget_seen()
        proxy.cut_reply(_is_post)
        again = await _call(kind, proxy, "retry", made[1])
        assert set(re.findall(r'"job_id":"([^"]+)"', proxy.received.decode())) == {again.job_id}
        assert again.retry_of == made[1]


@clause("R-6")
@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_r6_a_cancel_whose_response_was_lost_succeeds(fleet: Fleet, kind: str) -> None:
    with Proxy(fleet.port) as proxy, fleet.client() as plain:
        job = await asyncio.to_thread(plain.submit, "count", {}, delay_s=3600)
        proxy.cut_reply(_is_post)
        answer = await _call(kind, proxy, "cancel", job.job_id)
        assert answer.outcome == "canceled"
        assert len(_posts(proxy)) == 2


@clause("R-6")
@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_r6_a_request_cut_in_half_is_sent_again(fleet: Fleet, kind: str) -> None:
    with Proxy(fleet.port) as proxy:
        proxy.cut_after(60)
        job = await _call(kind, proxy, "submit", "count", {"to": 1})
        assert set(re.findall(r'"job_id":"([^"]+)"', proxy.received.decode())) == {job.job_id}
        assert b"idempotency-replayed" not in proxy.received


def test_a_gateway_that_starts_late_is_waited_for(own_fleet: Fleet) -> None:
    found: list[str] = []

    def submit() -> None:
        with own_fleet.client() as jobs:
            found.append(jobs.submit("chat", {"prompt": "early"}).job_id)

    early = threading.Thread(target=submit, daemon=True)
    early.start()
    own_fleet.start_gateway()
    early.join(60)
    wait_until_sync(lambda: found)
