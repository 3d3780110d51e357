"""Reports of a run that starts again from its first line (A-8).

What an earlier run reported before its last record is never taken back, so this run must not report
it again. A branch does not know what it will call next: while the record has places that this run
has not come to, reports are held. A recorded call drops those that its branch has made before it, a
new one sends them; all are sent when no place is left, and at the end of the run.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Final, NamedTuple

from jobwire.job.messages import DUE_FIELD, GATHER_FIELD, RESULT_FIELD, Report

_PLACES: Final = (RESULT_FIELD, DUE_FIELD, GATHER_FIELD)
"""Fields of a record that an earlier run wrote when it came to a place in the code. Signals and
ends of children come from outside, at any time."""
_MOST_HELD: Final = 1_000
"""Reports of a run that does not come to a place of its record: then its code has changed."""


class _Branch:
    """A task or thread of the handler."""

    __slots__ = ("is_new", "outer", "owner", "replay")

    def __init__(self, replay: "Replay", owner: object, outer: "_Branch | None") -> None:
        self.replay = replay
        self.owner = owner
        self.outer = outer
        """The one that has started it."""
        self.is_new = False
        """Its last call was not recorded: what it does now is done for the first time."""

    def line(self) -> "set[_Branch]":
        """It, and those that it comes from."""
        found, branch = set[_Branch](), self
        while branch is not None:
            found.add(branch)
            branch = branch.outer
        return found


class _Held(NamedTuple):
    branch: _Branch
    report: Report
    send: Callable[[Report], object]


_current: Final[ContextVar[_Branch | None]] = ContextVar("replaying_branch", default=None)


class Replay:
    """The held reports of one run. Any thread of the handler may use it."""

    __slots__ = ("_first", "_held", "_left", "_lock")

    def __init__(self, places: Iterable[str]) -> None:
        self._left = set(places)
        self._held: list[_Held] = []
        self._lock = threading.Lock()
        self._first: _Branch | None = None

    def hold(self, report: Report, send: Callable[[Report], object]) -> bool:
        """Hold a report, which `send` may queue later; False if it is to be sent now, after those
        that were held."""
        with self._lock:
            if not self._left or (branch := self._branch()).is_new:
                return False
            if len(self._held) >= _MOST_HELD:
                self._give_up()
                return False
            self._held.append(_Held(branch, report, send))
            return True

    def reach(self, place: str) -> None:
        """This branch has come to a place of the record, or made a new one: what it reported so far
        was reported before, or was not."""
        with self._lock:
            if place in self._left:
                self._left.discard(place)
                here = self._branch()
                here.is_new = False
                self._take(here.line())
                if not self._left:
                    self._send(self._held)
                    self._held = []
            elif self._left:
                here = self._branch()
                here.is_new = True
                self._send(self._take(here.line()))

    def end(self) -> None:
        """The run ends: its code no longer has the places that are left."""
        with self._lock:
            self._give_up()

    def _give_up(self) -> None:
        self._left.clear()
        self._send(self._held)
        self._held = []

    def _take(self, line: set[_Branch]) -> list[_Held]:
        """Remove the reports that these branches have made."""
        taken = [each for each in self._held if each.branch in line]
        self._held = [each for each in self._held if each.branch not in line]
        return taken

    def _send(self, held: list[_Held]) -> None:
        for each in held:
            each.send(each.report)

    def _branch(self) -> _Branch:
        owner = _owner()
        branch = _current.get()
        if branch is not None and branch.replay is not self:
            branch = None
        if branch is None or branch.owner is not owner:
            if branch is None and isinstance(owner, threading.Thread):
                branch = self._first  # a thread inherits no context
            branch = _Branch(self, owner, branch)
            _current.set(branch)
            self._first = self._first or branch
        return branch


def places(fields: Iterable[str]) -> set[str]:
    """The places that a record names."""
    return {field for field in fields if field.startswith(_PLACES)}


def _owner() -> object:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return task or threading.current_thread()
