"""When a job scheduler's next iteration is due, and with which options it is made.

The consumer asks `next_iteration` for each job that a scheduler made, before the job is run.
Intervals are computed by the script, from the scheduler's own record.
"""

import os
from pathlib import Path
from typing import Final, NamedTuple

from cronsim import CronSimError

from jobwire.cron import BadCron, Cron, time_zone
from jobwire.job.messages import Json
from jobwire.systems.queues.codec import JobHash
from jobwire.systems.queues.contract import Opt

_MACHINE_ZONE: Final = Path("/etc/localtime")


class Iteration(NamedTuple):
    """`due_ms` is 0 where the script computes it."""

    due_ms: int
    opts: dict[str, Json]


class Unreadable(Exception):
    """A scheduler's pattern or dates are invalid; the text has the reason."""


def next_iteration(job: JobHash, now_ms: int) -> Iteration | None:
    """None where the scheduler has ended; Unreadable where it cannot be understood."""
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
        pattern, tz = str(repeat.get("pattern", "")), str(repeat.get("tz") or "")
        try:
            due_ms = cron_ms(pattern, tz, after_ms)
        except (CronSimError, ValueError, OverflowError, OSError, LookupError) as error:
            raise Unreadable(str(error)) from error
        if end_ms and due_ms > end_ms:
            return None
        opts[Opt.PREVIOUS_MS] = due_ms
    repeat["count"] = count
    opts[Opt.REPEAT] = repeat
    return Iteration(due_ms, opts)


def cron_ms(pattern: str, tz: str, after_ms: int) -> int:
    """The next time of a pattern with five fields, or six with seconds in front. Without `tz` it is
    in the zone of this process, as with Node.

    At a change of the clocks the rule is that of cron-parser, which BullMQ uses (decision 0095).
    """
    tz = tz or process_zone() or "UTC"
    every_hour = pattern.split()[-4:-3] in (["*"], ["*/1"], ["0-23"])
    cron = Cron(pattern, tz, time_zone(pattern[:60], tz), every_hour, shifts=True)
    return cron.next_ms(after_ms)


def process_zone() -> str:
    """The time zone of this process, of `TZ` or of the machine; empty where it has no name that
    this machine knows."""
    name = os.environ.get("TZ")
    if name is None:
        machine = _MACHINE_ZONE.resolve()
        name = str(machine).partition("/zoneinfo/")[2] if machine.exists() else "UTC"
        if not name:  # a copy of the zone's file
            return ""
    name = name.removeprefix(":").removeprefix("posix/").removeprefix("right/") or "UTC"
    try:
        time_zone("", name)
    except BadCron:
        return ""
    return name


def _number(value: Json) -> int:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0
