"""Due times of cron entries: fields, time zones, clock changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobwire.cron import BadCron, Cron, parse
from tests.support import clause

BERLIN = "Europe/Berlin"


def _ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def _following(cron: Cron, after: str, count: int) -> list[str]:
    zone = UTC if cron.tz == "UTC" else ZoneInfo(cron.tz)
    moment, found = _ms(after), list[str]()
    for _ in range(count):
        moment = cron.next_ms(moment)
        found.append(datetime.fromtimestamp(moment / 1000, zone).isoformat(timespec="minutes"))
    return found


@pytest.mark.parametrize(
    ("entry", "after", "due"),
    [
        ("*/5 * * * *", "2026-11-15T10:02+00:00", ["2026-11-15T10:05+00:00"]),
        ("*/5 * * * *", "2026-11-15T10:05+00:00", ["2026-11-15T10:10+00:00"]),
        ("0 0 1 jan *", "2026-11-15T10:02+00:00", ["2027-01-01T00:00+00:00"]),
        ("30 8-10/2 * * mon-fri", "2026-11-13T08:30+00:00", ["2026-11-13T10:30+00:00"]),
        ("0 12 * * 7", "2026-11-14T00:00+00:00", ["2026-11-15T12:00+00:00"]),
        ("0 12 * * */2", "2026-11-15T12:00+00:00", ["2026-11-17T12:00+00:00"]),
        ("5/20 * * * *", "2026-11-15T10:06+00:00", ["2026-11-15T10:25+00:00"]),
        ("@hourly", "2026-11-15T10:02+00:00", ["2026-11-15T11:00+00:00"]),
        ("0 0 29 2 *", "2096-03-01T00:00+00:00", ["2104-02-29T00:00+00:00"]),
    ],
)
def test_the_next_due_time(entry: str, after: str, due: list[str]) -> None:
    assert _following(parse(entry), after, len(due)) == due


def test_a_sixth_field_in_front_is_the_second() -> None:
    cron = parse("*/20 30 2 * * *", BERLIN)
    due_ms = cron.next_ms(_ms("2026-11-15T02:30:05+01:00"))
    assert due_ms == _ms("2026-11-15T02:30:20+01:00")
    assert cron.last_ms(due_ms + 999) == due_ms


def test_day_and_weekday_together_mean_either() -> None:
    due = _following(parse("0 9 15 * mon"), "2026-11-14T00:00+00:00", 3)
    assert due == ["2026-11-15T09:00+00:00", "2026-11-16T09:00+00:00", "2026-11-23T09:00+00:00"]


@clause("J-52")
def test_a_time_that_does_not_exist_is_due_at_the_clock_change() -> None:
    due = _following(parse("30 2 * * *", BERLIN), "2026-03-28T03:00+01:00", 2)
    assert due == ["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"]


@clause("J-52")
def test_a_time_that_occurs_twice_is_due_once() -> None:
    due = _following(parse("30 2 * * *", BERLIN), "2026-10-25T00:00+02:00", 2)
    assert due == ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"]


@clause("J-52")
def test_every_half_hour_follows_the_elapsed_time() -> None:
    back = _following(parse("*/30 * * * *", BERLIN), "2026-10-25T02:15+02:00", 4)
    assert back == [
        f"2026-10-25T0{time}:00" for time in ("2:30+02", "2:00+01", "2:30+01", "3:00+01")
    ]
    forward = _following(parse("*/30 * * * *", BERLIN), "2026-03-29T01:15+01:00", 3)
    assert forward == [f"2026-03-29T0{time}:00" for time in ("1:30+01", "3:00+02", "3:30+02")]


def test_a_clock_change_of_half_an_hour() -> None:
    """Lord Howe Island puts its clocks back by thirty minutes."""
    due = _following(parse("*/15 * * * *", "Australia/Lord_Howe"), "2026-04-05T01:45+11:00", 3)
    assert due == ["2026-04-05T01:30+10:30", "2026-04-05T01:45+10:30", "2026-04-05T02:00+10:30"]


def test_no_run_is_skipped_on_the_day_of_a_clock_change_of_half_an_hour() -> None:
    cron = parse("0 */6 * * 0", "Australia/Lord_Howe")
    due = _following(cron, "2025-04-05T23:00+11:00", 3)
    assert due == ["2025-04-06T00:00+11:00", "2025-04-06T06:00+10:30", "2025-04-06T12:00+10:30"]


MOMENTS = st.integers(_ms("2025-01-01T00:00+00:00") // 1000, _ms("2028-01-01T00:00+00:00") // 1000)
_FIELDS = st.tuples(
    st.sampled_from(["*", "0", "*/7", "5,35", "59"]),
    st.sampled_from(["*", "2", "*/6", "1-3", "23"]),
    st.sampled_from(["*", "1", "31", "*/10", "28-31"]),
    st.sampled_from(["*", "3", "10", "mar,oct"]),
    st.sampled_from(["*", "0", "sun", "1-5"]),
)


@given(
    fields=_FIELDS,
    # Two of them set their clocks forward at midnight, one by half an hour.
    zone=st.sampled_from(
        ["UTC", BERLIN, "America/Santiago", "Asia/Beirut", "Australia/Lord_Howe", "Asia/Kathmandu"]
    ),
    start=MOMENTS,
)
@settings(max_examples=150, deadline=None)
def test_last_ms_agrees_with_next_ms(fields: tuple[str, ...], zone: str, start: int) -> None:
    cron = parse(" ".join(fields), zone)
    start_ms = start * 1000
    due_ms = cron.next_ms(start_ms)
    following_ms = cron.next_ms(due_ms)
    assert start_ms < due_ms < following_ms
    assert cron.last_ms(due_ms) == due_ms
    assert cron.last_ms(following_ms - 1) == due_ms
    assert cron.last_ms(due_ms - 1) <= start_ms


@given(
    minute=st.sampled_from(["*", "*/7", "3,50"]),
    start=MOMENTS,
)
@settings(max_examples=30, deadline=None)
def test_no_due_time_of_an_hourly_entry_is_skipped(minute: str, start: int) -> None:
    """Compared with a check of every minute."""
    cron = parse(f"{minute} * * * *", BERLIN)
    wanted = {"*": range(60), "*/7": range(0, 60, 7), "3,50": (3, 50)}[minute]
    moment = datetime.fromtimestamp(start - start % 60 + 60, UTC)
    while moment.astimezone(ZoneInfo(BERLIN)).minute not in wanted:
        moment += timedelta(minutes=1)
    assert cron.next_ms(start * 1000) == int(moment.timestamp() * 1000)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("* * * *", "has 4 fields, must have five"),
        ("60 * * * *", "minute '60' must lie between 0 and 59"),
        ("* 24 * * *", "hour '24'"),
        ("* * 0 * *", "day '0'"),
        ("* * * 13 *", "month '13'"),
        ("* * * * 8", "weekday '8'"),
        ("*/0 * * * *", "step '0'"),
        ("5-1 * * * *", "goes backwards"),
        ("1,, * * * *", "minute ''"),
        ("٣ * * * *", "minute '٣'"),
        ("0 0 30 2 *", "there is no such day"),
        ("9" * 5000 + " * * * *", "has 5008 characters, must have at most 1000"),
    ],
)
def test_an_invalid_entry_gets_a_one_line_error(entry: str, says: str) -> None:
    with pytest.raises(BadCron, match=f"^cron .*{says}") as raised:
        parse(entry)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("tz", ["Europe/Berlim", "", "../etc/passwd", "/etc/passwd"])
def test_an_unknown_time_zone_gets_an_error(tz: str) -> None:
    with pytest.raises(BadCron, match="time zone"):
        parse("* * * * *", tz)
