"""The life of a job: five states and every move between them.

Wires translate their own words to these at their door; the worker and the pages read them. Nothing
here does anything: a move that is not in `MOVES` does not exist, whoever asks.

    WAITING ── take ────▶ RUNNING ── finish ──▶ DONE
            ◀── again ───         ── fail ────▶ FAILED
            ◀── release ─         ── cancel ──▶ CANCELED

A running job may also be taken over (from a dead worker), and a waiting one canceled or failed.
"""

from enum import StrEnum
from types import MappingProxyType
from typing import Final


class State(StrEnum):
    """Where a job stands."""

    WAITING = "waiting"
    """Accepted, and nobody works on it: in line, or delayed until due. A worker moves it on."""

    RUNNING = "running"
    """Held by one worker under a lease. Its holder settles it; a sweep takes it from a dead one."""

    DONE = "done"
    """Ended with a result. Final."""

    FAILED = "failed"
    """Ended with an error that nobody will try again. Final."""

    CANCELED = "canceled"
    """Ended because somebody asked for it. Final."""


class Move(StrEnum):
    """What can happen to a job."""

    TAKE = "take"
    """A worker starts it; of a running one: a living worker takes it over from a dead one."""

    FINISH = "finish"
    FAIL = "fail"
    CANCEL = "cancel"

    AGAIN = "again"
    """The attempt failed and will be repeated later: counts as an attempt."""

    RELEASE = "release"
    """Its worker gives it back unharmed: counts as nothing."""


MOVES: Final = MappingProxyType(
    {
        (State.WAITING, Move.TAKE): State.RUNNING,
        (State.WAITING, Move.CANCEL): State.CANCELED,
        # A sweep may end a job that no worker can ever run.
        (State.WAITING, Move.FAIL): State.FAILED,
        (State.RUNNING, Move.TAKE): State.RUNNING,
        (State.RUNNING, Move.FINISH): State.DONE,
        (State.RUNNING, Move.FAIL): State.FAILED,
        (State.RUNNING, Move.CANCEL): State.CANCELED,
        (State.RUNNING, Move.AGAIN): State.WAITING,
        (State.RUNNING, Move.RELEASE): State.WAITING,
    }
)

TERMINAL: Final = frozenset({State.DONE, State.FAILED, State.CANCELED})


def after(state: State, move: Move) -> State | None:
    """The state that `move` leads to, or None where it is not allowed."""
    return MOVES.get((state, move))
