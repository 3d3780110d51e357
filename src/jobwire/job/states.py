"""The five states of a job. Wires translate their own statuses to these.

    WAITING ── take ────▶ RUNNING ── finish ──▶ DONE
            ◀── retry ───         ── fail ────▶ FAILED
            ◀── release ─         ── cancel ──▶ CANCELED

A running job may also be reclaimed from a dead worker, and a waiting one canceled or failed.
"""

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """The state of a job."""

    WAITING = "waiting"
    """Accepted and not leased: in the queue, or delayed until due."""

    RUNNING = "running"
    """Leased to one worker, which settles it; a sweep reclaims it from a dead worker."""

    DONE = "done"
    """Ended with a result. Final."""

    FAILED = "failed"
    """Ended with an error and not retried. Final."""

    CANCELED = "canceled"
    """Ended by a cancel request. Final."""


TERMINAL: Final = frozenset({State.DONE, State.FAILED, State.CANCELED})
