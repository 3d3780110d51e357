"""J-15, J-17: live events over HTTP."""

from __future__ import annotations

import socket
import struct
from datetime import timedelta
from typing import cast

import pytest

from jobwire.gateway.settings import GatewaySettings
from jobwire.job.messages import Done, Released, Report
from jobwire.local import LocalValkey
from tests.support import clause, wait_until_sync
from tests.support.jobs_http import JsonObject, Seen, ServedJobs, bearer, problem
from tests.support.raw import Raw
from tests.support.servers import plain_client
from tests.support.streams import StreamsLab


def add(raw: Raw, job_id: object, kind: str = "log", data: str = "{}", step: str = "x") -> str:
    """An event of a foreign worker."""
    event = {"type": kind, "ts": "1700000000000", "step": step, "data": data}
    return raw.add(f"job:{job_id}:events", event)


def names(events: list[Seen]) -> list[str]:
    return [event.name for event in events]


@clause("J-15")
async def test_j15_a_stream_has_every_event_of_a_job(
    served: ServedJobs, lab: StreamsLab, raw: Raw
) -> None:
    worker = await lab.worker("chat")
    job_id = served.submit()["job_id"]
    with served.events(job_id) as events:
        assert events.answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        hello = events.next()
        assert hello == Seen("hello", {"job_id": job_id, "status": "queued"}, None)
        (leased,) = await worker.take(1)
        events.until("running")
        await worker.report([(leased, Report("token", '{"text":"hel"}', step="llm"))])
        token = events.until("token")[-1]
        await worker.settle([(leased, Done('"hello"'))], 0)
        rest = events.rest()
        assert names(rest) == ["done"]

    entries = raw.entries(f"job:{job_id}:events")
    entry_id, fields = entries[2]
    assert token.id == entry_id
    assert token.data == {
        "type": "token",
        "ts": int(fields["ts"]),
        "step": "llm",
        "data": {"text": "hel"},
    }
    with served.events(job_id) as again:
        replay = again.rest()
    assert names(replay) == ["hello", "queued", "running", "token", "done"]
    assert replay[0].data == {"job_id": job_id, "status": "done"}
    assert [event.id for event in replay] == [None, *(entry for entry, _ in entries)]


@clause("J-15", "J-39")
def test_j15_events_of_a_foreign_worker_are_delivered(served: ServedJobs, raw: Raw) -> None:
    job_id = served.submit()["job_id"]
    with served.events(job_id) as events:
        events.until("queued")
        added = [
            add(raw, job_id, "running"),
            add(raw, job_id, "my.own-kind_1", '{"n": 12345678901234567890}'),
            add(raw, job_id, "log", "not json"),
            add(raw, job_id, "done", ""),
        ]
        seen = events.rest()
    assert [event.id for event in seen] == added
    assert names(seen) == ["running", "my.own-kind_1", "log", "done"]
    data = [cast(JsonObject, event.data)["data"] for event in seen]
    assert data == [{}, {"n": 12345678901234567890}, "not json", None]


@clause("J-15")
def test_j15_event_data_without_the_envelope(served: ServedJobs, raw: Raw) -> None:
    job_id = served.submit()["job_id"]
    add(raw, job_id, "log", '{\n "a": 1\n}')
    add(raw, job_id, "done", '{"text":"x"}')
    with served.events(job_id, "?data=plain") as events:
        assert [event.data for event in events.rest()][1:] == [{}, {"a": 1}, {"text": "x"}]
    with served.events(job_id, "?data=whole") as events:
        assert cast(JsonObject, events.rest()[-1].data)["data"] == {"text": "x"}
    problem(served.client.get(f"/v1/jobs/{job_id}/events?data=half"), 422, "invalid_request")


@clause("J-15")
@pytest.mark.parametrize("by", ["header", "query"])
def test_j15_a_watcher_resumes_after_the_last_event_that_it_saw(
    served: ServedJobs, raw: Raw, by: str
) -> None:
    job_id = served.submit()["job_id"]
    added = [add(raw, job_id) for _ in range(5)]

    def resume(last: str) -> list[Seen]:
        query = f"?last_event_id={last}" if by == "query" else ""
        headers = {"Last-Event-ID": last} if by == "header" else {}
        with served.events(job_id, query, **headers) as events:
            return events.rest()

    ended = add(raw, job_id, "done")
    seen = resume(added[2])
    assert [event.id for event in seen] == [None, *added[3:], ended]


