"""The jobs that programs add through one connection in one turn of the event loop: one script makes
them all, whatever their queues (B-27).

The producers of a connection share one. Each caller has its own answer, and a queue that the server
refuses to write is an error of its own jobs alone.
"""

import asyncio
from collections.abc import Sequence
from copy import copy
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from jobwire.systems.queues.contract import Refusal
from jobwire.systems.queues.scripts import script
from jobwire.valkey import Arg, Connection, Reply, ServerError, ValkeyError
from jobwire.valkey.script_batcher import ScriptBatcher

_ADD: Final = script("add")
_WIDTH: Final = 2
_TIMESTAMP: Final = 5
"""Its place in an item."""


class Added(NamedTuple):
    """The job was made."""

    job_id: str


class Duplicate(NamedTuple):
    """A job of this custom id exists; nothing was made."""

    job_id: str


class Deduplicated(NamedTuple):
    """Another job owns the deduplication id; nothing was made."""

    job_id: str


AddAnswer = Added | Duplicate | Deduplicated | Refusal


Waiters = Sequence["asyncio.Future[AddAnswer]"]
Items = Sequence[Sequence[Arg]]


class AddBatcher(ScriptBatcher[AddAnswer]):
    """An item is the key `meta` of the job's queue, and what the script has to know of the job."""

    def __init__(self, connection: Connection, extras: int) -> None:
        super().__init__(connection, _ADD, (), tuple, _WIDTH, _set_answer, copy)
        self._extras = extras

    def _arguments(self, items: Items) -> tuple[Sequence[Arg], list[Arg]]:
        numbers: dict[Arg, int] = {}
        # The time of the call is not read, but a job of the same time need not format its own.
        args: list[Arg] = [items[0][_TIMESTAMP], self._extras]
        for item in items:
            args.append(numbers.setdefault(item[0], len(numbers) + 1))
            args += item[1:]
        return [*numbers], args

    def _call_failed(self, waiters: Waiters, items: Items, error: BaseException) -> None:
        """The server may refuse one of the queues, as it does by its access rules: nothing was
        written, so each is asked for alone."""
        queues: dict[Arg, tuple[list[asyncio.Future[AddAnswer]], list[Sequence[Arg]]]] = {}
        for waiter, item in zip(waiters, items, strict=True):
            own = queues.setdefault(item[0], ([], []))
            own[0].append(waiter)
            own[1].append(item)
        if len(queues) == 1 or not isinstance(error, ServerError):
            self._fail(waiters, error)
            return
        for own_waiters, own_items in queues.values():
            try:
                self._call(own_waiters, own_items)
            except ValkeyError as raised:
                self._fail(own_waiters, raised)


_batchers: Final[WeakValueDictionary[tuple[Connection, int], AddBatcher]] = WeakValueDictionary()


def add_batcher(connection: Connection, extras: int) -> AddBatcher:
    """The one of a connection, as long as a producer has it."""
    found = _batchers.get((connection, extras))
    if found is None:
        found = _batchers[connection, extras] = AddBatcher(connection, extras)
    return found


def _set_answer(waiter: "asyncio.Future[AddAnswer]", answer: Sequence[Reply]) -> None:
    match answer:
        case ["added", str(job_id)]:
            waiter.set_result(Added(job_id))
        case ["duplicate", str(job_id)]:
            waiter.set_result(Duplicate(job_id))
        case ["deduplicated", str(job_id)]:
            waiter.set_result(Deduplicated(job_id))
        case [ServerError() as error, *_]:
            waiter.set_exception(error)
        case [str(word), *_]:
            waiter.set_result(Refusal(word))
        case _:
            waiter.set_exception(TypeError(f"the script answered {answer!r}"))
