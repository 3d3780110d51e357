"""When an entry goes to the dead-letter stream, and with which reason. Pure."""

from typing import Final

from jobwire.valkey.operations import Pending

_MAX_REASON: Final = 1000


def is_exhausted(entry: Pending, max_deliveries: int) -> bool:
    """Whether the entry has used all its deliveries."""
    return entry.deliveries >= max_deliveries


def reason_for(entry: Pending, last_failure: str | None) -> str:
    """The `reason` field of the dead-letter entry."""
    last_failure = sendable_reason(last_failure or "")
    why = f"its handler failed: {last_failure}" if last_failure else "its consumers stopped"
    return f"delivered {entry.deliveries} times and never acknowledged; {why}"


def sendable_reason(text: str) -> str:
    """The text in its bounds, without lone surrogates, which cannot be sent."""
    return text.encode("utf-8", "replace").decode()[:_MAX_REASON]
