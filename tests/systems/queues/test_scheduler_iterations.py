"""Due times of job schedulers at a change of the clocks, as cron-parser 4.9 and 5.10 have them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from jobwire.systems.queues.scheduler_iterations import cron_ms

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
