"""A job's events as terminal output: text and notes to print, and the state of the status line.

Pure: `live` draws it. All returned text is safe to print.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from jobwire.cli import sanitize
from jobwire.client import Event
from jobwire.job.messages import Json

_MAX_CHARS: Final = 400


@dataclass(frozen=True, slots=True)
class Piece:
    """Output: text continues the last text, a note has its own line."""

    kind: Literal["text", "note"]
    text: str


class EventView:
    """The state of one job; feed it events in order."""

    def __init__(self) -> None:
        self.status = "queued"
        self.percent: float | None = None
        """As reported by the handler."""
        self.message = ""
        self.attempt = 1
        self.text_printed = False
        """The tokens of the current attempt were printed."""

    def take(self, event: Event) -> list[Piece]:
        """Update the state; return what to print."""
        data: Mapping[str, Json] = event.data if isinstance(event.data, dict) else {}
        match event.type:
            case "running":
                return self._running(data)
            case "queued" | "done" | "error" | "canceled":
                self.status = event.type
            case "progress":
                self._progress(data)
            case "token":
                return self._token(data)
            case "rollback":
                return self._taken_back(data)
            case "reset":
                self.text_printed = False
                return [Piece("note", f"starts again: {_text(data, 'reason')}")]
            case "retrying":
                return [self._retrying(data)]
            case "log":
                return [Piece("note", f"{_text(data, 'level')}: {_text(data, 'message')}")]
            case "waiting":
                return [_waiting(data)]
            case "gap":
                return [Piece("note", "some events are missing here")]
            case _:
                body = sanitize.json_text(msgspec.json.encode(event.data))
                return [Piece("note", f"{sanitize.line(event.type)}  {_short(body)}")]
        return []

    def _running(self, data: Mapping[str, Json]) -> list[Piece]:
        was_running, self.status = self.status == "running", "running"
        attempt = data.get("attempt")
        if isinstance(attempt, int):
            self.attempt = attempt
        if not was_running:
            return []
        # Its worker has stopped or died without a failed attempt.
        self.percent, self.message, self.text_printed = None, "", False
        return [Piece("note", "starts again: its worker has stopped")]

    def _taken_back(self, data: Mapping[str, Json]) -> list[Piece]:
        had_text = self.text_printed
        self.percent, self.message, self.text_printed = None, "", False
        if not had_text:
            return []
        if data.get("to") == "0-0":
            return [Piece("note", "starts again: the text so far does not count")]
        return [Piece("note", "starts again: the text since its last step does not count")]

    def _progress(self, data: Mapping[str, Json]) -> None:
        percent = data.get("percent")
        self.percent = min(100.0, max(0.0, percent)) if isinstance(percent, int | float) else None
        self.message = _text(data, "message")

    def _token(self, data: Mapping[str, Json]) -> list[Piece]:
        text = data.get("text")
        if not isinstance(text, str) or not text:
            return []
        self.text_printed = True
        return [Piece("text", sanitize.text(text))]

    def _retrying(self, data: Mapping[str, Json]) -> Piece:
        self.status, self.percent, self.message = "queued", None, ""
        self.text_printed = False
        attempt, delay_ms, error = data.get("attempt"), data.get("delay_ms"), data.get("error")
        if isinstance(attempt, int):
            self.attempt = attempt + 1
        why = _text(error, "message") if isinstance(error, dict) else ""
        when = f" in {delay_ms / 1000:g} s" if isinstance(delay_ms, int | float) else ""
        return Piece("note", f"attempt {attempt} failed: {why}; retry{when}")


def _waiting(data: Mapping[str, Json]) -> Piece:
    before = data.get("before")
    if not isinstance(before, int):
        return Piece("note", "waiting for the model")
    jobs = "1 job is" if before == 1 else f"{before} jobs are"
    return Piece("note", f"waiting for the model: {jobs} served first")


def _text(data: Mapping[str, Json], name: str) -> str:
    value = data.get(name)
    return _short(sanitize.line(value)) if isinstance(value, str) else ""


def _short(text: str) -> str:
    return text if len(text) <= _MAX_CHARS else f"{text[: _MAX_CHARS - 1]}…"
