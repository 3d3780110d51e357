"""Commands that were issued and not yet written, in call order.

Filled by the connection's callers and emptied once per loop turn; commands stay while there is no
connection or no capacity on it. One timestamp per loop turn gives the age of the oldest command.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from jobwire.valkey.errors import NotSent
from jobwire.valkey.resp_socket import RepeatableCall, Waiter

MAX_COMMANDS: Final = 100_000
MAX_BYTES: Final = 64 * 1024 * 1024


class Outbox:
    __slots__ = ("_added", "_marks", "_packed", "_removed", "_size", "_waiters")

    def __init__(self) -> None:
        self._packed: list[bytes] = []
        self._waiters: list[Waiter] = []
        self._size = 0
        self._added = self._removed = 0
        self._marks: deque[tuple[int, float]] = deque()

    def __len__(self) -> int:
        return len(self._packed)

    def put(self, packed: bytes, waiter: Waiter) -> None:
        if self._size > MAX_BYTES or len(self._packed) >= MAX_COMMANDS:
            raise NotSent(
                f"the send queue is full: commands={len(self._packed)} bytes={self._size}; "
                "the command was not sent"
            )
        self._size += len(packed)
        self._added += 1
        self._packed.append(packed)
        self._waiters.append(waiter)

    def put_first(self, calls: Sequence[RepeatableCall]) -> None:
        """Put calls that were refused without effect before all others."""
        self._removed -= len(calls)
        self._size += sum(len(call.packed) for call in calls)
        self._packed[:0] = [call.packed for call in calls]
        self._waiters[:0] = calls

    def take(self, commands: int, size: int) -> tuple[list[bytes], list[Waiter]]:
        """Remove the oldest commands within both limits; at least one, of any size.

        Commands whose caller was cancelled while they waited are dropped.
        """
        had_to_wait = bool(self._marks)
        if len(self._packed) <= commands and self._size <= size:
            end = len(self._packed)
        else:
            end = 0
            while end < min(commands, len(self._packed)):
                size -= len(self._packed[end])
                end += 1
                if size <= 0:
                    break
        packed, waiters = self._cut(end)
        if had_to_wait:
            live = [n for n, waiter in enumerate(waiters) if not waiter.done()]
            return [packed[n] for n in live], [waiters[n] for n in live]
        return packed, waiters

    def take_all(self) -> list[Waiter]:
        """Remove all commands without sending them."""
        return self._cut(len(self._packed))[1]

    def note_waiting(self, now_s: float) -> None:
        """Record that all present commands were issued by now and could not be sent."""
        if self._packed and (not self._marks or self._marks[-1][0] < self._added):
            self._marks.append((self._added, now_s))

    def oldest_s(self) -> float | None:
        """Since when the oldest command has been waiting; None if none had to wait."""
        while self._marks and self._marks[0][0] <= self._removed:
            self._marks.popleft()
        return self._marks[0][1] if self._marks else None

    def take_older(self, than_s: float) -> list[Waiter]:
        """Remove commands that have been waiting since before a time."""
        number = self._removed
        while self._marks and self._marks[0][1] <= than_s:
            number = max(number, self._marks.popleft()[0])
        return self._cut(number - self._removed)[1]

    def _cut(self, end: int) -> tuple[list[bytes], list[Waiter]]:
        packed, waiters = self._packed, self._waiters
        if end == len(packed):
            self._packed, self._waiters = [], []
            self._size = 0
        else:
            # Deleted in place: copying the rest for each small write would be slow.
            packed, waiters = packed[:end], waiters[:end]
            del self._packed[:end], self._waiters[:end]
            self._size -= sum(map(len, packed))
        self._removed += end
        return packed, waiters
