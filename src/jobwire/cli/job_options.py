"""The options of a new job as `jobwire submit` takes them: durations and times as text."""

import time
from datetime import datetime, timedelta

from jobwire.api.jobs import MAX_TTL_S
from jobwire.cli.exits import CliExit, Exit
from jobwire.client.messages import JobOptions


def job_options(
    *,
    delay: str | None,
    at: str | None,
    max_attempts: int | None,
    ttl: str | None,
    deadline: str | None = None,
    key: str | None,
    queue: str | None,
) -> JobOptions:
    """Return the options that are given; CliExit for a text that is none."""
    if delay is not None and at is not None:
        raise CliExit("--delay and --at exclude each other", Exit.USAGE)
    wanted = JobOptions()
    if delay is not None:
        wanted["delay_s"] = seconds("--delay", delay)
    if at is not None:
        wanted["delay_s"] = max(0.0, _moment(at).timestamp() - time.time())
    if max_attempts is not None:
        wanted["max_attempts"] = max_attempts
    if ttl is not None:
        wanted["ttl_s"] = round(seconds("--ttl", ttl))
        if wanted["ttl_s"] < 1:
            raise CliExit(f"--ttl: {ttl!r} must be at least one second", Exit.USAGE)
        if wanted["ttl_s"] > MAX_TTL_S:
            raise CliExit(f"--ttl: {ttl!r} is longer than 30 days", Exit.USAGE)
    if deadline is not None:
        wanted["deadline_s"] = seconds("--deadline", deadline)
    if key is not None:
        wanted |= JobOptions(idempotency_key=key)
    if queue is not None:
        wanted["queue"] = queue
    return wanted


def seconds(option: str, text: str) -> float:
    """The seconds of a duration as a person writes it."""
    from jobwire.settings.values import BadValue, duration

    try:
        return duration(text).total_seconds()
    except BadValue:
        line = f"{option}: {text!r} is not a duration; write 90, 5m or 1h30m"
        raise CliExit(line, Exit.USAGE) from None


def _moment(text: str) -> datetime:
    """A time of today (or tomorrow, if it is past), or a date with a time; local without offset."""
    now = datetime.now().astimezone()
    try:
        if "-" not in text and "T" not in text:
            clock = datetime.strptime(text, "%H:%M:%S" if text.count(":") == 2 else "%H:%M")  # noqa: DTZ007 - a time of day
            moment = now.replace(
                hour=clock.hour, minute=clock.minute, second=clock.second, microsecond=0
            )
            return moment if moment > now else moment + timedelta(days=1)
        moment = datetime.fromisoformat(text)
    except ValueError:
        line = f"--at: {text!r} is not a time; write 18:30 or 2030-01-31T18:30+01:00"
        raise CliExit(line, Exit.USAGE) from None
    moment = moment if moment.tzinfo else moment.astimezone()
    if moment < now:
        raise CliExit(f"--at: {text} is in the past; it is {now:%Y-%m-%dT%H:%M%z}", Exit.USAGE)
    return moment
