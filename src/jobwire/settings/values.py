"""Converts text to typed values, and back.

Every source has text (a YAML scalar stays as written, so that the password `0123` is kept), or
lists and mappings of text. Pure; the caller adds the origin.
"""

import contextlib
import dataclasses
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal

from jobwire.redaction import MASK, show_url
from jobwire.settings.schema import Leaf, Section, default_of, values_of
from jobwire.text import did_you_mean

Raw = str | Sequence["Raw"] | Mapping[str, "Raw"]

_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})
_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


class BadValue(Exception):
    """The value is invalid: each fault with its place inside the value."""

    def __init__(self, *faults: tuple[str, str]) -> None:
        super().__init__(*faults)
        self.faults = faults

    @classmethod
    def because(cls, problem: str) -> "BadValue":
        return cls(("", problem))

    def under(self, place: str) -> Iterator[tuple[str, str]]:
        """Yield the faults with a prefix to their places."""
        return ((place + inside, problem) for inside, problem in self.faults)


def duration(text: str) -> timedelta:
    """`5s`, `1h30m`, `250ms`, `2d`; a plain number is seconds."""
    try:
        seconds = float(text)
    except ValueError:
        parts = _DURATION.findall(text.strip())
        is_whole = parts and "".join(number + unit for number, unit in parts) == text.strip()
        seconds = sum(float(number) * _UNITS_S[unit] for number, unit in parts) if is_whole else -1
    with contextlib.suppress(OverflowError):
        if seconds >= 0:
            return timedelta(seconds=seconds)
    raise BadValue.because(
        f"{text!r} is not a duration; write 5s, 250ms or 1h (a plain number is seconds)"
    )


def _whole_number(text: str) -> int:
    if not re.fullmatch(r"[+-]?\d{1,18}", text.strip()):
        raise BadValue.because(f"{text!r} is not a whole number")
    return int(text)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < float("inf"):
        raise BadValue.because(f"{text!r} is not a number")
    return value


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE | _FALSE:
        raise BadValue.because(f"{text!r} is neither true nor false")
    return word in _TRUE


_SCALARS: Final[dict[object, Callable[[str], object]]] = {
    str: lambda text: text,
    int: _whole_number,
    float: _number,
    bool: _boolean,
    timedelta: duration,
    Path: lambda text: Path(text).expanduser(),
}


def convert_setting(leaf: Leaf, raw: Raw) -> object:
    """Convert the text of a setting; raises BadValue. A number of seconds may be a duration."""
    if leaf.path.endswith("_s") and (leaf.kind is int or leaf.kind is float):
        return _seconds(leaf.kind, raw)
    return convert(leaf.kind, raw)


