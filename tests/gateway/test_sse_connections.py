"""Event streams: framing, resume, backpressure, limits."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from http.client import IncompleteRead

import pytest

from jobwire.gateway.settings import GatewaySettings
from jobwire.gateway.sse import Comment, SseEvent
from tests.gateway.events import EventsFeature, Reader, Seen, on_loop
from tests.gateway.server import Serving, bearer, key
from tests.support import clause, wait_until_sync

PATH = "/channels/a/events"


@pytest.fixture
def events_feature() -> EventsFeature:
    return EventsFeature()


@pytest.fixture
def served(events_feature: EventsFeature) -> Iterator[Serving]:
    settings = GatewaySettings(heartbeat=timedelta(milliseconds=200))
    with Serving(settings, events_feature) as served:
        yield served


def watch(
    served: Serving, events_feature: EventsFeature, path: str = PATH, **headers: str
) -> Reader:
    """Open a stream and read its first event."""
    reader = Reader.open(served, path, **headers)
    assert reader.answer.status == 200
    assert reader.next() == Seen("hello", '{"channel":1}', None)
    wait_until_sync(lambda: events_feature.watchers.get(path.split("/")[2]), "the watcher")
    return reader


@clause("O-9")
def test_hello_first_then_events_in_order_then_the_end(
    served: Serving, events_feature: EventsFeature
) -> None:
    with watch(served, events_feature) as reader:
        assert reader.answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        events_feature.push(
            served, "a", *(SseEvent("token", b'{"n":%d}' % n, f"1-{n}") for n in range(100))
        )
        events_feature.end(served, "a")
        assert reader.rest() == [Seen("token", f'{{"n":{n}}}', f"1-{n}") for n in range(100)]
    wait_until_sync(lambda: events_feature.detached == 1, "the feeder to be detached")


@clause("O-9")
def test_an_idle_stream_has_a_heartbeat_without_an_id(
    served: Serving, events_feature: EventsFeature
) -> None:
    with watch(served, events_feature) as reader:
        assert reader.block() == b": heartbeat"
        assert reader.block() == b": heartbeat"


@clause("O-9")
@pytest.mark.parametrize("way", ["header", "query"])
def test_a_stream_resumes_after_its_last_event(
    served: Serving, events_feature: EventsFeature, way: str
) -> None:
    if way == "header":
        reader = watch(served, events_feature, last_event_id="1-7")
    else:
        reader = Reader.open(served, f"{PATH}?last_event_id=1-7")
        assert reader.next() is not None
    reader.close()
    assert events_feature.opened[-1] == ("default", "1-7")


@clause("O-9")
def test_a_gap_names_the_last_event_and_has_no_id(
    served: Serving, events_feature: EventsFeature
) -> None:
    with watch(served, events_feature, last_event_id="1-7") as reader:
        (watcher,) = events_feature.watchers["a"]
        on_loop(served, watcher.send_gap)
        events_feature.push(served, "a", SseEvent("token", b"1", "2-1"))
        on_loop(served, watcher.send_gap)
        events_feature.end(served, "a")
        assert reader.rest() == [
            Seen("gap", '{"channel":"a","after":"1-7"}', None),
            Seen("token", "1", "2-1"),
            Seen("gap", '{"channel":"a","after":"2-1"}', None),
        ]


@clause("O-9")
def test_o09_a_stream_without_hello_and_gap_has_neither(
    served: Serving, events_feature: EventsFeature
) -> None:
    """`/channels/plain/events` has no `gap`, `/count` no `hello`."""
    with Reader.open(served, "/channels/plain/events") as reader:
        assert reader.next() == Seen("hello", '{"channel":1}', None)
        (watcher,) = events_feature.watchers["plain"]
        assert on_loop(served, watcher.send_gap)
        events_feature.push(served, "plain", SseEvent("token", b"1", "2-1"))
        events_feature.end(served, "plain")
        assert reader.rest() == [Seen("token", "1", "2-1")]
        assert not on_loop(served, watcher.send_gap)
    with Reader.open(served, "/count/2") as reader:
        assert "hello" not in {event.name for event in reader.rest()}


@clause("O-9")
@pytest.mark.parametrize("bad", ["a\x01b", "x" * 200, "ü"])
def test_an_invalid_event_id_is_400(served: Serving, bad: str) -> None:
    answer = served.client.get(PATH, params={"last_event_id": bad})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_event_id")


@clause("O-9")
@pytest.mark.parametrize(
    ("name", "data", "event_id"),
    [
        ("log", b"one\nevent: done\ndata: forged\n\nevent: done\ndata: x\n\n", "1-1"),
        ("log", b"a\r\n\r\nevent: done\r\ndata: forged\r\n\r\n", "1-1"),
        ("log", b"a\rb\r\rdata: forged\r\r", "1-1"),
        ("log\nevent: done\ndata: forged\n\n", b"a", "1-1"),
        ("log\rdata: forged\r\r", b"a", "1-1"),
        ("log", b"a", "1-1\ndata: forged\n\n"),
        ("log", b"a", "1-1\r\rdata: forged\r\r\x00"),
    ],
)
def test_line_ends_in_an_event_cannot_forge_another(
    served: Serving, events_feature: EventsFeature, name: str, data: bytes, event_id: str
) -> None:
    with watch(served, events_feature) as reader:
        events_feature.push(served, "a", SseEvent(name, data, event_id), SseEvent("end", b"1"))
        events_feature.end(served, "a")
        first, end = reader.rest()
        assert first.name.startswith("log")
        assert first.name != "done"
        assert end == Seen("end", "1", None)
        assert first.id is not None
        assert first.id.startswith("1-1")


@clause("O-9")
def test_data_of_several_lines_arrives_unchanged(
    served: Serving, events_feature: EventsFeature
) -> None:
    with watch(served, events_feature) as reader:
        events_feature.push(
            served, "a", SseEvent("log", b"one\ntwo\r\nthree"), SseEvent("log", "ü\u2028 ".encode())
        )
        events_feature.end(served, "a")
        assert [event.data for event in reader.rest()] == ["one\ntwo\nthree", "ü\u2028 "]


@clause("O-9")
def test_a_comment_cannot_become_an_event(served: Serving, events_feature: EventsFeature) -> None:
    with watch(served, events_feature) as reader:
        events_feature.push(served, "a", Comment("x\n\nevent: done\ndata: forged\n\n"))
        events_feature.end(served, "a")
        assert reader.rest() == []


@clause("O-9")
def test_the_feeder_is_detached_when_the_client_disconnects(
    served: Serving, events_feature: EventsFeature
) -> None:
    reader = watch(served, events_feature)
    reader.close()
    wait_until_sync(lambda: events_feature.detached == 1, "the feeder to be detached")
    assert served.streams.open == 0


@clause("O-9")
def test_a_full_buffer_refuses_events_until_it_is_writable(events_feature: EventsFeature) -> None:
    """A refused feeder resumes after `last_id`; no event is lost or repeated."""
    settings = GatewaySettings(stream_buffer_bytes=10_000)
    with Serving(settings, events_feature) as served, watch(served, events_feature) as reader:
        watcher = events_feature.watchers["a"][0]
        events = [SseEvent("token", b"%d" % n + b" " * 50_000, str(n)) for n in range(200)]

        def fill() -> None:
            begin = int(watcher.last_id) + 1 if watcher.last_id else 0
            for event in events[begin:]:
                if not watcher.push(event):
                    return

        on_loop(served, fill)
        assert watcher.last_id != "199"
        seen: list[str | None] = []
        while len(seen) < 200:
            on_loop(served, fill)
            got = reader.next()
            assert got is not None
            seen.append(got.id)
        assert seen == [str(n) for n in range(200)]


@clause("O-9")
def test_a_client_that_does_not_read_is_dropped_alone(
    events_feature: EventsFeature,
) -> None:
    settings = GatewaySettings(
        stream_buffer_bytes=50_000,
        slow_client=timedelta(seconds=1),
        heartbeat=timedelta(milliseconds=500),
    )
    with (
        Serving(settings, events_feature) as served,
        watch(served, events_feature) as slow,
        watch(served, events_feature, "/channels/b/events") as quick,
    ):
        big = SseEvent("token", b"x" * 40_000)

        def filled() -> bool:
            return not all(events_feature.push(served, "a", big))

        wait_until_sync(filled, "the buffer of the slow client to be full")
        events_feature.push(served, "b", SseEvent("token", b"1", "1"))
        assert quick.next() == Seen("token", "1", "1")
        wait_until_sync(lambda: served.streams.dropped == 1, "the slow client to be dropped")
        wait_until_sync(lambda: events_feature.detached == 1, "its feeder to be detached")
        events_feature.push(served, "b", SseEvent("token", b"2", "2"))
        assert quick.next() == Seen("token", "2", "2")
        assert served.streams.open == 1
        with pytest.raises((ConnectionError, IncompleteRead)):
            slow.rest()


@clause("O-9")
def test_a_stop_ends_each_stream_with_a_comment(
    served: Serving, events_feature: EventsFeature
) -> None:
    with (
        watch(served, events_feature) as one,
        watch(served, events_feature, "/channels/b/events") as two,
    ):
        events_feature.push(served, "a", SseEvent("token", b"1", "1"))
        served.stop()
        assert one.rest() == [Seen("token", "1", "1")]
        assert two.rest() == []
        assert "this server is stopping; connect again" in one.comments
        assert "this server is stopping; connect again" in two.comments


@clause("G-29")
def test_g29_a_stop_spreads_the_reconnects(served: Serving) -> None:
    readers = [Reader.open(served, PATH) for _ in range(12)]
    served.stop()
    for reader in readers:
        reader.rest()
        reader.close()
    waits_ms = [reader.retry_ms for reader in readers if reader.retry_ms]
    assert len(waits_ms) == len(readers), "each stream ends with it"
    assert all(1000 <= wait_ms <= 10_000 for wait_ms in waits_ms)
    assert len(set(waits_ms)) > 1


@clause("O-9")
def test_a_feeder_may_be_an_async_iterator(served: Serving) -> None:
    with Reader.open(served, "/count/500") as reader:
        assert [event.id for event in reader.rest()] == [str(n) for n in range(500)]
        assert "counting" in reader.comments


@clause("O-9")
def test_a_stop_ends_an_iterators_stream_too(served: Serving) -> None:
    with Reader.open(served, "/count/1000000") as reader:
        assert reader.next() is not None
        served.stop()
        reader.rest()


@clause("O-9")
def test_an_iterator_ends_when_its_client_disconnects(served: Serving) -> None:
    reader = Reader.open(served, "/count/1000000")
    assert reader.next() is not None
    reader.close()
    wait_until_sync(lambda: served.streams.open == 0, "the stream to end")


@clause("O-6")
def test_open_streams_of_a_key_are_limited() -> None:
    events_feature = EventsFeature()
    settings = GatewaySettings(keys=(key("one", "read"), key("two", "read")), streams_per_key=2)
    with Serving(settings, events_feature) as served:
        readers = [watch(served, events_feature, **bearer("one")) for _ in range(2)]
        refused = served.client.get(PATH, headers=bearer("one"))
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_streams")
        watch(served, events_feature, **bearer("two")).close()
        readers[0].close()
        wait_until_sync(lambda: events_feature.detached == 2, "a free slot")
        watch(served, events_feature, **bearer("one")).close()
        readers[1].close()
