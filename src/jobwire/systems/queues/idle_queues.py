"""Waits for work on many queues with one blocking command (B-20).

Idle workers of this wire block on a queue's marker. All queues of a worker on one server block
together: one socket, however many queues. A marker tells that there is work now, or when the next
delayed job is due. Producers that know only the published contract write no marker, so all idle
queues are also looked at every second, in one call (B-1).

`WorkerConnections` has one; each engine waits here for its own queue.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final, cast

from jobwire.systems.queues.clock import NowMs
from jobwire.systems.queues.contract import Keys
from jobwire.systems.queues.scripts import script
from jobwire.valkey import Connection, Reply, ValkeyError

_log = logging.getLogger("jobwire.bullmq")

_LOOK_S: Final = 1.0
_SHORTEST_BLOCK_S: Final = 0.005
_PAUSE_S: Final = 0.25
"""After an error of the server."""


class IdleQueue:
    """One queue of the worker, while it waits and while it does not."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.due_ms: int | None = None
        """When it has a job next, as far as known."""
        self.waiter: asyncio.Future[bool] | None = None

    def resolve(self, has_work: bool) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(has_work)


class IdleQueues:
    def __init__(self, connection: Connection, now_ms: NowMs) -> None:
        self._connection = connection
        self._now_ms = now_ms
        self._waiting: dict[str, IdleQueue] = {}
        """By the key of the marker."""
        self._task: asyncio.Task[None] | None = None
        self._client_id = 0
        self._blocked: frozenset[str] = frozenset()
        """The markers of the blocking command in flight."""

    async def wait(self, queue: IdleQueue, timeout_s: float) -> bool:
        """Whether the queue has work; False after the timeout or by `resolve(False)`. ValkeyError
        where the server does not answer."""
        marker = queue.keys.marker
        queue.waiter = asyncio.get_running_loop().create_future()
        self._waiting[marker] = queue
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="bullmq: idle queues")
        elif self._client_id and marker not in self._blocked:
            self._task.get_loop().call_soon(self._block_anew)
        try:
            async with asyncio.timeout(timeout_s):
                return await queue.waiter
        except TimeoutError:
            return False
        finally:
            queue.waiter = None
            self._waiting.pop(marker, None)

    async def check(self, queues: Iterable[IdleQueue]) -> None:
        """Read when each queue has a job next."""
        found = list(queues)
        if not found:
            return
        keys = [queue.keys.meta for queue in found]
        reply = await self._connection.run(script("peek"), keys, (self._now_ms(), 0))
        for queue, due in zip(found, cast("list[str]", reply), strict=True):
            queue.due_ms = int(due) if due else None

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # The blocking command

    def _block_anew(self) -> None:
        """A queue began to wait after the blocking command was sent: end that one."""
        if not self._client_id or self._blocked.issuperset(self._waiting):
            return
        try:
            reply = self._connection.call("CLIENT", "UNBLOCK", self._client_id)
        except ValkeyError:
            return  # the blocking command ends by itself
        cast("asyncio.Future[Reply]", reply).add_done_callback(lambda done: done.exception())

    async def _run(self) -> None:
        """Until no queue has waited for a while."""
        looked_s = asyncio.get_running_loop().time()
        while self._waiting:
            try:
                now_s = asyncio.get_running_loop().time()
                if now_s - looked_s >= _LOOK_S:
                    looked_s = now_s
                    await self.check(tuple(self._waiting.values()))
                self._resolve_due()
                if self._waiting:
                    await self._block(min(self._until_due_s(), looked_s + _LOOK_S - now_s))
            except ValkeyError as error:
                self._fail(error)
                await asyncio.sleep(_PAUSE_S)

    def _resolve_due(self) -> None:
        now_ms = self._now_ms()
        for queue in self._waiting.values():
            if queue.due_ms is not None and queue.due_ms <= now_ms:
                queue.due_ms = None
                queue.resolve(True)
        self._waiting = {
            marker: queue
            for marker, queue in self._waiting.items()
            if queue.waiter is not None and not queue.waiter.done()
        }

    def _until_due_s(self) -> float:
        now_ms = self._now_ms()
        due = [each.due_ms for each in self._waiting.values() if each.due_ms is not None]
        return (min(due) - now_ms) / 1000 if due else _LOOK_S

    async def _block(self, timeout_s: float) -> None:
        timeout_s = max(_SHORTEST_BLOCK_S, min(_LOOK_S, timeout_s))
        async with self._connection.socket() as own:
            # Chosen after the socket was acquired: all that wait by now are in it.
            markers = tuple(self._waiting)
            if not markers:
                return
            self._client_id, self._blocked = own.client_id, frozenset(markers)
            try:
                reply = await own.call("BZPOPMIN", *markers, timeout_s, block_s=timeout_s)
            finally:
                self._client_id, self._blocked = 0, frozenset()
        if reply is not None:
            await self._popped(*cast("tuple[str, str, float | str]", reply))

    async def _popped(self, marker: str, member: str, score: float | str) -> None:
        queue = self._waiting.get(marker)
        if queue is None:
            # Its wait ended in the same moment: another worker may need the marker.
            await self._connection.call("ZADD", marker, score, member)
        elif float(score) <= self._now_ms():
            queue.due_ms = None
            queue.resolve(True)
        else:
            due_ms = int(float(score))
            queue.due_ms = due_ms if queue.due_ms is None else min(queue.due_ms, due_ms)

    def _fail(self, error: ValkeyError) -> None:
        for queue in self._waiting.values():
            if queue.waiter is not None and not queue.waiter.done():
                queue.waiter.set_exception(error)