def convert(kind: object, raw: Raw) -> object:
    """Convert text to a type; raises BadValue."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        inner = next(arg for arg in typing.get_args(kind) if arg is not types.NoneType)
        return convert(inner, raw)
    if origin is tuple:
        return _convert_list(typing.get_args(kind)[0], raw)
    if (read := getattr(kind, "from_setting", None)) is not None:
        return _convert_own(read, raw)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _convert_mapping(kind, raw)
    if not isinstance(raw, str):
        raise BadValue.because("must be a single value, not a list or a mapping")
    if origin is Literal:
        return _choice(raw, typing.get_args(kind))
    return _SCALARS[kind](raw)


def _convert_own(read: Callable[[Raw], object], raw: Raw) -> object:
    """Convert the text of a type that reads its own."""
    try:
        return read(raw)
    except ValueError as error:
        raise BadValue.because(str(error)) from None


def _seconds(kind: object, raw: Raw) -> object:
    """Convert a duration or a plain number to seconds."""
    span = convert(timedelta, raw)
    assert isinstance(span, timedelta)
    if kind is int and span % timedelta(seconds=1):
        raise BadValue.because(f"{raw!r} is not a whole number of seconds")
    return int(span.total_seconds()) if kind is int else span.total_seconds()


def _choice(text: str, known: Sequence[str]) -> str:
    word = text.strip().lower()
    if word not in known:
        raise BadValue.because(
            f"{text!r} is not one of {', '.join(known)}{did_you_mean(word, known)}"
        )
    return word


def _convert_list(kind: object, raw: Raw) -> tuple[object, ...]:
    if isinstance(raw, str):
        raw = [part.strip() for part in raw.split(",") if part.strip()]
    if isinstance(raw, Mapping):
        raise BadValue.because("must be a list")
    values: list[object] = []
    faults: list[tuple[str, str]] = []
    for index, item in enumerate(raw):
        try:
            values.append(convert(kind, item))
        except BadValue as bad:
            faults += bad.under(f"[{index}]")
    if faults:
        raise BadValue(*faults)
    return tuple(values)


def _convert_mapping(cls: type, raw: Raw) -> object:
    if not isinstance(raw, Mapping):
        raise BadValue.because("must be a mapping of names to values")
    hints = typing.get_type_hints(cls)
    values: dict[str, object] = {}
    faults = [
        (f".{name}", f"unknown name{did_you_mean(name, hints)}")
        for name in raw
        if name not in hints
    ]
    for field in dataclasses.fields(cls):
        if field.name in raw:
            try:
                values[field.name] = convert(hints[field.name], raw[field.name])
            except BadValue as bad:
                faults += bad.under(f".{field.name}")
        elif default_of(field) is dataclasses.MISSING:
            faults.append((f".{field.name}", "is missing"))
    if not faults:
        built = cls(**values)
        faults = [(f".{name}", problem) for name, problem in check(built)]
        if not faults:
            return built
    raise BadValue(*faults)


def check(built: object) -> Iterator[tuple[str, str]]:
    """Yield the faults that the class finds in itself."""
    checked: Callable[[], Iterator[tuple[str, str]]] | None = getattr(built, "check", None)
    return checked() if checked else iter(())


def show(value: object, *, secret: bool = False) -> object:
    """Format a value for the user: secrets are masked, and what a URL may have of them (O-3)."""
    match value:
        case None | "":
            return None if value is None else ""
        case str():
            return MASK if secret and "://" not in value else show_url(value)
        case timedelta():
            return _show_duration(value)
        case Path():
            return str(value)
        case tuple():
            items = typing.cast("tuple[object, ...]", value)
            return [show(item, secret=secret) for item in items]
        case Mapping():
            items = typing.cast("Mapping[object, object]", value).items()
            return {name: show(item, secret=secret) for name, item in items}
        case _ if (shown := getattr(value, "shown", None)) is not None:
            return show(shown())
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {
                field.name: show(getattr(value, field.name), secret=not field.repr)
                for field in dataclasses.fields(value)
            }
        case _:
            return value


def secrets_of(settings: object, tree: Iterable[Section]) -> list[str]:
    """The texts of all settings that must not be shown."""
    return [
        text
        for leaf, value in values_of(settings, tree)
        for text in secrets_in(value, secret=leaf.hides(value))
    ]


def secrets_in(value: object, *, secret: bool = False) -> Iterator[str]:
    """Yield the texts of a value that `show` changes."""
    match value:
        case str() if value and show(value, secret=secret) != value:
            yield value
        case tuple():
            for item in typing.cast("tuple[object, ...]", value):
                yield from secrets_in(item, secret=secret)
        case Mapping():
            for item in typing.cast("Mapping[object, object]", value).values():
                yield from secrets_in(item, secret=secret)
        case _ if (shown := getattr(value, "shown", None)) is not None:
            yield from secrets_in(shown())
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            for field in dataclasses.fields(value):
                yield from secrets_in(getattr(value, field.name), secret=not field.repr)
        case _:
            pass


def _show_duration(value: timedelta) -> str:
    seconds = value.total_seconds()
    for unit in ("d", "h", "m", "s"):
        if seconds and seconds % _UNITS_S[unit] == 0:
            return f"{seconds / _UNITS_S[unit]:.0f}{unit}"
    return f"{seconds * 1000:.0f}ms" if seconds * 1000 % 1 == 0 else f"{seconds}s"
