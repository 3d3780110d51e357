"""The SSE parser and the event cursor; no network."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobwire.api import jobs as api
from jobwire.client.errors import BadAnswer
from jobwire.client.event_cursor import JobEventCursor
from jobwire.client.messages import Event
from jobwire.client.sse import Frame, Parser
from jobwire.systems.jobs import contract
from tests.support import clause

HELLO = b'event: hello\ndata: {"job_id":"j","status":"running"}\n\n'


def _event(event_id: str, kind: str, data: object = None) -> bytes:
    body = json.dumps({"type": kind, "ts": 1, "step": "s", "data": data})
    return f"id: {event_id}\nevent: {kind}\ndata: {body}\n\n".encode()


def _names(events: list[Event]) -> list[tuple[str | None, str]]:
    return [(event.id, event.type) for event in events]


WIRE = (
    b": comment\r\n\r\nevent: hello\rdata: {}\r\r\n"
    b"id: 1-0\nevent:a\ndata: one\ndata:\ndata:  two\n\n"
    b"data: \xc3\xa9\xf0\x9f\x98\x80\r\n\r\nid: 9\n\nretry: 5\nevent: b\ndata: [1]\n\nevent: cut"
)
FRAMES = [
    Frame("hello", "{}", None),
    Frame("a", "one\n\n two", "1-0"),
    Frame("message", "é😀", None),
    Frame("b", "[1]", None),
]


@given(st.lists(st.integers(0, len(WIRE)), max_size=30))
def test_chunks_may_be_cut_anywhere(places: list[int]) -> None:
    parser, found = Parser(), list[Frame]()
    edges = [0, *sorted(places), len(WIRE)]
    for start, end in itertools.pairwise(edges):
        found += parser.feed(WIRE[start:end])
    assert found == FRAMES


def test_an_event_without_an_end_is_refused() -> None:
    parser = Parser()
    line = b"data: " + b"x" * 65_536 + b"\n"
    parser.feed(line * 60)
    with pytest.raises(BadAnswer, match="MiB"):
        parser.feed(line * 10)


@clause("R-8")
def test_r8_each_event_is_returned_once_over_two_connections() -> None:
    cursor = JobEventCursor()
    cursor.connecting()
    first = cursor.feed(HELLO + _event("5-0", "queued") + _event("6-1", "progress")[:-1])
    assert _names(first) == [("5-0", "queued")], "a partial event is not returned"
    assert cursor.last_id == "5-0"
    cursor.connecting()
    # A gateway that repeats an earlier event.
    second = cursor.feed(HELLO + _event("5-0", "queued") + _event("6-1", "progress"))
    assert _names(second) == [("6-1", "progress")]
    assert not cursor.finished
    third = cursor.feed(_event("10-0", "done") + _event("11-0", "log"))
    assert _names(third) == [("10-0", "done")], "nothing follows the terminal event"
    assert cursor.finished


@clause("R-8")
def test_r8_a_gap_is_returned_and_earlier_ids_may_follow() -> None:
    cursor = JobEventCursor("90-0")
    cursor.connecting()
    gap = b'event: gap\ndata: {"job_id":"j","after":"90-0"}\n\n'
    found = cursor.feed(HELLO + gap + _event("7-0", "queued"))
    assert _names(found) == [(None, "gap"), ("7-0", "queued")]
    assert cursor.last_id == "7-0"


@clause("A-8")
def test_a08_a_rollback_is_returned_and_names_what_does_not_count() -> None:
    cursor = JobEventCursor()
    cursor.connecting()
    kinds = ("queued", "running", "token", "step_done", "log", "running")
    frames = b"".join(_event(f"{8 + n}-{n}", kind) for n, kind in enumerate(kinds))
    rollback = b'event: rollback\ndata: {"to":"11-3"}\n\n'
    *events, taken_back = cursor.feed(HELLO + frames + rollback)
    assert (taken_back.type, taken_back.id) == ("rollback", None)
    assert cursor.last_id == "13-5", "the position is that of the last event"
    gone = [event.type for event in events if taken_back.takes_back(event)]
    assert gone == ["log"]
    (all_of_it,) = cursor.feed(b'event: rollback\ndata: {"to":"0-0"}\n\n')
    gone = [event.type for event in events if all_of_it.takes_back(event)]
    assert gone == ["token", "log"], "changes of state stay"
    assert not any(event.takes_back(other) for event in events for other in events)


@clause("A-8")
def test_a08_both_sides_know_the_same_changes_of_state() -> None:
    assert api.STATE_EVENTS == contract.STATE_EVENTS


def test_an_ended_job_whose_last_event_is_trimmed_is_not_followed_forever() -> None:
    ended = b'event: hello\ndata: {"job_id":"j","status":"done"}\n\n'
    cursor = JobEventCursor()
    cursor.connecting()
    cursor.feed(ended + _event("7-0", "queued"))
    cursor.closed()
    assert not cursor.finished, "this gateway stops; the next one continues"
    cursor.connecting()
    cursor.feed(ended + b'event: gap\ndata: {"job_id":"j","after":"7-0"}\n\n')
    cursor.closed()
    assert cursor.finished


@pytest.mark.parametrize("data", [b"<html>", b"{}", b'{"type":7}', b'"queued"'])
def test_a_foreign_event_is_refused(data: bytes) -> None:
    cursor = JobEventCursor()
    with pytest.raises(BadAnswer, match="is this jobwire"):
        cursor.feed(b"event: queued\ndata: " + data + b"\n\n")


def test_ids_are_compared_as_numbers() -> None:
    cursor = JobEventCursor("9-9")
    assert _names(cursor.feed(_event("9-10", "log") + _event("10-0", "log"))) == [
        ("9-10", "log"),
        ("10-0", "log"),
    ]
    with pytest.raises(BadAnswer, match="the id 'x'"):
        cursor.feed(_event("x", "log"))
