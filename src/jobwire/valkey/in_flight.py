"""Entries in flight: handled with bounded concurrency, renewed, acknowledged when done.

Used by the consumer and the reclaimer, which differ only in where entries come from. An entry
whose handler fails is not acknowledged; other entries are not affected.
"""

import asyncio
import contextlib
import inspect
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from jobwire.valkey.answers import Answer, DeadLetter, NotNow
from jobwire.valkey.dial import backoff_s
from jobwire.valkey.errors import ValkeyError
from jobwire.valkey.group_consumer import GroupConsumer
from jobwire.valkey.operations import Pending, StreamMessage

T = TypeVar("T")

Handler = Callable[[StreamMessage], Awaitable[Answer] | Answer]
"""Called with an entry. Returning acknowledges it, unless the answer is `DeadLetter` or `NotNow`;
raising leaves it pending."""

_log = logging.getLogger("jobwire.valkey.handling")
_RENEW_BATCH: Final = 500
_MAX_FAILURES: Final = 10_000
_MAX_REASON: Final = 1000


class InFlight:
    """Runs the handler for entries; bounded by `concurrency`."""

    def __init__(
        self,
        group_consumer: GroupConsumer,
        handler: Handler,
        *,
        concurrency: int,
        idle_timeout_s: float,
        max_deliveries: int,
    ) -> None:
        self._group_consumer = group_consumer
        self._max_deliveries = max_deliveries
        self._handler = handler
        self._concurrency = concurrency
        self._renew_every_s = idle_timeout_s / 3
        self._ids: set[str] = set()
        self._lost: set[str] = set()
        """Ids that another consumer has claimed."""
        self._running: dict[str, asyncio.Task[None]] = {}
        self._busy = 0
        self._slot_change = asyncio.Event()
        self._failures: dict[str, str] = {}
        self._stopped = asyncio.Event()

    @property
    def stopping(self) -> bool:
        """Whether no more handlers are started."""
        return self._stopped.is_set()

    @property
    def full(self) -> bool:
        """Whether all slots are in use."""
        return self._busy >= self._concurrency

    def stop(self) -> None:
        """Start no more handlers; running ones may finish."""
        self._stopped.set()
        self._slot_change.set()

    @contextlib.asynccontextmanager
    async def running(self, name: str) -> AsyncGenerator[asyncio.TaskGroup]:
        """Renew entries in flight inside the block; its end waits until no handler runs."""
        async with asyncio.TaskGroup() as tasks:
            renewal = tasks.create_task(self._keep_renewing(), name=f"{name}: renewal")
            yield tasks
            while self._busy:
                await self._wait_slot_change()
            renewal.cancel()

    async def handle_pending(
        self, tasks: asyncio.TaskGroup, limit: int, *, idle_s: float, orphans: bool = False
    ) -> None:
        """Claim and handle pending entries, `limit` at a time: those of all consumers that are idle
        for `idle_s`, or the `orphans`, which are pending under this consumer's name and have not
        failed here. An entry that has used all its deliveries goes to the dead letters.

        None that is in flight here: a process that stood still has not renewed its own.
        """
        consumer = self._group_consumer
        after, holder = "-", consumer.consumer if orphans else None
        while not self.stopping:
            page = await consumer.pending(after, limit, holder=holder, idle_s=idle_s)
            if not page:
                return
            after = f"({page[-1].id}"
            retryable: list[Pending] = []
            for entry in page:
                if entry.id in self._ids or (orphans and entry.id in self._failures):
                    continue
                if entry.deliveries < self._max_deliveries:
                    retryable.append(entry)
                else:
                    reason = _exhausted(entry, self._failures.get(entry.id, ""))
                    await self._dead_letter(entry, reason, idle_s)
            await self.handle(await consumer.claim(retryable, idle_s=idle_s), tasks)

    async def handle(self, entries: Sequence[StreamMessage], tasks: asyncio.TaskGroup) -> None:
        """Start a handler for each entry as slots become free; when stopped, release the rest."""
        waiting = deque(entries)
        self._ids.update(entry.id for entry in entries)
        while waiting and not self.stopping:
            if self.full:
                await self._wait_slot_change()
            else:
                self._busy += 1
                entry = waiting.popleft()
                task = tasks.create_task(self._handle(entry), name=f"entry {entry.id}")
                self._running[entry.id] = task
        if waiting:
            await self._release([entry.id for entry in waiting])

    async def until_free(self) -> None:
        """Wait for a free slot or the stop."""
        while self.full and not self.stopping:
            await self._wait_slot_change()

    async def pause(self, duration_s: float) -> None:
        """Wait for a duration or the stop."""
        try:
            async with asyncio.timeout(duration_s):
                await self._stopped.wait()
        except TimeoutError:
            pass

    async def _keep_renewing(self) -> None:
        """Renew entries in flight before a reclaimer claims them; runs until cancelled."""
        attempts = 0
        while True:
            delay_s = backoff_s(attempts) if attempts else self._renew_every_s
            await asyncio.sleep(min(self._renew_every_s, delay_s))
            try:
                await self._renew()
                attempts = 0
            except ValkeyError as error:
                attempts += 1
                _log.warning(
                    "renewal failed stream=%(stream)s error=%(error)s; retrying",
                    {"stream": self._group_consumer.stream, "error": error},
                )

    async def _renew(self) -> None:
        ids = sorted(self._ids - self._lost)
        for start in range(0, len(ids), _RENEW_BATCH):
            lost = await self._group_consumer.renew(ids[start : start + _RENEW_BATCH])
            # An entry that was acknowledged during the call is not lost.
            for id_ in self._ids.intersection(lost):
                self._lose(id_)

    def _lose(self, id_: str) -> None:
        """Another consumer has the entry: cancel the handler here and never acknowledge."""
        _log.warning(
            "entry lost to another consumer entry_id=%(entry_id)s stream=%(stream)s; its handler "
            "is cancelled",
            {"entry_id": id_, "stream": self._group_consumer.stream},
        )
        self._lost.add(id_)
        if (task := self._running.get(id_)) is not None:
            task.cancel()

    async def _handle(self, entry: StreamMessage) -> None:
        try:
            answer = await self._call(entry)
            if isinstance(answer, NotNow):
                _log.warning(
                    "entry postponed entry_id=%(entry_id)s stream=%(stream)s after_s=%(after_s)s "
                    "reason=%(reason)s",
                    {
                        "entry_id": entry.id,
                        "stream": self._group_consumer.stream,
                        "after_s": answer.retry_after_s,
                        "reason": answer.reason,
                    },
                )
            while isinstance(answer, NotNow):
                if not await self._postpone(entry.id, answer.retry_after_s):
                    return
                answer = await self._call(entry)
        except Exception as error:  # noqa: BLE001 - a handler's error affects its entry only
            self._record_failure(entry.id, error)
            _log.exception(
                "handler failed entry_id=%(entry_id)s stream=%(stream)s; the entry is not "
                "acknowledged",
                {"entry_id": entry.id, "stream": self._group_consumer.stream},
            )
        else:
            self._failures.pop(entry.id, None)
            self._running.pop(entry.id, None)
            if entry.id not in self._lost:
                await self._finish(entry.id, answer)
        finally:
            self._ids.discard(entry.id)
            self._lost.discard(entry.id)
            self._running.pop(entry.id, None)
            self._busy -= 1
            self._slot_change.set()

    async def _call(self, entry: StreamMessage) -> Answer:
        answer = self._handler(entry)
        return await answer if inspect.isawaitable(answer) else answer

    async def _finish(self, id_: str, answer: DeadLetter | None) -> None:
        """Acknowledge a handled entry, or move it to the dead letters."""
        if not isinstance(answer, DeadLetter):
            await self._repeat("acknowledge", id_, partial(self._group_consumer.ack, id_))
            return
        entry = Pending(id_, self._group_consumer.consumer, 0, 1)
        move = partial(self._dead_letter, entry, _sendable(answer.reason), 0.0)
        await self._repeat("dead letter", id_, move)

    async def _dead_letter(self, entry: Pending, reason: str, idle_s: float) -> None:
        if await self._group_consumer.dead_letter(entry, reason, idle_s=idle_s):
            _log.error(
                "entry moved to dead letters entry_id=%(entry_id)s stream=%(stream)s "
                "reason=%(reason)s",
                {"entry_id": entry.id, "stream": self._group_consumer.stream, "reason": reason},
            )

    async def _postpone(self, id_: str, delay_s: float) -> bool:
        """Wait with an entry that is not counted meanwhile; False if it is not to be handled here:
        the consumer stops, or the entry was lost or deleted.

        Counted again before the handler is called, so that a handler that ends the process is.
        """
        consumer = self._group_consumer
        await self._repeat("postpone", id_, partial(consumer.postpone, id_))
        await self.pause(delay_s)
        resumed = await self._repeat("resume", id_, partial(consumer.resume, id_))
        if self.stopping and resumed:
            await self._release([id_])
        return bool(resumed) and not self.stopping

    async def _repeat(self, what: str, id_: str, step: Callable[[], Awaitable[T]]) -> T | None:
        """Repeat until the server has done it: a handled entry must not be handled again. None if
        it is stopped without success."""
        attempts = 0
        while True:
            last_attempt = self.stopping
            try:
                return await step()
            except ValkeyError as error:
                _log.warning(
                    "entry not changed step=%(step)s entry_id=%(entry_id)s error=%(error)s; will "
                    "retry",
                    {"step": what, "entry_id": id_, "error": error},
                )
                if last_attempt:
                    return None
            await asyncio.sleep(backoff_s(attempts))
            attempts += 1

    async def _release(self, ids: Sequence[str]) -> None:
        self._ids.difference_update(ids)
        try:
            await self._group_consumer.release(ids)
        except ValkeyError as error:
            # They stay pending under this name until a reclaimer claims them.
            _log.warning(
                "release failed entries=%(entries)s error=%(error)s; they are reclaimed later",
                {"entries": len(ids), "error": error},
            )

    def _record_failure(self, id_: str, error: Exception) -> None:
        self._failures.pop(id_, None)
        self._failures[id_] = f"{type(error).__name__}: {error}"
        if len(self._failures) > _MAX_FAILURES:
            del self._failures[next(iter(self._failures))]

    async def _wait_slot_change(self) -> None:
        self._slot_change.clear()
        await self._slot_change.wait()


def _exhausted(entry: Pending, last_failure: str) -> str:
    """The `reason` field of the dead letter of an entry that has used all its deliveries."""
    why = (
        f"its handler failed: {_sendable(last_failure)}"
        if last_failure
        else "its consumers stopped"
    )
    return f"delivered {entry.deliveries} times and never acknowledged; {why}"


def _sendable(text: str) -> str:
    """The text in its bounds, without lone surrogates, which cannot be sent."""
    return text.encode("utf-8", "replace").decode()[:_MAX_REASON]
