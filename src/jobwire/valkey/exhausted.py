"""When an entry goes to the dead-letter stream, and with which reason. Pure."""

from typing import Final

from jobwire.valkey.group_consumer import Pending

_MAX_REASON: Final = 1000


def is_exhausted(entry: Pending, max_deliveries: int) -> bool:
    """Whether the entry has used all its deliveries."""
    return entry.deliveries >= max_deliveries


def reason_for(entry: Pending, last_failure: str | None) -> str:
    """The `reason` field of the dead-letter entry."""
    # Lone surrogates cannot be sent; they must not prevent the move.
    last_failure = (last_failure or "").encode("utf-8", "replace").decode()[:_MAX_REASON]
    why = f"its handler failed: {last_failure}" if last_failure else "its consumers stopped"
    return f"delivered {entry.deliveries} times and never acknowledged; {why}"
