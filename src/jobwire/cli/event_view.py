"""A job's events as a story: what is to be printed for good, and what stands below it for now.

Pure: `live` draws it. Everything that comes out is safe to print.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from jobwire.cli import sanitize
from jobwire.client import Event
from jobwire.client.messages import Status
from jobwire.job.messages import Json

_LONGEST: Final = 400


@dataclass(frozen=True, slots=True)
class Piece:
    """Something to print: text goes on where the last piece ended, a note has its line."""

    kind: Literal["text", "note"]
    text: str


class EventView:
    """Feed it events in order."""

    def __init__(self) -> None:
        self.status: Status = "queued"
        self.percent: float | None = None
        """As reported; never guessed."""
        self.message = ""
        self.attempt = 1
        self.told_text = False
        """The answer has been printed as it came."""

    def take(self, event: Event) -> list[Piece]:
        """What to print for it."""
        data: Mapping[str, Json] = event.data if isinstance(event.data, dict) else {}
        match event.type:
            case "queued" | "running" | "done" | "error" | "canceled":
                self.status = event.type
            case "progress":
                self._progress(data)
            case "token":
                return self._token(data)
            case "reset":
                self.told_text = False
                return [Piece("note", f"begins again: {_said(data, 'reason')}")]
            case "retrying":
                return [self._retrying(data)]
            case "log":
                return [Piece("note", f"{_said(data, 'level')}: {_said(data, 'message')}")]
            case "gap":
                return [Piece("note", "events are missing here")]
            case _:
                body = sanitize.json_text(msgspec.json.encode(event.data))
                return [Piece("note", f"{sanitize.line(event.type)}  {_short(body)}")]
        return []

    def _progress(self, data: Mapping[str, Json]) -> None:
        percent = data.get("percent")
        self.percent = min(100.0, max(0.0, percent)) if isinstance(percent, int | float) else None
        self.message = _said(data, "message")

    def _token(self, data: Mapping[str, Json]) -> list[Piece]:
        text = data.get("text")
        if not isinstance(text, str) or not text:
            return []
        self.told_text = True
        return [Piece("text", sanitize.text(text))]

    def _retrying(self, data: Mapping[str, Json]) -> Piece:
        self.status, self.percent, self.message = "queued", None, ""
        self.told_text = False
        attempt, delay_ms, error = data.get("attempt"), data.get("delay_ms"), data.get("error")
        if isinstance(attempt, int):
            self.attempt = attempt + 1
        why = _said(error, "message") if isinstance(error, dict) else ""
        when = f" in {delay_ms / 1000:g} s" if isinstance(delay_ms, int | float) else ""
        return Piece("note", f"attempt {attempt} failed: {why}; again{when}")


def _said(data: Mapping[str, Json], name: str) -> str:
    value = data.get(name)
    return _short(sanitize.line(value)) if isinstance(value, str) else ""


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
