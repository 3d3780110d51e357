"""Takes over what others left: entries whose consumer died, froze or failed.

Runs beside the consumers of a group, in as many programs as you like; they do not get in each
other's way. An entry that nobody could handle goes to the dead-letter stream `<stream>:dead`
with the reason, so that it neither is lost nor comes back for ever.
"""

import asyncio
import logging
from typing import Final

from jobwire.valkey.checks import check_callable, check_count, check_duration, check_text
from jobwire.valkey.connection import Connection
from jobwire.valkey.errors import GroupNotFound, ValkeyError
from jobwire.valkey.exhausted import is_exhausted, reason_for
from jobwire.valkey.group_consumer import GroupConsumer, Pending
from jobwire.valkey.in_flight import Handler, InFlight
from jobwire.valkey.lifecycle import Lifecycle

_log = logging.getLogger("jobwire.valkey.reclaimer")
_READY_S: Final = 10.0
_FORGET_AFTER_S: Final = 24 * 3600.0


class Reclaimer(Lifecycle):
    """Scans a group every `scan_interval_s` and hands idle entries to the handler.

    It holds them as `<consumer>:reclaimer`, apart from what a consumer of that name holds.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        stream: str,
        group: str,
        consumer: str,
        handler: Handler,
        idle_timeout_s: float = 300.0,
        scan_interval_s: float = 60.0,
        max_deliveries: int = 5,
        count: int = 10,
        concurrency: int = 1,
        forget_after_s: float = _FORGET_AFTER_S,
    ) -> None:
        for name, text in (("stream", stream), ("group", group), ("consumer", consumer)):
            check_text(name, text)
        check_callable("handler", handler)
        check_count("max_deliveries", max_deliveries)
        check_count("count", count)
        check_count("concurrency", concurrency)
        check_duration("idle_timeout_s", idle_timeout_s)
        check_duration("scan_interval_s", scan_interval_s)
        check_duration("forget_after_s", forget_after_s)
        super().__init__(f"reclaimer {consumer} of {stream}", _READY_S)
        self._member = GroupConsumer(connection, stream, group, f"{consumer}:reclaimer")
        self._hand = InFlight(
            self._member, handler, concurrency=concurrency, idle_timeout_s=idle_timeout_s
        )
        self._idle_timeout_s = idle_timeout_s
        self._scan_interval_s = scan_interval_s
        self._max_deliveries = max_deliveries
        self._count = count
        self._forget_after_s = forget_after_s

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            keeper = tasks.create_task(self._hand.keep_renewing(), name=f"{self._name}: keeper")
            self._ready.set()
            while not self._hand.stopping:
                await self._scan(tasks)
                await self._hand.pause(self._scan_interval_s)
            await self._hand.until_empty()
            keeper.cancel()

    async def _wind_down(self) -> None:
        self._hand.stop()

    async def _scan(self, tasks: asyncio.TaskGroup) -> None:
        """One pass; trouble ends it, and the next one comes."""
        try:
            await self._reclaim(tasks)
            for name in await self._member.remove_idle_consumers(self._forget_after_s):
                _log.info("consumer %s of %s is forgotten", name, self._member.stream)
        except GroupNotFound:
            pass  # nobody has read this stream yet, or the server was emptied
        except ValkeyError as error:
            _log.warning("%s: %s; next time", self._name, error)
        except Exception:  # noqa: BLE001 - a loop that ended unseen would be worse
            _log.exception("%s: unexpected; next time", self._name)

    async def _reclaim(self, tasks: asyncio.TaskGroup) -> None:
        after = "-"
        while not self._hand.stopping:
            page = await self._member.pending(after, self._count, idle_s=self._idle_timeout_s)
            if not page:
                return
            after = f"({page[-1].id}"
            for entry in page:
                if is_exhausted(entry, self._max_deliveries):
                    await self._dead_letter(entry)
            living = [entry for entry in page if not is_exhausted(entry, self._max_deliveries)]
            entries = await self._member.claim(living, idle_s=self._idle_timeout_s)
            await self._hand.handle(entries, tasks)

    async def _dead_letter(self, entry: Pending) -> None:
        reason = reason_for(entry, self._hand.last_failure(entry.id))
        if await self._member.dead_letter(entry, reason, idle_s=self._idle_timeout_s):
            _log.error("entry %s of %s is dead: %s", entry.id, self._member.stream, reason)
