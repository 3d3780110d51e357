"""Waits for work on many queues with one blocking command (B-20).

Idle workers of this wire block on a queue's marker. All idle queues of a worker on one server block
together: one socket, however many queues. A marker tells that there is work now, or when the next
delayed job is due. The server serves those that block in the order in which they began, so the
command lasts as long as that of the official packages: a worker that asked anew more often would be
the last in line each time (decision 0206). Producers that know only the published contract write no
marker, so all idle queues are also looked at every second, in one call beside it (B-1).

`WorkerConnections` has one; an engine has its queues watched while they are idle, also while it is
busy with others.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Final, cast

from jobwire.systems.queues.clock import NowMs
from jobwire.systems.queues.codec import number_of
from jobwire.systems.queues.contract import Keys
from jobwire.systems.queues.scripts import script
from jobwire.valkey import Connection, Reply, ServerError, ValkeyError
from jobwire.valkey.errors import Moved

_log = logging.getLogger("jobwire.bullmq")

_LOOK_S: Final = 1.0
_BLOCK_S: Final = 5.0
"""As long as workers of the official packages block."""
_SHORTEST_BLOCK_S: Final = 0.005
_PAUSE_S: Final = 0.25
"""After an error of the server."""
_REFUSED_MS: Final = 1_000
"""Between two tries to watch a queue that the server refuses to read."""


class IdleQueue:
    """One queue of a worker."""

    def __init__(
        self, keys: Keys, on_work: Callable[[], None], on_error: Callable[[ValkeyError], None]
    ) -> None:
        """`on_work` is called when it may have a job; it is no longer watched then. `on_error`
        while the server does not answer."""
        self.keys = keys
        self.on_work = on_work
        self.on_error = on_error
        self.due_ms: int | None = None
        """When it has a job next, as far as known."""
        self.is_held = False
        """Its jobs may not be started before `due_ms`, whatever its marker tells."""
        self.is_unseen = True
        """It is looked at before anything else."""


class IdleQueues:
    def __init__(self, connection: Connection, now_ms: NowMs) -> None:
        self._connection = connection
        self._now_ms = now_ms
        self._watched: dict[str, IdleQueue] = {}
        """By the key of the marker."""
        self._task: asyncio.Task[None] | None = None
        self._client_id = 0
        self._blocked: frozenset[str] = frozenset()
        """The markers of the blocking command in flight."""
        self._until_ms = 0.0
        """When that command ends."""
        self._look_at_s = 0.0
        """When all watched queues are looked at next."""
        self._changed = asyncio.Event()
        """Another queue is idle."""

    def watch(self, queue: IdleQueue) -> None:
        """Call the queue's `on_work` when it may have a job."""
        self._watched[queue.keys.marker] = queue
        self._changed.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="bullmq: idle queues")
        elif self._client_id and not self._is_waited_for(queue):
            self._task.get_loop().call_soon(self._block_anew)

    def forget(self, queue: IdleQueue) -> None:
        """Watch it no longer."""
        self._watched.pop(queue.keys.marker, None)

    async def close(self) -> None:
        self._watched.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # Looking

    async def _look(self, queues: Iterable[IdleQueue]) -> None:
        """Read when each queue has a job next."""
        found = [queue for queue in queues if not queue.is_held]
        if not found:
            return
        keys = [queue.keys.meta for queue in found]
        reply = await self._connection.run(script("peek"), keys, (self._now_ms(), 0))
        for queue, due in zip(found, cast("list[str]", reply), strict=True):
            queue.is_unseen = False
            queue.due_ms = int(due) if due else None

    async def _look_at_all(self) -> bool:
        """Look at all watched queues, if it is time."""
        if self._now_s() < self._look_at_s:
            return False
        self._look_at_s = self._now_s() + _LOOK_S
        await self._look(tuple(self._watched.values()))
        return True

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    # The blocking command

    def _is_waited_for(self, queue: IdleQueue) -> bool:
        """Whether the command in flight ends when the queue has a job."""
        if queue.is_unseen or (queue.due_ms is not None and queue.due_ms < self._until_ms):
            return False
        return queue.is_held or queue.keys.marker in self._blocked

    def _block_anew(self) -> None:
        """A queue became idle after the blocking command was sent: end that one."""
        if not self._client_id or all(map(self._is_waited_for, self._watched.values())):
            return
        try:
            reply = self._connection.call("CLIENT", "UNBLOCK", self._client_id)
        except ValkeyError:
            return  # the blocking command ends by itself
        cast("asyncio.Future[Reply]", reply).add_done_callback(lambda done: done.exception())

    async def _run(self) -> None:
        """Until no queue is idle."""
        self._look_at_s = self._now_s() + _LOOK_S
        while self._watched:
            try:
                if not await self._look_at_all() and (
                    unseen := [each for each in self._watched.values() if each.is_unseen]
                ):
                    await self._look(unseen)
                self._report_due()
                if self._watched:
                    await self._wait()
            except ValkeyError as error:
                await self._failed(error)

    async def _failed(self, error: ValkeyError) -> None:
        """A call for all queues failed. Where the server refuses to read some of them, because of
        the type of a key or by its access rules, the others need not wait for them."""
        queues = [queue for queue in self._watched.values() if not queue.is_held]
        if isinstance(error, ServerError) and len(self._watched) > 1:
            asked = [self._connection.call("ZCARD", queue.keys.marker) for queue in queues]
            answers = await asyncio.gather(*asked, return_exceptions=True)
            refused = [
                queue
                for queue, answer in zip(queues, answers, strict=True)
                if isinstance(answer, ServerError)
            ]
            for queue in refused:
                _log.error(
                    "a queue cannot be watched queue=%(queue)s error=%(error)s; will retry",
                    {"queue": queue.keys.queue, "error": error},
                )
                queue.is_held, queue.is_unseen = True, False
                queue.due_ms = self._now_ms() + _REFUSED_MS
            if refused:
                return
        for queue in tuple(self._watched.values()):
            queue.is_unseen = True
            queue.on_error(error)
        await asyncio.sleep(_PAUSE_S)

    def _report_due(self) -> None:
        now_ms = self._now_ms()
        for queue in tuple(self._watched.values()):
            if queue.due_ms is not None and queue.due_ms <= now_ms:
                self._report(queue)

    def _report(self, queue: IdleQueue) -> None:
        queue.due_ms = None
        self.forget(queue)
        queue.on_work()

    def _until_due_s(self) -> float:
        now_ms = self._now_ms()
        due = [each.due_ms for each in self._watched.values() if each.due_ms is not None]
        return (min(due) - now_ms) / 1000 if due else _BLOCK_S

    async def _wait(self) -> None:
        if not all(queue.is_held for queue in self._watched.values()):
            return await self._block()
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(_SHORTEST_BLOCK_S, self._until_due_s())):
                await self._changed.wait()
        return None

    async def _block(self) -> None:
        async with self._connection.socket() as own:
            # Chosen after the socket was acquired: all that are idle by now are in it.
            markers = [key for key, queue in self._watched.items() if not queue.is_held]
            if not markers or any(queue.is_unseen for queue in self._watched.values()):
                return
            timeout_s = max(_SHORTEST_BLOCK_S, min(_BLOCK_S, self._until_due_s()))
            self._client_id, self._blocked = own.client_id, frozenset(markers)
            self._until_ms = self._now_ms() + timeout_s * 1000
            try:
                popping = own.call("BZPOPMIN", *markers, timeout_s, block_s=timeout_s)
                await self._look_meanwhile(popping)
                reply = await popping
            except Moved:
                return  # the next one is at the node that has the slot now
            finally:
                self._client_id, self._blocked = 0, frozenset()
        if reply is not None:
            await self._popped(*cast("tuple[str, str, float | str]", reply))

    async def _look_meanwhile(self, popping: asyncio.Future[Reply]) -> None:
        while not popping.done():
            await asyncio.wait([popping], timeout=max(0.0, self._look_at_s - self._now_s()))
            if not popping.done() and await self._look_at_all():
                self._report_due()
                self._block_anew()

    async def _popped(self, marker: str, member: str, score: float | str) -> None:
        queue = self._watched.get(marker)
        if queue is None:
            # It became busy in the same moment: another worker may need the marker.
            await self._connection.call("ZADD", marker, score, member)
        elif float(score) <= self._now_ms():
            self._report(queue)
        elif (due_ms := number_of(score)) is not None:
            queue.due_ms = due_ms if queue.due_ms is None else min(queue.due_ms, due_ms)
