"""The shards of an installation: one queue each, and calls to all of them (G-1, G-4).

Made once by a gateway that has `jobs.shards`. Without that setting nothing here is used.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from jobwire.job.errors import BackendUnavailable
from jobwire.systems.jobs.contract import StreamsKeys
from jobwire.systems.jobs.queue import StreamsQueue
from jobwire.systems.jobs.replies import backend_unavailable
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Connection, ValkeyError

_SILENT_S: Final = 1.5
"""A shard that does not answer a read within this time is left out, and named."""
STILL_SILENT_S: Final = 0.2
"""The same for one without a connection, or that did not answer the last time."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard."""

    number: int
    connection: Connection
    settings: StreamsSettings
    queue: StreamsQueue

    @property
    def keys(self) -> StreamsKeys:
        return self.queue.keys


@dataclass(frozen=True, slots=True)
class Gathered(Generic[T]):
    """The answers of the shards that answered, in their order, and the others."""

    answers: Sequence[tuple[Shard, T]]
    silent: tuple[int, ...]

    @property
    def values(self) -> list[T]:
        return [answer for _, answer in self.answers]


class Shards:
    """All shards, by number."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._by_number = {shard.number: shard for shard in shards}
        self._silent: set[int] = set()
        """Those that did not answer the last time."""

    @property
    def first(self) -> Shard:
        """Where cron entries, the workers' registrations and the shard table are."""
        return self._by_number[0]

    def __iter__(self) -> Iterator[Shard]:
        return iter(self._by_number.values())

    def get(self, number: int) -> Shard | None:
        return self._by_number.get(number)

    def __getitem__(self, number: int) -> Shard:
        return self._by_number[number]

    def is_silent(self, shard: Shard) -> bool:
        """Whether it has no connection, or did not answer the last time."""
        return shard.number in self._silent or not shard.connection.connected

    async def _ask(
        self, shard: Shard, read: Callable[[Shard], Awaitable[T]], *, is_long: bool = False
    ) -> T | BackendUnavailable:
        try:
            async with asyncio.timeout(self._limit_s(shard, is_long=is_long)):
                answer = await read(shard)
            self._silent.discard(shard.number)
            return answer
        except BackendUnavailable as error:
            return error
        except ValkeyError as error:  # too many calls are queued already
            return backend_unavailable(error)
        except TimeoutError:
            self._silent.add(shard.number)
            return BackendUnavailable(f"shard {shard.number} does not answer")

    def _limit_s(self, shard: Shard, *, is_long: bool) -> float | None:
        if is_long and shard.connection.connected:
            return None
        return STILL_SILENT_S if self.is_silent(shard) else _SILENT_S

    async def gather(
        self, read: Callable[[Shard], Awaitable[T]], *, is_long: bool = False
    ) -> Gathered[T]:
        """Ask all shards at once; BackendUnavailable if none answers. With `is_long` each shard
        gets many calls one after another: where there is a connection, it limits each of them."""
        found = await asyncio.gather(*(self._ask(shard, read, is_long=is_long) for shard in self))
        answers: list[tuple[Shard, T]] = []
        failed: list[tuple[int, BackendUnavailable]] = []
        for shard, answer in zip(self, found, strict=True):
            if isinstance(answer, BackendUnavailable):
                failed.append((shard.number, answer))
            else:
                answers.append((shard, answer))
        if not answers:
            raise failed[0][1]
        return Gathered(answers, tuple(number for number, _ in failed))

    async def of_one(self, read: Callable[[Shard], Awaitable[T]]) -> tuple[Shard, T]:
        """The first shard and its answer, or the next one that answers, those that were silent
        last; BackendUnavailable if none answers."""
        failed: list[BackendUnavailable] = []
        for shard in sorted(self, key=self.is_silent):
            answer = await self._ask(shard, read)
            if not isinstance(answer, BackendUnavailable):
                return shard, answer
            failed.append(answer)
        raise failed[0]

    async def of_all(
        self, call: Callable[[Shard], Awaitable[T]], *, is_long: bool = False
    ) -> list[T]:
        """Ask all shards; BackendUnavailable if one does not answer."""
        gathered = await self.gather(call, is_long=is_long)
        if gathered.silent:
            names = ", ".join(map(str, gathered.silent))
            raise BackendUnavailable(f"the shards {names} do not answer; the others did it: retry")
        return gathered.values
