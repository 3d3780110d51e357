"""The server's table of watched keys: how full it may be (G-16).

The followers of the systems know how much of it is in use. A table that is too small makes the
server announce changes of keys that did not change, and all watchers read them again and again.
"""

from collections.abc import Callable
from typing import Final

from jobwire.api.problems import UNAVAILABLE
from jobwire.gateway.health import Check, HealthStatus
from jobwire.gateway.problems import Problem, retry_after

_HALF: Final = 0.5
_FULL: Final = 0.9
_RETRY_S: Final = 10
_REFUSED: Final = "too many jobs are watched on the server: its tracking table is full; retry later"


def check_watchable(table_use: float) -> None:
    """Raise a Problem for a new watcher while the table is nearly full."""
    if table_use > _FULL:
        raise Problem(UNAVAILABLE, _REFUSED, headers=retry_after(_RETRY_S))


def table_check(name: str, table_use: Callable[[], float]) -> Check:
    """/readyz is degraded while more than half of the table is in use."""

    async def run() -> HealthStatus:
        use = table_use()
        if use <= _HALF:
            return HealthStatus("ready")
        note = f"watched keys use {use:.0%} of the server's tracking table"
        return HealthStatus("degraded", note, "raise tracking-table-max-keys of the server")

    return Check(name, run, quiet=True)
