"""Due times of job schedulers at a change of the clocks, as cron-parser 4.9 and 5.10 have them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobwire.systems.queues import scheduler_iterations
from jobwire.systems.queues.scheduler_iterations import cron_ms, process_zone
from tests.support import clause

BERLIN = "Europe/Berlin"
FORWARD = "2026-03-28T20:00Z"
"""At 01:00 UTC of the next day, 02:00 becomes 03:00."""
BACK = "2026-10-24T20:00Z"
"""At 01:00 UTC of the next day, 03:00 becomes 02:00."""


@pytest.mark.parametrize(
    ("pattern", "after", "due"),
    [
        (
            "0 * * * *",
            FORWARD,
            "28T21:00 28T22:00 28T23:00 29T00:00 29T01:00 29T02:00 29T03:00 29T04:00",
        ),
        ("0,30 2 * * *", FORWARD, "29T01:00 30T00:00 30T00:30 31T00:00"),
        ("30 2 * * *", FORWARD, "29T01:30 30T00:30 31T00:30"),
        ("0 3 * * *", FORWARD, "29T01:00 30T01:00 31T01:00"),
        (
            "0 */2 * * *",
            FORWARD,
            "28T21:00 28T23:00 29T01:00 29T02:00 29T04:00 29T06:00 29T08:00 29T10:00",
        ),
        ("0 30 2 * * *", FORWARD, "29T01:30 30T00:30 31T00:30"),
        ("0 1-3 * * *", FORWARD, "29T00:00 29T01:00 29T23:00 30T00:00 30T01:00"),
        (
            "0 * * * *",
            BACK,
            "24T21:00 24T22:00 24T23:00 25T00:00 25T01:00 25T02:00 25T03:00 25T04:00",
        ),
        ("0,30 2 * * *", BACK, "25T00:00 25T00:30 26T01:00 26T01:30 27T01:00"),
        ("30 2 * * *", BACK, "25T00:30 26T01:30 27T01:30"),
        ("0 3 * * *", BACK, "25T02:00 26T02:00 27T02:00"),
        (
            "0 */2 * * *",
            BACK,
            "24T22:00 25T00:00 25T03:00 25T05:00 25T07:00 25T09:00 25T11:00 25T13:00",
        ),
        ("0 30 2 * * *", BACK, "25T00:30 26T01:30 27T01:30"),
        ("0 1-3 * * *", BACK, "24T23:00 25T00:00 25T02:00 26T00:00 26T01:00"),
    ],
)
def test_scheduler_is_due_when_cron_parser_has_it_due(pattern: str, after: str, due: str) -> None:
    moment_ms = int(datetime.fromisoformat(after).timestamp() * 1000)
    found: list[str] = []
    for _ in due.split():
        moment_ms = cron_ms(pattern, BERLIN, moment_ms)
        found.append(f"{datetime.fromtimestamp(moment_ms / 1000, UTC):%dT%H:%M}")
    assert found == due.split()


@clause("B-8")
@pytest.mark.parametrize(
    ("value", "zone"),
    [
        ("Asia/Kathmandu", "Asia/Kathmandu"),
        (":Europe/Berlin", "Europe/Berlin"),
        ("posix/Europe/Berlin", "Europe/Berlin"),
        ("", "UTC"),
        ("CET-1CEST,M3.5.0,M10.5.0/3", ""),
        ("/etc/passwd", ""),
    ],
)
def test_b8_the_zone_of_this_process_is_that_of_node(
    monkeypatch: pytest.MonkeyPatch, value: str, zone: str
) -> None:
    monkeypatch.setenv("TZ", value)
    assert process_zone() == zone


@clause("B-8")
def test_b8_the_zone_of_this_process_is_that_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TZ", raising=False)
    machine = tmp_path / "localtime"
    monkeypatch.setattr(scheduler_iterations, "_MACHINE_ZONE", machine)
    assert process_zone() == "UTC", "a machine without the file"
    zone = tmp_path / "zoneinfo" / "Asia" / "Kathmandu"
    zone.parent.mkdir(parents=True)
    zone.touch()
    machine.symlink_to(zone)
    assert process_zone() == "Asia/Kathmandu"
    machine.unlink()
    machine.touch()
    assert process_zone() == "", "a copy of the file has no name"
