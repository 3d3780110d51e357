"""The content of the terminal at several widths; no server."""

from __future__ import annotations

import io

import pytest
from msgspec.structs import replace
from rich.console import Console

from jobwire.api.fleet import (
    Minute,
    Now,
    Quantiles,
    ServedQueueInfo,
    Stats,
    UnavailableSystem,
    WorkerInfo,
)
from jobwire.api.job_queues import JobQueueInfo
from jobwire.api.overview import Overview, SystemRow
from jobwire.cli import live, output, top
from jobwire.cli.event_view import EventView
from jobwire.cli.live import Screen
from jobwire.cli.main import main
from jobwire.client import Event, JobLine
from jobwire.job.messages import Json
from jobwire.settings import Settings, sections
from tests.support import clause

JOB_ID = "3f2a8b1c-0000-0000-0000-00000000cafe"
NO_TIMES = Quantiles()
NO_JOBS = Minute(0, 0, 0, 0, 0, 0, NO_TIMES, NO_TIMES)
ROW = SystemRow(
    system="jobs",
    name="jobs",
    wire="streams",
    waiting=0,
    delayed=0,
    running=2,
    oldest_waiting_ms=None,
    workers=1,
    slots=None,
    heartbeat_age_ms=None,
    submitted=None,
    done=0,
    error=0,
    canceled=0,
    ended_by_minute=[],
    failed_by_minute=[],
    duration_ms=NO_TIMES,
)