@clause("J-15")
def test_j15_a_client_that_has_seen_the_end_gets_204(served: ServedJobs, raw: Raw) -> None:
    """204 ends a browser's EventSource; otherwise it reconnects every few seconds."""
    job_id = served.submit()["job_id"]
    path = f"/v1/jobs/{job_id}/events"
    raw.call("HSET", f"job:{job_id}", "status", "done")
    ended = add(raw, job_id, "done")
    answer = served.client.get(path, headers={"last-event-id": ended})
    assert (answer.status_code, answer.content) == (204, b"")
    assert "content-length" not in answer.headers
    assert served.client.get(f"{path}?last_event_id={ended}").status_code == 204
    assert served.client.get(f"{path}?last_id={ended}").status_code == 204
    later = f"{int(ended.partition('-')[0]) + 1}-0"
    with served.events(job_id, Last_Event_ID=later) as events:
        assert names(events.rest()) == ["hello", "gap", "queued", "done"], "no event of this job"


@clause("J-15", "J-4")
def test_j15_a_first_connect_whose_beginning_was_evicted_gets_a_gap(
    served: ServedJobs, raw: Raw
) -> None:
    job_id = served.submit()["job_id"]
    for _ in range(3):
        add(raw, job_id)
    raw.call("XTRIM", f"job:{job_id}:events", "MAXLEN", 2)
    add(raw, job_id, "done")
    with served.events(job_id) as events:
        assert names(events.rest()) == ["hello", "gap", "log", "log", "done"]


@clause("J-15", "R-8")
def test_j15_lost_events_are_sent_as_a_gap(served: ServedJobs, raw: Raw) -> None:
    job_id = served.submit()["job_id"]
    added = [add(raw, job_id) for _ in range(5)]
    raw.call("XTRIM", f"job:{job_id}:events", "MAXLEN", "=", 2)
    ended = add(raw, job_id, "done")
    with served.events(job_id, Last_Event_ID=added[0]) as events:
        seen = events.rest()
    assert [(event.name, event.id) for event in seen] == [
        ("hello", None),
        ("gap", None),
        ("log", added[3]),
        ("log", added[4]),
        ("done", ended),
    ]
    assert seen[1].data == {"job_id": job_id, "after": added[0]}


