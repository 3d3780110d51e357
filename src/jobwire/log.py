"""Logging of all jobwire programs.

Each program calls `setup` once; gateway and worker call `bind` for each request and job. It
configures standard `logging`, so the log lines of users' handlers have the job's id too. It opens
no files and no sockets. Logged text cannot forge a second line or control the terminal, and secrets
in it are masked (`redaction`).

A line of jobwire is `event key=value …; what happens next`. Its facts are the one argument of the
call, a mapping, so that any formatter writes them; in JSON each of them is also a member:

    _log.warning("connection lost address=%(address)s; reconnecting", {"address": address})
"""

import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, TextIO

import msgspec

from jobwire.redaction import redact

# `warn` and `console` are other words for `warning` and `text`.
LEVELS: Final = ("debug", "info", "warn", "warning", "error", "critical")
FORMATS: Final = ("text", "console", "json")


@dataclass(frozen=True, slots=True)
class LoggingSettings:
    """The section `logging` of the settings."""

    level: Literal["debug", "info", "warn", "warning", "error", "critical"] = "info"
    """The lowest level that is written; `warn` is `warning`."""
    format: Literal["text", "console", "json"] = "text"
    """Text (or console) for people, json for programs; one line per entry."""
    colors: bool = True
    """Colour on a terminal; `NO_COLOR` turns it off too."""

    def check(self) -> Iterator[tuple[str, str]]:
        """Yield each fault: field and problem."""
        if self.level not in LEVELS:
            yield "level", f"{self.level!r} is not a level; known: {', '.join(LEVELS)}"
        if self.format not in FORMATS:
            yield "format", f"{self.format!r} is not a format; known: {', '.join(FORMATS)}"


def setup(
    service: str,
    settings: LoggingSettings = LoggingSettings(),  # noqa: B008 - frozen
    stream: TextIO | None = None,
) -> None:
    """Write all log lines of this process to `stream` (stderr) as `service`.

    A further call replaces the configuration.
    """
    for field, problem in settings.check():
        raise ValueError(f"logging.{field}: {problem}")
    out = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(out)
    colors = settings.colors and not os.environ.get("NO_COLOR") and out.isatty()
    handler.setFormatter(
        JsonLines(service) if settings.format == "json" else TextLines(service, colors=colors)
    )
    logging.basicConfig(handlers=[handler], level=settings.level.upper(), force=True)
    if settings.level.upper() != "DEBUG":
        # At INFO httpx logs every request, and alembic each step of its set-up.
        for name in ("httpx", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
    global _set_up
    _set_up = (service, settings)


_set_up: tuple[str, LoggingSettings] | None = None


def as_set_up() -> tuple[str, LoggingSettings] | None:
    """The configuration of this process, for a child process that logs the same way."""
    return _set_up


def component(name: str) -> logging.Logger:
    """The logger of one component: `component("gateway")`."""
    return logging.getLogger(f"jobwire.{name}")


_bound: ContextVar[Mapping[str, object]] = ContextVar("jobwire_log_fields")
_NOTHING: Final[Mapping[str, object]] = {}


def bind(**fields: object) -> None:
    """Add these fields to all further log lines of the current context.

    Tasks and threads (`asyncio.to_thread`) started later in this context have them too.
    """
    _bound.set({**_bound.get(_NOTHING), **fields})


def bind_only(fields: Mapping[str, object]) -> None:
    """Set these fields and remove all others."""
    _bound.set(fields)


# The standard attributes of a record; any other comes from `extra={…}`.
_STANDARD: Final = frozenset(
    (*vars(logging.makeLogRecord({})), "message", "asctime", "color_message", "traceback")
)
# Line ends of any kind (CR, LF, NEL, LS, PS), escape codes, direction marks.
_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
# Of these, JSON does not escape the following in its strings.
_UNSAFE_IN_JSON: Final = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def _safe(text: str) -> str:
    """The text with all characters escaped that could move the cursor or end the line."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    extra = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    found = {**_bound.get(_NOTHING), **extra}
    # An empty value removes a bound field from this line.
    return {name: value for name, value in found.items() if value != ""}


def _facts(record: logging.LogRecord) -> Mapping[str, object]:
    """The facts of a line of jobwire."""
    ours = record.name.startswith("jobwire.")
    return record.args if ours and isinstance(record.args, Mapping) else _NOTHING


# What would end a value that is not quoted, or make it look like the next one.
_QUOTED: Final = re.compile(r'[\s"=;]|^$')


def _value(value: object) -> str:
    """A value as text: quoted if it is not one word."""
    text = str(value)
    if not _QUOTED.search(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _text(record: logging.LogRecord) -> str:
    """The message, with facts that read as one word each."""
    facts = _facts(record)
    if not facts:
        return record.getMessage()
    # A number keeps its type, for a placeholder such as `%(seconds).1f`.
    shown = {
        name: value if isinstance(value, (int, float)) else _value(value)
        for name, value in facts.items()
    }
    return str(record.msg) % shown


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """The traceback of the record: of its exception, or given as `extra={"traceback": text}`."""
    if record.exc_info:
        return formatter.formatException(record.exc_info)
    return str(getattr(record, "traceback", "")).rstrip()


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class JsonLines(logging.Formatter):
    """`{"ts": …, "level": …, "service": …, "logger": …, "message": …, …}`, one object per line."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service
        self._encode = msgspec.json.Encoder(enc_hook=str).encode

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            **_facts(record),
            **_fields(record),
            "ts": _time(record),
            "level": record.levelname.lower(),
            "service": self._service,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if trace := _traceback(self, record):
            line["traceback"] = trace
        text = redact(self._encoded(line))
        return _UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)

    def _encoded(self, line: Mapping[str, object]) -> str:
        try:
            return self._encode(line).decode()
        except (UnicodeEncodeError, TypeError, ValueError, RecursionError):
            # A lone surrogate, a huge integer, a cycle: write the values as text.
            return self._encode({key: _safe(str(value)) for key, value in line.items()}).decode()


_COLORS: Final = {"DEBUG": "2", "INFO": "34", "WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}


class TextLines(logging.Formatter):
    """`time LEVEL service component: message  key=value`; a traceback follows, indented. The fields
    behind the message are those of the context, such as the job's id."""

    def __init__(self, service: str, *, colors: bool) -> None:
        super().__init__()
        self._service = service
        self._colors = colors

    def format(self, record: logging.LogRecord) -> str:
        level = f"{record.levelname:<8}"
        if self._colors:
            level = f"\x1b[{_COLORS.get(record.levelname, '0')}m{level}\x1b[0m"
        fields = "".join(
            f"  {_safe(name)}={_safe(_value(value))}" for name, value in _fields(record).items()
        )
        line = (
            f"{_time(record)} {level} {self._service} {record.name.removeprefix('jobwire.')}: "
            f"{_safe(_text(record))}{fields}"
        )
        if trace := _traceback(self, record):
            line += "".join(f"\n    {_safe(text)}" for text in trace.split("\n"))
        return redact(line)
