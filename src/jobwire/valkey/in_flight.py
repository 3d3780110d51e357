"""Entries in hand: handled a few at a time, kept from reclaimers, acknowledged when done.

Used by the consumer and the reclaimer, which only differ in where entries come from. A handler
that fails costs its entry an acknowledgement and nothing else.
"""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from jobwire.valkey.connection import pause_s
from jobwire.valkey.errors import ValkeyError
from jobwire.valkey.group_consumer import GroupConsumer
from jobwire.valkey.operations import StreamMessage

Handler = Callable[[StreamMessage], Awaitable[None] | None]
"""Gets an entry. Returning acknowledges it; raising leaves it pending."""

_log = logging.getLogger("jobwire.valkey.handling")
_KEEP_AT_ONCE: Final = 500
_REMEMBERED: Final = 10_000


class InFlight:
    """Runs the handler for entries; bounded by `concurrency`."""

    def __init__(
        self, member: GroupConsumer, handler: Handler, *, concurrency: int, idle_timeout_s: float
    ) -> None:
        self._member = member
        self._handler = handler
        self._concurrency = concurrency
        self._renew_every_s = idle_timeout_s / 3
        self._held: set[str] = set()
        self._lost: set[str] = set()
        """Those of them that others hold now."""
        self._running: dict[str, asyncio.Task[None]] = {}
        self._busy = 0
        self._moved = asyncio.Event()
        self._failures: dict[str, str] = {}
        self._stopped = asyncio.Event()

    @property
    def stopping(self) -> bool:
        """Whether nothing more is begun."""
        return self._stopped.is_set()

    @property
    def full(self) -> bool:
        """Whether every slot is taken."""
        return self._busy >= self._concurrency

    def knows(self, id_: str) -> bool:
        """Whether an entry is in hand, or failed here and waits for its reclaimer."""
        return id_ in self._held or id_ in self._failures

    def last_failure(self, id_: str) -> str | None:
        """How the handler failed with this entry, if it did so here."""
        return self._failures.get(id_)

    def stop(self) -> None:
        """Begin nothing more; what is running may end."""
        self._stopped.set()
        self._moved.set()

    async def handle(self, entries: Sequence[StreamMessage], tasks: asyncio.TaskGroup) -> None:
        """Begin all of these, each as soon as a slot is free; when stopped, give the rest back."""
        waiting = deque(entries)
        self._held.update(entry.id for entry in entries)
        while waiting and not self.stopping:
            if self.full:
                await self._next_move()
            else:
                self._busy += 1
                entry = waiting.popleft()
                task = tasks.create_task(self._handle(entry), name=f"entry {entry.id}")
                self._running[entry.id] = task
        if waiting:
            await self._release([entry.id for entry in waiting])

    async def until_free(self) -> None:
        """Wait for a free slot, or for the end."""
        while self.full and not self.stopping:
            await self._next_move()

    async def pause(self, duration_s: float) -> None:
        """Wait, but not beyond the end."""
        try:
            async with asyncio.timeout(duration_s):
                await self._stopped.wait()
        except TimeoutError:
            pass

    async def until_empty(self) -> None:
        """Wait until nothing runs."""
        while self._busy:
            await self._next_move()

    async def keep_renewing(self) -> None:
        """Renew what is in hand well before a reclaimer would take it; runs until cancelled."""
        tries = 0
        while True:
            again_s = pause_s(tries) if tries else self._renew_every_s
            await asyncio.sleep(min(self._renew_every_s, again_s))
            try:
                await self._renew()
                tries = 0
            except ValkeyError as error:
                tries += 1
                _log.warning("could not renew entries of %s: %s", self._member.stream, error)

    async def _renew(self) -> None:
        held = sorted(self._held - self._lost)
        for start in range(0, len(held), _KEEP_AT_ONCE):
            lost = await self._member.renew(held[start : start + _KEEP_AT_ONCE])
            # An entry that was acknowledged while we asked is not lost.
            for id_ in self._held.intersection(lost):
                self._lose(id_)

    def _lose(self, id_: str) -> None:
        """Another handles it now: the handler here is cancelled, and however it ends, it does not
        acknowledge what is not its own."""
        _log.warning("entry %s of %s went to another", id_, self._member.stream)
        self._lost.add(id_)
        if (task := self._running.get(id_)) is not None:
            task.cancel()

    async def _handle(self, entry: StreamMessage) -> None:
        try:
            answer = self._handler(entry)
            if inspect.isawaitable(answer):
                await answer
        except Exception as error:  # noqa: BLE001 - what it raises is its entry's trouble alone
            self._note(entry.id, error)
            _log.exception(
                "entry %s of %s: the handler failed; not acknowledged",
                *(entry.id, self._member.stream),
                extra={"entry_id": entry.id},
            )
        else:
            self._failures.pop(entry.id, None)
            self._running.pop(entry.id, None)
            if entry.id not in self._lost:
                await self._acknowledge(entry.id)
        finally:
            self._held.discard(entry.id)
            self._lost.discard(entry.id)
            self._running.pop(entry.id, None)
            self._busy -= 1
            self._moved.set()

    async def _acknowledge(self, id_: str) -> None:
        """Ask until it is answered: a handled entry must not be handled again for a lost reply."""
        tries = 0
        while True:
            last_try = self.stopping
            try:
                await self._member.ack(id_)
                return
            except ValkeyError as error:
                _log.warning("could not acknowledge %s: %s", id_, error)
                if last_try:
                    return
            await asyncio.sleep(pause_s(tries))
            tries += 1

    async def _release(self, ids: Sequence[str]) -> None:
        self._held.difference_update(ids)
        try:
            await self._member.release(ids)
        except ValkeyError as error:
            # They stay pending under our name and are reclaimed in time.
            _log.warning("could not give %d entries back: %s", len(ids), error)

    def _note(self, id_: str, error: Exception) -> None:
        self._failures.pop(id_, None)
        self._failures[id_] = f"{type(error).__name__}: {error}"
        if len(self._failures) > _REMEMBERED:
            del self._failures[next(iter(self._failures))]

    async def _next_move(self) -> None:
        self._moved.clear()
        await self._moved.wait()
