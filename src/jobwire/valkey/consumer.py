"""Reads a stream as a consumer of a group and calls a handler for each entry.

An entry is acknowledged when its handler returned. Until then it is pending and is delivered
again: at-least-once. The consumer continues after a restart, a flush or a failover of the server.
"""

import asyncio
import logging
from typing import Final

from jobwire.valkey.checks import (
    check_callable,
    check_client,
    check_count,
    check_duration,
    check_text,
)
from jobwire.valkey.dial import backoff_s
from jobwire.valkey.errors import ServerError, ValkeyError
from jobwire.valkey.group_consumer import GroupReader
from jobwire.valkey.in_flight import Handler, InFlight
from jobwire.valkey.lifecycle import Lifecycle
from jobwire.valkey.operations import Client
from jobwire.valkey.plain_group import group_consumer

_log = logging.getLogger("jobwire.valkey.consumer")
# A repetition gets the same answer: the key has another type, or permission is missing.
_FINAL: Final = frozenset({"WRONGTYPE", "NOPERM"})
_PAGE: Final = 100


class Consumer(Lifecycle):
    """One consumer of a group.

    `count` entries at most are read at once, `concurrency` are handled at the same time.
    `idle_timeout_s` and `max_deliveries` are those of the group's reclaimer: entries in flight are
    renewed at a third of the former, and an entry that was delivered as often as the latter is
    not retried. Each consumer occupies one of the connection's `pool_size` sockets. Any object with
    the `Client` protocol can take the connection's place.
    """

    def __init__(
        self,
        connection: Client,
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
        check_client(
            connection,
            *("xgroup_create_mkstream", "xreadgroup", "xack", "xclaim", "xadd_maxlen"),
        )
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
        self._group_consumer = group_consumer(connection, stream, group, consumer)
        self._in_flight = InFlight(
            self._group_consumer,
            handler,
            concurrency=concurrency,
            idle_timeout_s=idle_timeout_s,
            max_deliveries=max_deliveries,
        )
        self._count = count
        self._block_s = block_s
        self._reading: GroupReader | None = None

    async def _run(self) -> None:
        await self._ensure_group()
        async with self._in_flight.running(self._name) as tasks:
            await self._read_until_stopped(tasks)

    async def _request_stop(self) -> None:
        self._in_flight.stop()
        # The read is not cancelled: entries it returns at that moment would stay pending, unseen.
        # Repeated, because the server may get UNBLOCK before the read that it is to end.
        while (reading := self._reading) is not None:
            try:
                async with asyncio.timeout(self._block_s):
                    await reading.unblock()
            except (ValkeyError, TimeoutError):
                _log.debug(
                    "unblock failed consumer=%(consumer)s; the read ends at its timeout",
                    {"consumer": self._name},
                )
            await asyncio.sleep(0.01)

    async def _ensure_group(self) -> None:
        """Create the group; retried until the server is available."""
        attempts = 0
        while True:
            try:
                return await self._group_consumer.ensure_group()
            except ValkeyError as error:
                if isinstance(error, ServerError) and error.code in _FINAL:
                    raise
                self._last_error = error
            await asyncio.sleep(backoff_s(attempts))
            attempts += 1

    async def _read_until_stopped(self, tasks: asyncio.TaskGroup) -> None:
        attempts = 0
        while not self._in_flight.stopping:
            try:
                if attempts:
                    await self._group_consumer.ensure_group()
                # A lost reply may have left entries pending under this name that were not seen.
                await self._in_flight.handle_pending(tasks, _PAGE, idle_s=0.0, orphans=True)
                self._ready.set()
                attempts = 0
                await self._read_on(tasks)
            except ValkeyError as error:
                if attempts == 0 or str(error) != str(self._last_error):
                    _log.warning(
                        "read failed consumer=%(consumer)s error=%(error)s; will retry",
                        {"consumer": self._name, "error": error},
                    )
                self._last_error = error
            except Exception:  # noqa: BLE001 - an unexpected error must not end the loop silently
                _log.exception(
                    "read failed unexpectedly consumer=%(consumer)s; will retry",
                    {"consumer": self._name},
                )
            await self._in_flight.pause(backoff_s(attempts))
            attempts += 1

    async def _read_on(self, tasks: asyncio.TaskGroup) -> None:
        """Read and handle until stopped or until an error."""
        async with self._group_consumer.reader() as reader:
            while True:
                await self._in_flight.until_free()
                if self._in_flight.stopping:
                    return
                self._reading = reader
                try:
                    entries = await reader.read(self._count, self._block_s)
                finally:
                    self._reading = None
                await self._in_flight.handle(entries, tasks)
