"""The shard table in the first shard, and the reports of the processes that use it (G-5).

Every gateway and worker of a sharded installation has one: it reports which shards it reads, and
learns which shards get new jobs. Those change when all processes have reported the same change, so
a shard is read by everyone before anyone writes to it.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator, Sequence
from typing import Final, NamedTuple, cast

from jobwire.job.errors import BackendUnavailable, RefusedError
from jobwire.systems.jobs import contract
from jobwire.systems.jobs.contract import StreamsKeys
from jobwire.systems.jobs.replies import backend_unavailable, pairs
from jobwire.systems.jobs.scripts import script
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Connection, ValkeyError

_log = logging.getLogger("jobwire.streams")
_REPORT: Final = script("report_shards")
PERIOD_S: Final = 2.0
"""Between two reports of a process."""
_LIFETIME_MS: Final = 30_000
_HISTORY_MS: Final = contract.MAX_TTL_S * 1000

Writers = tuple[int, ...]
"""The shards that get new jobs."""


class ShardReport(NamedTuple):
    """What a process has reported."""

    process: str
    seen_ms: int
    reads: Writers
    writes: Writers


class ShardTable:
    def __init__(self, connection: Connection, settings: StreamsSettings) -> None:
        """`connection` is that of the first shard; its name is shown to the operator."""
        self._connection = connection
        self._queue = StreamsKeys(settings.of_shard(0).key_prefix).queue
        self._process = f"{connection.name}-{secrets.token_hex(6)}"
        self._reads = settings.shards.numbers
        closed = settings.closed_shards
        self._writes = tuple(number for number in self._reads if number not in closed)
        self.tables: tuple[Writers, ...] = ((self._writes),)
        """The former tables, whose idempotency keys may still live, and the current one."""
        self.reports: Sequence[ShardReport] = ()

    async def join(self) -> None:
        """Report for the first time; RefusedError if this process lacks a shard that gets jobs."""
        await self.report()
        if missing := sorted({*self.tables[-1]}.difference(self._reads)):
            raise RefusedError(
                f"jobs.shards: the shards {', '.join(map(str, missing))} get new jobs, and this "
                "process does not know them; set jobs.shards as in the other processes",
                code="bad_settings",
                status=500,
            )

    async def report(self) -> None:
        """Report, and read the current tables."""
        await self._call(self._writes)

    async def leave(self) -> None:
        """This process has ended: the others need not wait for it."""
        await self._call(())

    async def read(self) -> None:
        """Read the tables and reports without taking part."""
        await self.leave()

    async def _call(self, writes: Writers) -> None:
        args = (self._process, _text(self._reads), _text(writes), _LIFETIME_MS, _HISTORY_MS)
        try:
            reply = await self._connection.run(_REPORT, (self._queue,), args)
        except ValkeyError as error:  # also if too many calls are queued already
            raise backend_unavailable(error) from error
        text, flat = cast("tuple[str, list[str]]", reply)
        tables = tuple(_numbers(part.partition("=")[2]) for part in text.split(";") if part)
        # Former tables may name shards that were removed since.
        known = [tuple(each for each in writers if each in self._reads) for writers in tables[:-1]]
        if tables and self.tables[-1:] != tables[-1:]:
            _log.info("shards that get new jobs shards=%(shards)s", {"shards": _text(tables[-1])})
        if tables:
            self.tables = (*(writers for writers in known if writers), tables[-1])
        self.reports = [_report(name, each) for name, each in pairs(flat).items()]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Report inside the block, and leave at its end."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.run())
            try:
                yield
            finally:
                task.cancel()
                with contextlib.suppress(BackendUnavailable):
                    await self.leave()

    async def run_until_cancelled(self) -> None:
        """The same for a worker, which leaves when its last job has ended."""
        async with self.running():
            await asyncio.Event().wait()

    async def run(self) -> None:
        """Report until cancelled; while the first shard is silent, the last tables are used."""
        while True:
            await asyncio.sleep(PERIOD_S)
            with contextlib.suppress(BackendUnavailable):
                await self.report()


def _report(name: str, text: str) -> ShardReport:
    seen, reads, writes = text.split()
    return ShardReport(name, int(seen), _numbers(reads), _numbers(writes))


def _numbers(text: str) -> Writers:
    return tuple(map(int, text.split(",")))


def _text(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
