"""Claims idle entries: those whose consumer died, hung or failed.

Runs next to the consumers of a group, in any number of programs. An entry that has used all its
deliveries goes to the dead-letter stream `<stream>:dead` with the reason.
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
from jobwire.valkey.errors import GroupNotFound, ValkeyError
from jobwire.valkey.in_flight import Handler, InFlight
from jobwire.valkey.lifecycle import Lifecycle
from jobwire.valkey.operations import Client
from jobwire.valkey.plain_group import group_consumer

_log = logging.getLogger("jobwire.valkey.reclaimer")
_READY_S: Final = 10.0
_FORGET_AFTER_S: Final = 24 * 3600.0  # then an idle consumer without entries is removed


class Reclaimer(Lifecycle):
    """Scans a group every `scan_interval_s` and calls the handler for idle entries.

    It claims them as `<consumer>:reclaimer`, separate from the entries of a consumer of that name.
    """

    def __init__(
        self,
        connection: Client,
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
        check_client(connection, "xpending_range", "xclaim", "xack", "xadd_maxlen")
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
        self._group_consumer = group_consumer(connection, stream, group, f"{consumer}:reclaimer")
        self._in_flight = InFlight(
            self._group_consumer,
            handler,
            concurrency=concurrency,
            idle_timeout_s=idle_timeout_s,
            max_deliveries=max_deliveries,
        )
        self._idle_timeout_s = idle_timeout_s
        self._scan_interval_s = scan_interval_s
        self._count = count
        self._forget_after_s = forget_after_s

    async def _run(self) -> None:
        async with self._in_flight.running(self._name) as tasks:
            self._ready.set()
            while not self._in_flight.stopping:
                await self._scan(tasks)
                await self._in_flight.pause(self._scan_interval_s)

    async def _request_stop(self) -> None:
        self._in_flight.stop()

    async def _scan(self, tasks: asyncio.TaskGroup) -> None:
        """One scan; after an error the next scan follows as planned."""
        try:
            await self._in_flight.handle_pending(tasks, self._count, idle_s=self._idle_timeout_s)
            for name in await self._group_consumer.remove_idle_consumers(self._forget_after_s):
                _log.info(
                    "idle consumer removed consumer=%(consumer)s stream=%(stream)s",
                    {"consumer": name, "stream": self._group_consumer.stream},
                )
        except GroupNotFound:
            pass  # the stream has not been read yet, or the server was flushed
        except ValkeyError as error:
            _log.warning(
                "scan failed consumer=%(consumer)s after_s=%(after_s)s error=%(error)s; will retry",
                {"consumer": self._name, "after_s": self._scan_interval_s, "error": error},
            )
        except Exception:  # noqa: BLE001 - an unexpected error must not end the loop silently
            _log.exception(
                "scan failed unexpectedly consumer=%(consumer)s after_s=%(after_s)s; will retry",
                {"consumer": self._name, "after_s": self._scan_interval_s},
            )
