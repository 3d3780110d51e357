"""Jobs as text: states as shape, word and colour; durations and ids in short form. Pure."""

import time
from typing import Final, NamedTuple

from jobwire.cli import sanitize
from jobwire.client import Job, JobLine, StepInfo
from jobwire.job.messages import Json


class StatusStyle(NamedTuple):
    """How a state is shown: not by colour alone."""

    shape: str
    word: str
    colour: str


_STATUS_STYLE: Final = {
    "queued": StatusStyle("○", "waiting", "bright_black"),
    "running": StatusStyle("◐", "running", "blue"),
    "done": StatusStyle("●", "done", "green"),
    "error": StatusStyle("✕", "failed", "red"),
    "canceled": StatusStyle("–", "canceled", "bright_black"),
}


def style_of(status: str) -> StatusStyle:
    """The style of a state; a newer gateway may have states that are unknown here."""
    known = _STATUS_STYLE.get(status)
    return known or StatusStyle("?", sanitize.line(status), "bright_black")


def short_id(job_id: str) -> str:
    """Shorten an id in the middle; JSON output has the whole id."""
    safe = sanitize.line(job_id)
    return safe if len(safe) <= 12 else f"{safe[:6]}…{safe[-4:]}"


def duration(ms: float) -> str:
    """Format a duration with two units at most."""
    if ms < 1000:
        return f"{max(0, round(ms))} ms"
    seconds = ms / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} d"


def unread_queue(name: str, waiting: int, oldest_ms: int | None) -> str:
    """What is said of a queue that no worker reads."""
    since = "" if oldest_ms is None else f", since {duration(oldest_ms)}"
    return sanitize.line(f"queue {name}: no worker, {waiting} waiting{since}")


def waits_for(job: JobLine) -> str:
    """What a suspended job waits for; empty for any other job."""
    wait = job.waits_for
    if not wait:
        return ""
    until = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wait.until / 1000))
    what = f"{wait.kind} until {until}" if wait.kind == "sleep" else f"{wait.kind} {wait.name}"
    return f"{what} and {wait.more} more" if wait.more else what


def step_time(step: StepInfo) -> str:
    """How long a recorded step took."""
    return "started, no result" if step.ms is None else duration(step.ms)


def ending(job: Job) -> str:
    """Describe an ended job in one line: error, waiting time, run time."""
    parts: list[str] = []
    if job.started_ts is not None:
        parts.append(f"waited {duration(job.started_ts - job.created_ts)}")
        parts.append(f"ran {duration(job.updated_ts - job.started_ts)}")
    if job.attempt > 1:
        parts.append(f"attempt {job.attempt}")
    line = ", ".join(parts)
    if job.status == "error":
        return f"{_reason(job)}  {line}".rstrip()
    return line


def _reason(job: Job) -> str:
    """Why it failed: the exception if the caller may see it, else the public message."""
    failure = job.failure
    message = failure.message or "no error message"
    if job.exception_type and failure.code == "handler_error":
        message = f"{job.exception_type}: {job.exception_message or ''}".rstrip(": ")
    return sanitize.line(f"{failure.code}: {message}" if failure.code else message)


def traceback(job: Job) -> str:
    """The traceback of the latest failed attempt with its line breaks; empty for none."""
    if not job.traceback or job.status == "done":
        return ""
    return "\n".join(sanitize.line(line) for line in job.traceback.rstrip().split("\n"))


def progress(line: JobLine) -> str:
    """Format the reported progress of a running job."""
    reported: Json = line.progress
    if line.status != "running" or not isinstance(reported, dict):
        return ""
    percent, message = reported.get("percent"), reported.get("message")
    shown = f"{percent:g} %" if isinstance(percent, int | float) else ""
    return f"{shown} {sanitize.line(message) if isinstance(message, str) else ''}".strip()
