"""When an entry is given up, and in which words. Pure; used by consumer and reclaimer."""

from typing import Final

from jobwire.valkey.group_consumer import Pending

_LONGEST: Final = 1000


def is_exhausted(entry: Pending, max_deliveries: int) -> bool:
    """Whether one delivery more would be one too many."""
    return entry.deliveries >= max_deliveries


def reason_for(entry: Pending, last_failure: str | None) -> str:
    """Why it was given up, for whoever reads the dead-letter stream."""
    # An error's text may hold anything; what cannot be sent must not keep the entry alive.
    last_failure = (last_failure or "").encode("utf-8", "replace").decode()[:_LONGEST]
    why = f"its handler failed: {last_failure}" if last_failure else "its consumers fell silent"
    return f"delivered {entry.deliveries} times and never acknowledged; {why}"
