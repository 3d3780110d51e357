"""Commands that were issued and not yet written, in the order of their coming.

Filled by the connection's callers, emptied once a tick, or kept while there is no connection or
no room on it. Knows how old its oldest command is, at the price of one mark a tick.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from jobwire.valkey.errors import NotSent
from jobwire.valkey.resp_socket import ScriptCall, Waiter

MAX_COMMANDS: Final = 100_000
MAX_BYTES: Final = 64 * 1024 * 1024


class Outbox:
    __slots__ = ("_came", "_left", "_marks", "_packed", "_size", "_waiters")

    def __init__(self) -> None:
        self._packed: list[bytes] = []
        self._waiters: list[Waiter] = []
        self._size = 0
        self._came = self._left = 0
        self._marks: deque[tuple[int, float]] = deque()

    def __len__(self) -> int:
        return len(self._packed)

    def put(self, packed: bytes, waiter: Waiter) -> None:
        if self._size > MAX_BYTES or len(self._packed) >= MAX_COMMANDS:
            raise NotSent(
                f"{len(self._packed)} commands of {self._size} bytes wait for the server already"
            )
        self._size += len(packed)
        self._came += 1
        self._packed.append(packed)
        self._waiters.append(waiter)

    def put_first(self, calls: Sequence[ScriptCall]) -> None:
        """Calls that were refused unseen go before those that came after them."""
        self._left -= len(calls)
        self._size += sum(len(call.packed) for call in calls)
        self._packed[:0] = [call.packed for call in calls]
        self._waiters[:0] = calls

    def take(self, commands: int, size: int) -> tuple[list[bytes], list[Waiter]]:
        """Take out the oldest ones, as many as may go now; at least one, however large.

        A caller who left while its command had to wait is left out: nobody wants that answer.
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
            wanted = [n for n, waiter in enumerate(waiters) if not waiter.done()]
            return [packed[n] for n in wanted], [waiters[n] for n in wanted]
        return packed, waiters

    def take_all(self) -> list[Waiter]:
        """Take out everything, for nobody to send."""
        return self._cut(len(self._packed))[1]

    def note_waiting(self, now_s: float) -> None:
        """Everything that is here now has come by now, and could not go."""
        if self._packed and (not self._marks or self._marks[-1][0] < self._came):
            self._marks.append((self._came, now_s))

    def oldest_s(self) -> float | None:
        """Since when the oldest has been waiting; None if none had to wait."""
        while self._marks and self._marks[0][0] <= self._left:
            self._marks.popleft()
        return self._marks[0][1] if self._marks else None

    def take_older(self, than_s: float) -> list[Waiter]:
        """Take out those that have been waiting since before a time."""
        number = self._left
        while self._marks and self._marks[0][1] <= than_s:
            number = max(number, self._marks.popleft()[0])
        return self._cut(number - self._left)[1]

    def _cut(self, end: int) -> tuple[list[bytes], list[Waiter]]:
        packed, waiters = self._packed, self._waiters
        if end == len(packed):
            self._packed, self._waiters = [], []
            self._size = 0
        else:
            # Cut out in place: copying all that still waits for each few that go would be slow.
            packed, waiters = packed[:end], waiters[:end]
            del self._packed[:end], self._waiters[:end]
            self._size -= sum(map(len, packed))
        self._left += end
        return packed, waiters
