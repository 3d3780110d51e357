"""When a job scheduler's next iteration is due, and with which options it is made. Pure.

The consumer asks `next_iteration` for each job that a scheduler made, before the job is run.
Intervals are computed by the script, from the scheduler's own record.
"""

from typing import Final, NamedTuple

from jobwire.job import cron
from jobwire.job.messages import Json
from jobwire.wires.bullmq.codec import Job
from jobwire.wires.bullmq.contract import Opt

_SECONDS: Final = frozenset("0123456789*,-/")


class Iteration(NamedTuple):
    """`due_ms` is 0 where the script computes it."""

    due_ms: int
    opts: dict[str, Json]


class Unreadable(Exception):
    """A scheduler's pattern or dates make no sense here; says why."""


def next_iteration(job: Job, now_ms: int) -> Iteration | None:
    """None where the scheduler has come to its end; Unreadable where it cannot be understood."""
    found = job.opts.get(Opt.REPEAT)
    if not isinstance(found, dict):
        return None
    repeat = dict(found)
    count = _number(repeat.get("count")) + 1
    limit, end_ms = repeat.get("limit"), _number(repeat.get("endDate"))
    if isinstance(limit, int | float) and count > limit:
        return None
    if end_ms and now_ms > end_ms:
        return None
    opts: dict[str, Json] = {Opt.ATTEMPTS: 0, **job.opts}
    previous_ms = _number(opts.get(Opt.PREVIOUS_MS))
    due_ms = 0
    if not repeat.get("every"):
        after_ms = max(now_ms, previous_ms, _number(repeat.get("startDate")))
        pattern, tz = str(repeat.get("pattern", "")), str(repeat.get("tz") or "UTC")
        try:
            due_ms = cron_ms(pattern, tz, after_ms)
        except (ValueError, OverflowError, OSError) as error:
            raise Unreadable(str(error)) from error
        opts[Opt.PREVIOUS_MS] = due_ms
    repeat["count"] = count
    opts[Opt.REPEAT] = repeat
    return Iteration(due_ms, opts)


def cron_ms(pattern: str, tz: str, after_ms: int) -> int:
    """The next time of a pattern with five fields, or six with seconds in front."""
    fields = pattern.split()
    if len(fields) != 6:
        return cron.parse(pattern, tz).next_ms(after_ms)
    seconds = _seconds(pattern, fields[0])
    minutes = cron.parse(" ".join(fields[1:]), tz)
    minute_ms = after_ms - after_ms % 60_000
    # The minute that `after_ms` lies in counts too; the entry is asked from just before it.
    minute_ms = minutes.next_ms(minute_ms - 1)
    for second in seconds:
        if minute_ms + second * 1000 > after_ms:
            return minute_ms + second * 1000
    return minutes.next_ms(minute_ms) + seconds[0] * 1000


def _seconds(pattern: str, field: str) -> list[int]:
    """The field has the syntax and the range of minutes: the minutes' parser reads it."""
    if not field or not set(field) <= _SECONDS:
        raise cron.BadCron(f"cron {pattern!r}: the seconds {field!r} must be numbers from 0 to 59")
    entry = cron.parse(f"{field} 0 1 1 *")
    times: list[int] = []
    at_ms = -1
    while (at_ms := entry.next_ms(at_ms)) < 3_600_000:
        times.append(at_ms // 60_000)
    return times


def _number(value: Json) -> int:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0