def _drawn(thing: object, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(thing)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@clause("O-2")
@pytest.mark.parametrize("width", [25, 30, 40, 60, 80, 120])
@pytest.mark.parametrize("message", ["", "writing", "a long word about what is going on " * 4])
@pytest.mark.parametrize("percent", [None, 46])
def test_o2_the_status_line_fits_every_width(
    width: int, message: str, percent: float | None
) -> None:
    """State, percent and time are always shown."""
    view = EventView()
    view.take(Event(type="running", data={}))
    view.take(Event(type="progress", data={"percent": percent, "message": message}))
    line = live.status_line(view, "a-task-with-a-name", JOB_ID, 1.4, width)
    (shown,) = _drawn(line, width)
    assert len(shown) <= width
    assert shown.startswith("◐ running")
    assert shown.rstrip().endswith("1.4 s")
    assert ("46 %" in shown) == (percent is not None)
    assert ("a-task" in shown) or width < 60 or len(message) > 10
    assert ("3f2a8b…cafe" in shown) or width < 120 or len(message) > 10


@clause("O-2")
@pytest.mark.parametrize("width", [40, 80])
def test_o2_top_has_one_line_per_job_at_every_width(width: int) -> None:
    hour = replace(NO_JOBS, done=2)
    stats = Stats(Now(0, 0, 1, None), hour, [hour])
    serves = [ServedQueueInfo("streams", "jobs", []), *[ServedQueueInfo("bullmq", "films", [])] * 2]
    worker = WorkerInfo(
        name="jobwire-12-ab",
        system="jobs",
        wire="streams",
        ours=True,
        slots=10,
        heartbeat_age_ms=1500,
        serves=serves,
    )
    job = JobLine(job_id=JOB_ID, task="count", status="running", created_ts=0, updated_ts=0)
    lines = _drawn(top.render(stats, [worker], [job] * 3, 600_000, width), width)
    jobs = [line for line in lines if line.startswith("◐ running  count")]
    assert len(jobs) == 3
    assert all("10 min" in line for line in jobs)
    assert max(map(len, lines)) <= width
    assert any("streams: jobs, bullmq: films +1" in line for line in lines) or width < 80


@clause("O-2", "O-11")
@pytest.mark.parametrize("width", [40, 100])
def test_o2_top_has_one_line_per_system_and_names_those_that_are_down(width: int) -> None:
    rows = [
        ROW,
        replace(
            ROW,
            system="queues",
            name="[/mail]",
            wire="bullmq",
            workers=0,
            running=0,
            waiting=3,
            error=4,
        ),
    ]
    overview = Overview(
        systems=rows, unavailable=[UnavailableSystem("images", "no answer")], left_out=7
    )
    stats = Stats(Now(0, 0, 2, None), replace(NO_JOBS, submitted=None), [])
    lines = _drawn(top.render(stats, [], [], 600_000, width, overview), width)
    assert max(map(len, lines)) <= width
    (mail,) = [line for line in lines if line.startswith("[/ma")]
    assert width < 100 or mail.split() == [
        *("[/mail]", "bullmq", "3", "waiting", "0", "running", "no", "worker", "4", "failed")
    ]
    assert "images: no answer" in lines
    assert "and 7 further queues" in lines
    # Every queue is named in which jobs wait and that no worker reads.
    queues = [
        JobQueueInfo(
            name=name,
            paused=False,
            waiting=1,
            running=0,
            oldest_waiting_ms=540_000,
            workers=workers,
        )
        for name, workers in (("default", 2), ("reports", 0))
    ]
    alone = Overview(systems=[replace(ROW, queues=queues)], unavailable=[])
    lines = _drawn(top.render(stats, [], [], 600_000, width, alone), width)
    assert lines[1] == "queue reports: no worker, 1 waiting, since 9 min"[:width].strip()
    (reports,) = [line for line in lines[2:] if "repo" in line]
    assert width < 100 or reports.rstrip().endswith("no worker")


def test_text_is_wrapped_at_words() -> None:
    console = Console(file=io.StringIO(), width=20, force_terminal=False)
    view = EventView()
    with Screen(console, "say", JOB_ID) as screen:
        for word in ("hello", " you", " out", " there", " in", " the", " wide", " world"):
            screen.show(view, view.take(Event(type="token", data={"text": word})))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines() == ["hello you out there", "in the wide world"]


def _notes(*events: Event) -> list[str]:
    view = EventView()
    pieces = [piece for event in events for piece in view.take(event)]
    return [piece.text for piece in pieces if piece.kind == "note"]


@clause("O-2")
def test_o2_a_job_that_starts_again_or_waits_has_a_note() -> None:
    first = Event(type="running", data={"attempt": 1})
    second = Event(type="running", data={"attempt": 2})
    failed: Json = {"attempt": 1, "delay_ms": 500, "error": {"message": "no"}}
    retrying = Event(type="retrying", data=failed)
    assert _notes(first, retrying, second) == ["attempt 1 failed: no; retry in 0.5 s"]
    token = Event(type="token", data={"text": "The sky"})
    assert _notes(first, token, first, token) == ["starts again: its worker has stopped"]
    waiting = [Event(type="waiting", data={"before": before}) for before in (1, 3)]
    released = [Event(type="queued"), first, Event(type="rollback", data={"to": "0-0"})]
    assert _notes(first, token, *released) == ["starts again: the text so far does not count"]
    to_step = Event(type="rollback", data={"to": "5-0"})
    assert _notes(first, token, Event(type="queued"), first, to_step) == [
        "starts again: the text since its last step does not count"
    ]
    assert _notes(first, *released) == [], "nothing was printed"
    assert _notes(first, *waiting) == [
        "waiting for the model: 1 job is served first",
        "waiting for the model: 3 jobs are served first",
    ]


@clause("O-3")
@pytest.mark.parametrize("width", ["60", "80", "160"])
def test_o3_config_fits_every_width(
    width: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    monkeypatch.setattr(output, "wants_json", bool)
    assert main(["config"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= int(width)
    entries = [line for line in lines if line and not line.startswith(" ")]
    settings = [leaf.path for section in sections(Settings) for leaf in section.leaves]
    assert [line.split()[0].rstrip(":") for line in entries if line.split()[0] != "setting"] == (
        settings
    )
