"""When a cron entry is due: five fields (six with seconds) in a time zone, computed by `cronsim`.

Used by the worker's scheduler and by wires with schedulers, with the server's time. Pure.

    ┌ minute 0-59   ┌ hour 0-23   ┌ day 1-31   ┌ month 1-12, jan-dec   ┌ weekday 0-7, sun-sat
    *               *             *            *                       *

Each field is `*`, a number, a name, a range `a-b`, a step `*/n` or `a-b/n`, or a list of those. If
day and weekday are both restricted, either is enough. A sixth field in front is the second.

When clocks go forward, a time that does not exist is due at the moment of the change; when they go
back, a time that occurs twice is due the first time. Entries for every hour (`*` or `*/n`) and
entries with seconds follow the elapsed time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

_MACROS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS: Final = (
    ("second", 0, 59),
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day", 1, 31),
    ("month", 1, 12),
    ("weekday", 0, 7),
)
_CRONSIM_NAMES: Final = ("second", "minute", "hour", "day-of-month", "month", "day-of-week")
_CLOCK_CHANGE: Final = timedelta(hours=3)
"""More than clocks ever go forward or back."""
_MAX_LENGTH: Final = 1000
_SECOND: Final = timedelta(seconds=1)
_MINUTE: Final = timedelta(minutes=1)


class BadCron(ValueError):
    """The entry is invalid; names the field and the reason."""


@dataclass(frozen=True, slots=True)
class Cron:
    """A valid entry; made by `parse`."""

    text: str
    tz: str
    zone: tzinfo
    elapsed: bool
    """Follows the elapsed time when the clocks change: for every hour, or with seconds."""
    shifts: bool = False
    """cron-parser's rule: the first of the times that do not exist is due as much later as the
    clocks go forward, and the others are skipped."""

    def next_ms(self, after_ms: int) -> int:
        """The first due time after that moment."""
        after = _datetime(after_ms)
        first: datetime | None = None
        for local in CronSim(self.text, self._local(after, -1)):
            if first is not None and min(self._utc(local, 0), self._utc(local, 1)) >= first:
                break
            due = [each for each in self._due_times(local) if each > after]
            first = min(due if first is None else [first, *due], default=None)
        return self._ms(first)

    def last_ms(self, until_ms: int) -> int:
        """The last due time up to that moment, itself included."""
        until = _datetime(until_ms)
        last: datetime | None = None
        for local in CronSim(self.text, self._local(until, 1) + _SECOND, reverse=True):
            if last is not None and max(self._utc(local, 0), self._utc(local, 1)) <= last:
                break
            due = [each for each in self._due_times(local) if each <= until]
            last = max(due if last is None else [last, *due], default=None)
        return self._ms(last)

    def _local(self, moment: datetime, direction: int) -> datetime:
        """The local time to start from: some hours off if the clocks change near the moment."""
        near = (moment - _CLOCK_CHANGE, moment, moment + _CLOCK_CHANGE)
        changes = len({each.astimezone(self.zone).utcoffset() for each in near}) > 1
        start = moment.astimezone(self.zone).replace(tzinfo=None, microsecond=0)
        return start + direction * _CLOCK_CHANGE if changes else start

    def _due_times(self, local: datetime) -> Iterator[datetime]:
        """When a local time occurs: once, except at a clock change. cronsim counts in local time
        only, since its own handling skips runs where clocks change by half an hour."""
        first = self._utc(local, 0)
        if self._exists(local):
            yield first
            if self.elapsed and (second := self._utc(local, 1)) != first:
                yield second
        elif self.shifts and not self.elapsed:
            before = next(CronSim(self.text, local, reverse=True), None)
            if before is None or self._exists(before):
                yield first
        elif not self.elapsed:
            while not self._exists(local):
                local += _MINUTE
            yield self._utc(local, 0)

    def _exists(self, local: datetime) -> bool:
        return self._utc(local, 0).astimezone(self.zone).replace(tzinfo=None) == local

    def _utc(self, local: datetime, fold: int) -> datetime:
        return local.replace(tzinfo=self.zone, fold=fold).astimezone(UTC)

    def _ms(self, due: datetime | None) -> int:
        if due is None:
            raise BadCron(f"cron {self.text!r}: there is no such day")
        return int(due.timestamp()) * 1000


def parse(text: str, tz: str = "UTC") -> Cron:
    """Check an entry; BadCron with one line if it is invalid."""
    if len(text) > _MAX_LENGTH:
        # Python refuses to read a number of thousands of digits.
        raise BadCron(
            f"cron {text[:20]!r}…: has {len(text)} characters, must have at most {_MAX_LENGTH}"
        )
    parts = _MACROS.get(text.strip().lower(), text).split()
    if len(parts) not in (5, 6):
        names = "minute hour day month weekday"
        raise BadCron(f"cron {text!r}: has {len(parts)} fields, must have five: {names}")
    cron = Cron(
        " ".join(parts), tz, time_zone(text, tz), len(parts) == 6 or parts[1].startswith("*")
    )
    try:
        cron.next_ms(0)  # 30 February is an error now, not a job that never runs
    except CronSimError as error:
        raise BadCron(f"cron {text!r}: {_problem(parts, str(error))}") from None
    return cron


def time_zone(text: str, tz: str) -> tzinfo:
    """The zone of an entry; BadCron if this machine does not have it."""
    if tz == "UTC":
        return UTC
    try:
        return ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadCron(
            f"cron {text!r}: the time zone {tz!r} is not known here; it looks like Europe/Berlin "
            "(if the machine has no time zones at all: pip install tzdata)"
        ) from None


def _problem(parts: list[str], error: str) -> str:
    """What is wrong with the field that `error` of cronsim ("Bad minute") names."""
    at = next(at for at, name in enumerate(_CRONSIM_NAMES) if error == f"Bad {name}")
    name, low, high = _FIELDS[at]
    for item in parts[at - len(_FIELDS)].split(","):
        span, slash, step = item.partition("/")
        if slash and not (step.isdecimal() and int(step)):
            return f"the step {step!r} of {name} must be 1 or more"
        ends = [int(end) if end.isdecimal() else -1 for end in span.split("-")]
        if len(ends) == 2 and low <= ends[1] < ends[0] <= high:
            return f"{name} {item!r} goes backwards"
        for end, number in zip(span.split("-"), ends, strict=True):
            is_name = name in ("month", "weekday") and end.isascii() and end.isalpha()
            if span != "*" and not is_name and not (end.isascii() and low <= number <= high):
                return f"{name} {end!r} must lie between {low} and {high}"
    return "there is no such day" if name == "day" else f"{name} is not valid"


def _datetime(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
