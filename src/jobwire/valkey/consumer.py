"""Reads a stream as a member of a group and hands every entry to a handler, come what may.

For programs that work off a stream. An entry is acknowledged when its handler returned; until
then it is pending, and someone will handle it again: each entry is handled at least once. The
server may restart, be emptied or fail over meanwhile; the consumer goes on.
"""

import asyncio
import logging
from typing import Final

from jobwire.valkey.checks import check_callable, check_count, check_duration, check_text
from jobwire.valkey.connection import Connection, pause_s
from jobwire.valkey.errors import ServerError, ValkeyError
from jobwire.valkey.exhausted import is_exhausted, reason_for
from jobwire.valkey.group_consumer import GroupConsumer
from jobwire.valkey.in_flight import Handler, InFlight
from jobwire.valkey.lifecycle import Lifecycle

_log = logging.getLogger("jobwire.valkey.consumer")
# The server will say the same again: the key holds something else, or we may not.
_FINAL: Final = frozenset({"WRONGTYPE", "NOPERM"})
_PAGE: Final = 100


class Consumer(Lifecycle):
    """One consumer of a group.

    `count` entries at most are read at once, `concurrency` are handled at the same time.
    `idle_timeout_s` and `max_deliveries` are those of the group's reclaimer: entries in hand are
    renewed at a third of the former, and what was delivered more often than the latter is not
    tried again. Each consumer occupies one of the connection's `pool_size` sockets.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        stream: str,
        group: str,
        consumer: str,
        handler: Handler,
        count: int = 10,
        block_s: float = 5.0,
        ready_timeout_s: float = 10.0,
        concurrency: int = 1,
        idle_timeout_s: float = 300.0,
        max_deliveries: int = 5,
    ) -> None:
        for name, text in (("stream", stream), ("group", group), ("consumer", consumer)):
            check_text(name, text)
        check_callable("handler", handler)
        check_count("count", count)
        check_count("concurrency", concurrency)
        check_count("max_deliveries", max_deliveries)
        check_duration("block_s", block_s)
        check_duration("ready_timeout_s", ready_timeout_s)
        check_duration("idle_timeout_s", idle_timeout_s)
        super().__init__(f"consumer {consumer} of {stream}", ready_timeout_s)
        self._connection = connection
        self._member = GroupConsumer(connection, stream, group, consumer)
        self._hand = InFlight(
            self._member, handler, concurrency=concurrency, idle_timeout_s=idle_timeout_s
        )
        self._count = count
        self._block_s = block_s
        self._max_deliveries = max_deliveries
        self._blocked: int | None = None

    async def _run(self) -> None:
        await self._join()
        async with asyncio.TaskGroup() as tasks:
            keeper = tasks.create_task(self._hand.keep_renewing(), name=f"{self._name}: keeper")
            await self._read_until_stopped(tasks)
            await self._hand.until_empty()
            keeper.cancel()

    async def _wind_down(self) -> None:
        self._hand.stop()
        # Not by cancelling the read: what it brings at that moment would be pending and unseen.
        # Asked again and again, since the server may get this before the read it is to end.
        while (blocked := self._blocked) is not None:
            try:
                async with asyncio.timeout(self._block_s):
                    await self._connection.call("CLIENT", "UNBLOCK", blocked)
            except (ValkeyError, TimeoutError):
                _log.debug("could not unblock the read; it ends by itself")
            await asyncio.sleep(0.01)

    async def _join(self) -> None:
        """Make the group, waiting for the server if need be."""
        tries = 0
        while True:
            try:
                return await self._member.ensure_group()
            except ValkeyError as error:
                if isinstance(error, ServerError) and error.code in _FINAL:
                    raise
                self._trouble = error
            await asyncio.sleep(pause_s(tries))
            tries += 1

    async def _read_until_stopped(self, tasks: asyncio.TaskGroup) -> None:
        tries = 0
        while not self._hand.stopping:
            try:
                if tries:
                    await self._member.ensure_group()
                # After a lost reply entries may be pending under our name that we never saw.
                await self._recover_orphans(tasks)
                self._ready.set()
                tries = 0
                await self._read_on(tasks)
            except ValkeyError as error:
                if tries == 0 or str(error) != str(self._trouble):
                    _log.warning("%s: %s; trying again", self._name, error)
                self._trouble = error
            except Exception:  # noqa: BLE001 - a loop that ended unseen would be worse
                _log.exception("%s: unexpected; trying again", self._name)
            await self._hand.pause(pause_s(tries))
            tries += 1

    async def _read_on(self, tasks: asyncio.TaskGroup) -> None:
        """Read and handle until the end, or until something goes wrong."""
        async with self._connection.socket() as own:
            while True:
                await self._hand.until_free()
                if self._hand.stopping:
                    return
                self._blocked = own.client_id
                try:
                    entries = await self._member.read_new(own, self._count, self._block_s)
                finally:
                    self._blocked = None
                await self._hand.handle(entries, tasks)

    async def _recover_orphans(self, tasks: asyncio.TaskGroup) -> None:
        """Handle what is pending under our own name and not in hand."""
        after = "-"
        while not self._hand.stopping:
            page = await self._member.pending(after, _PAGE, holder=self._member.consumer)
            if not page:
                return
            after = f"({page[-1].id}"
            strange = [entry for entry in page if not self._hand.knows(entry.id)]
            for entry in strange:
                if is_exhausted(entry, self._max_deliveries):
                    await self._member.dead_letter(entry, reason_for(entry, None), idle_s=0.0)
            living = [entry for entry in strange if not is_exhausted(entry, self._max_deliveries)]
            await self._hand.handle(await self._member.claim(living, idle_s=0.0), tasks)
