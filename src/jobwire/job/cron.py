"""When something that comes back is due: the five fields of cron, in a time zone. Pure.

The worker's scheduler asks `next_ms` and `last_ms`; the clock is the caller's. Nothing here waits.

    ┌ minute 0-59   ┌ hour 0-23   ┌ day 1-31   ┌ month 1-12, jan-dec   ┌ weekday 0-7, sun-sat
    *               *             *            *                       *

Each field is `*`, a number, a name, a range `a-b`, a step `*/n` or `a-b/n`, or a list of those.
Where day and weekday both say something, either of them is enough, as cron has always had it.
`@hourly @daily @weekly @monthly @yearly` are short for the usual ones.

When clocks are put forward, a time that does not exist is due at the moment of the jump; when they
are put back, a time that comes twice is due the first time. Entries of every hour (`*` or `*/n`)
take the hours as they really pass.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_MACROS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS: Final = (
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
)
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FARTHEST_DAYS: Final = 366 * 9
"""29 February can be eight years away; what does not come until then never does."""
_MINUTE: Final = timedelta(minutes=1)
_ODD: Final = timedelta(hours=3)
"""More than clocks are ever put forward or back."""


class BadCron(ValueError):
    """The entry cannot be understood; says which part and why."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    words: Sequence[str] = ()


_FIELDS: Final = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day", 1, 31),
    _Field("month", 1, 12, ("", *_MONTHS)),
    _Field("weekday", 0, 7, _DAYS),
)


@dataclass(frozen=True, slots=True)
class Cron:
    """An entry that was understood; made by `parse`."""

    text: str
    tz: str
    _zone: tzinfo
    _minutes: Sequence[int]
    _hours: Sequence[int]
    _days: frozenset[int]
    _months: frozenset[int]
    _weekdays: frozenset[int]
    _any_day: bool
    _any_weekday: bool
    _every_hour: bool

    def next_ms(self, after_ms: int) -> int:
        """The first due time after that moment."""
        after = _moment(after_ms)
        start = after.astimezone(self._zone).replace(tzinfo=None) - _ODD
        for days in range(_FARTHEST_DAYS):
            day = start.date() + timedelta(days=days)
            for hour in self._hours_on(day):
                if days or hour >= start.hour:
                    for due in self._due_in(day, hour):
                        if due > after:
                            return _ms(due)
        raise BadCron(f"cron {self.text!r}: there is no such day")

    def last_ms(self, until_ms: int) -> int:
        """The last due time up to that moment, itself included."""
        until = _moment(until_ms)
        end = until.astimezone(self._zone).replace(tzinfo=None) + _ODD
        for days in range(_FARTHEST_DAYS):
            day = end.date() - timedelta(days=days)
            for hour in reversed(self._hours_on(day)):
                if days or hour <= end.hour:
                    for due in reversed(self._due_in(day, hour)):
                        if due <= until:
                            return _ms(due)
        raise BadCron(f"cron {self.text!r}: there is no such day")

    def _hours_on(self, day: date) -> Sequence[int]:
        return self._hours if self._is_due_on(day) else ()

    def _due_in(self, day: date, hour: int) -> list[datetime]:
        """Every due time of a local hour, in order."""
        moments: set[datetime] = set()
        for minute in self._minutes:
            local = datetime(day.year, day.month, day.day, hour, minute)  # noqa: DTZ001 - local
            moments.update(self._moments(local))
        return sorted(moments)

    def _is_due_on(self, day: date) -> bool:
        if day.month not in self._months:
            return False
        is_day, is_weekday = day.day in self._days, day.isoweekday() % 7 in self._weekdays
        if self._any_day or self._any_weekday:
            return is_day and is_weekday
        return is_day or is_weekday

    def _moments(self, local: datetime) -> Iterator[datetime]:
        """When a local time comes: usually once."""
        first = _utc(local, self._zone, 0)
        if first.astimezone(self._zone).replace(tzinfo=None) == local:
            yield first
            second = _utc(local, self._zone, 1)
            if self._every_hour and second != first:
                yield second
        elif not self._every_hour:  # skipped by the clocks
            while _utc(local, self._zone, 0).astimezone(self._zone).replace(tzinfo=None) != local:
                local += _MINUTE
            yield _utc(local, self._zone, 0)


def parse(text: str, tz: str = "UTC") -> Cron:
    """Understand an entry; BadCron with one line otherwise."""
    fields = _MACROS.get(text.strip().lower(), text).split()
    if len(fields) != len(_FIELDS):
        wanted = "minute hour day month weekday"
        raise BadCron(f"cron {text!r}: has {len(fields)} fields, must have five: {wanted}")
    values = [
        _numbers(text, part.lower(), field) for part, field in zip(fields, _FIELDS, strict=True)
    ]
    minutes, hours, days, months, weekdays = values
    cron = Cron(
        text=" ".join(fields),
        tz=tz,
        _zone=_zone(text, tz),
        _minutes=sorted(minutes),
        _hours=sorted(hours),
        _days=frozenset(days),
        _months=frozenset(months),
        _weekdays=frozenset(number % 7 for number in weekdays),
        _any_day=fields[2].startswith("*"),
        _any_weekday=fields[4].startswith("*"),
        _every_hour=fields[1].startswith("*"),
    )
    cron.next_ms(0)  # 30 February is told now and not never
    return cron


def _zone(text: str, tz: str) -> tzinfo:
    if tz == "UTC":
        return UTC
    try:
        return ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadCron(
            f"cron {text!r}: the time zone {tz!r} is not known here; it looks like Europe/Berlin "
            "(if the machine has no time zones at all: pip install tzdata)"
        ) from None


def _numbers(text: str, part: str, field: _Field) -> set[int]:
    numbers: set[int] = set()
    for item in part.split(","):
        span, slash, step_text = item.partition("/")
        step = _step(text, step_text, field) if slash else 1
        if span == "*":
            # 7 is another name for 0 and not another day.
            low, high = field.low, 6 if field.name == "weekday" else field.high
        else:
            first, dash, last = span.partition("-")
            low = _number(text, first, field)
            high = _number(text, last, field) if dash else field.high if slash else low
        if low > high:
            raise BadCron(f"cron {text!r}: {field.name} {item!r} goes backwards")
        numbers.update(range(low, high + 1, step))
    return numbers


def _step(text: str, step: str, field: _Field) -> int:
    if not step.isdecimal() or not step.isascii() or int(step) < 1:
        raise BadCron(f"cron {text!r}: the step {step!r} of {field.name} must be 1 or more")
    return int(step)


def _number(text: str, word: str, field: _Field) -> int:
    if word and word in field.words:
        return field.words.index(word)
    if word.isdecimal() and word.isascii() and field.low <= int(word) <= field.high:
        return int(word)
    raise BadCron(
        f"cron {text!r}: {field.name} {word!r} must lie between {field.low} and {field.high}"
    )


def _utc(local: datetime, zone: tzinfo, fold: int) -> datetime:
    return local.replace(tzinfo=zone, fold=fold).astimezone(UTC)


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _ms(moment: datetime) -> int:
    return int(moment.timestamp()) * 1000