@clause("J-15", "J-39")
def test_j15_a_stream_ends_though_a_foreign_worker_wrote_no_terminal_event(
    valkey: LocalValkey, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job ends while it is followed: its hash has the end, its events do not."""
    monkeypatch.setattr("jobwire.valkey.tracking._TICK_S", 0.1)
    monkeypatch.setattr("jobwire.systems.jobs.follow._GRACE_S", 0.3)
    with ServedJobs(valkey.url) as served:
        job_id = served.submit()["job_id"]
        with served.events(job_id) as events:
            events.until("queued")
            raw.call("HSET", f"job:{job_id}", "status", "running")
            added = add(raw, job_id, "running")
            assert events.until("running")[-1].id == added
            raw.call("HSET", f"job:{job_id}", "status", "done", "result", "1")
            assert names(events.rest()) == ["gap"]


@clause("J-15", "J-19")
@pytest.mark.parametrize("wrong", ["x", "1-2-3", "-1", "1-", "1" * 40, "%0d%0aevent: done"])
def test_j15_an_invalid_event_id_is_refused(served: ServedJobs, wrong: str) -> None:
    job_id = served.submit()["job_id"]
    path = f"/v1/jobs/{job_id}/events"
    problem(served.client.get(f"{path}?last_event_id={wrong}"), 400, "bad_event_id")
    if "%" not in wrong:
        answer = served.client.get(path, headers={"last-event-id": wrong})
        problem(answer, 400, "bad_event_id")


@clause("J-15", "O-6")
def test_j15_the_tenant_is_checked_at_every_connect(keyed: ServedJobs, raw: Raw) -> None:
    body: JsonObject = {"task": "chat", "payload": {}}
    job_id = keyed.client.post("/v1/jobs", json=body, headers=bearer("acme")).json()["job_id"]
    path = f"/v1/jobs/{job_id}/events"
    last = raw.entries(f"job:{job_id}:events")[0][0]
    for name in ("plain", "globex"):
        headers = {**bearer(name), "last-event-id": last}
        with keyed.client.stream("GET", path, headers=headers) as answer:
            assert answer.status_code == 404
            answer.read()
            problem(answer, 404, "job_not_found")
    problem(keyed.client.get(path), 401, "unauthorized")

    response = keyed.client.post(
        "/v1/stream-tokens", json={"path": path}, headers=bearer("acme-reader")
    )
    query = response.json()["url"].removeprefix(path)
    add(raw, job_id, "done")
    with keyed.events(job_id, query) as events:
        assert names(events.rest()) == ["hello", "queued", "done"]
    stolen = keyed.client.post(
        "/v1/stream-tokens", json={"path": path}, headers=bearer("globex")
    ).json()["url"]
    problem(keyed.client.get(stolen), 404, "job_not_found")


@clause("J-15")
def test_j15_an_idle_stream_sends_heartbeats(valkey: LocalValkey, raw: Raw) -> None:
    settings = GatewaySettings(heartbeat=timedelta(seconds=0.05))
    with ServedJobs(valkey.url, gateway=settings) as served:
        job_id = served.submit()["job_id"]
        with served.events(job_id) as events:
            events.until("queued")
            wait_until_sync(lambda: served.streams.open == 1, "the stream")

            def heard() -> bool:
                add(raw, job_id)
                events.until("log")
                return len(events.comments) >= 3

            wait_until_sync(heard, "heartbeats")
            assert set(events.comments) == {"heartbeat"}


@clause("J-17", "O-9")
def test_j17_a_stopping_gateway_ends_its_streams_with_a_comment(valkey: LocalValkey) -> None:
    with ServedJobs(valkey.url) as served:
        job_id = served.submit()["job_id"]
        with served.events(job_id) as events:
            events.until("queued")
            served.stop()
            assert events.rest() == []
            assert events.comments == ["this server is stopping; connect again"]


@clause("J-17")
def test_j17_a_client_that_does_not_read_is_dropped_alone(valkey: LocalValkey, raw: Raw) -> None:
    settings = GatewaySettings(stream_buffer_bytes=4096, slow_client=timedelta(seconds=6))
    with ServedJobs(valkey.url, gateway=settings) as served:
        job_id = served.submit()["job_id"]
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        slow.connect(("127.0.0.1", served.port))
        host = f"Host: 127.0.0.1:{served.port}"
        slow.sendall(f"GET /v1/jobs/{job_id}/events HTTP/1.1\r\n{host}\r\n\r\n".encode())
        with slow, served.events(job_id) as quick:
            quick.until("queued")
            wait_until_sync(lambda: served.streams.open == 2, "both of them")
            sent = 0

            def is_dropped() -> bool:
                nonlocal sent
                add(raw, job_id, "log", f'"{"x" * 50_000}"')
                sent += 1
                assert len(quick.until("log")) == 1, "the other one has every event at once"
                return served.streams.dropped > 0

            wait_until_sync(is_dropped, "the slow one to be dropped")
            add(raw, job_id, "done")
            assert names(quick.rest()) == ["done"]
            assert sent > 1


@clause("J-17")
def test_j17_event_streams_survive_a_restart_of_the_server(own_valkey: LocalValkey) -> None:
    with ServedJobs(own_valkey.url) as served:
        job_id = served.submit()["job_id"]
        with served.events(job_id) as events:
            events.until("queued")
            own_valkey.kill()
            own_valkey.start()
            with plain_client(own_valkey) as admin:
                raw = Raw(admin)
                added = [add(raw, job_id) for _ in range(3)]
                added.append(add(raw, job_id, "done"))
            assert [event.id for event in events.rest()] == added


@clause("J-17")
def test_j17_many_watchers_of_one_job_need_two_connections(served: ServedJobs, raw: Raw) -> None:
    """One for all commands, one for all events."""
    job_id = served.submit()["job_id"]
    readers = [served.events(job_id) for _ in range(60)]
    for reader in readers:
        reader.until("queued")
    clients = [client["name"] for client in raw.plain.client_list()]
    ours = sorted(name for name in clients if name.startswith(served.name))
    assert ours == [served.name, f"{served.name}-follow"]
    ended = add(raw, job_id, "done")
    for reader in readers:
        assert [event.id for event in reader.rest()] == [ended]
        reader.close()
    wait_until_sync(lambda: served.streams.open == 0, "all of them to disconnect")
    wait_until_sync(lambda: served.follower.followed == 0, "no job to be followed any more")


@clause("J-17", "R-7")
def test_j17_every_kind_of_disconnect_frees_the_stream(served: ServedJobs) -> None:
    """By a close, by a reset, before the response, with another request pipelined. The jobs never
    end, so the gateway itself closes no stream."""
    jobs = [served.submit()["job_id"] for _ in range(5)]
    opened: list[socket.socket] = []
    for number in range(120):
        peer = socket.create_connection(("127.0.0.1", served.port), timeout=30)
        opened.append(peer)
        request = f"GET /v1/jobs/{jobs[number % 5]}/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
        peer.sendall(request.encode() * (2 if number % 4 == 3 else 1))
    for peer in opened[::2]:
        seen = b""
        while b"event: queued" not in seen:
            part = peer.recv(65536)
            assert part, f"the stream ended after {seen!r}"
            seen += part
    wait_until_sync(lambda: served.follower.followed == 5, "all jobs to be followed")
    for number, peer in enumerate(opened):
        if number % 3 == 0:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
    wait_until_sync(lambda: served.streams.open == 0, "all streams to be closed")
    wait_until_sync(lambda: served.follower.followed == 0, "no job to be followed any more")
    wait_until_sync(lambda: served.under_way == 0, "no request in flight")


@clause("A-8", "J-15")
async def test_a08_a_released_run_is_taken_back_from_readers_of_the_clean_view(
    served: ServedJobs, lab: StreamsLab, raw: Raw
) -> None:
    """A release takes the delivery back: neither it nor the attempt tells the runs apart."""
    worker = await lab.worker("chat")
    job_id = served.submit()["job_id"]
    with (
        served.events(job_id) as plain,
        served.events(job_id, "?view=clean") as clean,
        served.events(job_id, "?view=clean&data=message") as page,
    ):
        (leased,) = await worker.take(1)
        await worker.report([(leased, Report("token", '{"text":"one"}', step="llm"))])
        shown = clean.until("token")[-1]
        for _ in ("hello", "queued", "running", "token"):
            assert page.next() is not None
        await worker.settle([(leased, Released())], 0)
        (leased,) = await worker.take(1)
        await worker.report([(leased, Report("token", '{"text":"two"}', step="llm"))])
        await worker.settle([(leased, Done('"two"'))], 0)
        everything = plain.rest()
        rest, messages = clean.rest(), page.rest()
    assert names(everything) == [
        *("hello", "queued", "running", "token", "queued", "running", "token", "done")
    ]
    assert names(rest) == ["queued", "running", "rollback", "token", "done"]
    assert rest[2] == Seen("rollback", {"to": "0-0"}, None)
    assert "rollback" in names(messages), "also for an EventSource"

    with served.events(job_id, "?view=clean") as later:
        assert names(later.rest()) == [
            *("hello", "queued", "running", "queued", "running", "token", "done")
        ]
    with served.events(job_id, "?view=clean", Last_Event_ID=str(shown.id)) as resumed:
        assert resumed.rest()[1:] == rest
    after = str(rest[1].id)
    with served.events(job_id, "?view=clean", Last_Event_ID=after) as resumed:
        assert resumed.rest()[1:] == rest[2:], "behind the start of the run that takes it back"
    problem(served.client.get(f"/v1/jobs/{job_id}/events?view=all"), 422, "invalid_request")


@clause("A-8", "J-39")
def test_a08_foreign_runs_are_taken_back(served: ServedJobs, raw: Raw) -> None:
    job_id = served.submit()["job_id"]
    raw.call("HSET", f"job:{job_id}", "status", "running")
    for kind in ("running", "token", "running", "log", "done"):
        add(raw, job_id, kind)
    with served.events(job_id, "?view=clean") as events:
        assert names(events.rest()) == ["hello", "queued", "running", "running", "log", "done"]
