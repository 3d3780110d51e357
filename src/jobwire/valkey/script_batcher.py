"""Calls of one script in one turn of the event loop, sent to the server as one call.

The producers of the wires have one each. A hundred callers that submit at the same time cost the
server one script instead of a hundred; a single caller does not wait. Each of them has its own
answer, and a caller that is cancelled withdraws nothing. Nothing is checked or repeated here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Generic, TypeVar, cast

from jobwire.valkey.connection import Connection
from jobwire.valkey.errors import ValkeyError
from jobwire.valkey.resp_socket import Arg, Reply
from jobwire.valkey.scripts import Script

_MAX_ITEMS: Final = 100
"""Items in one script: more would delay the calls of other clients, and hardly be cheaper."""
_MAX_CHARACTERS: Final = 256 * 1024
"""Characters of payloads in one script."""

T = TypeVar("T")


class ScriptBatcher(Generic[T]):
    def __init__(
        self,
        connection: Connection,
        script: Script,
        keys: Sequence[Arg],
        head: Callable[[], Sequence[Arg]],
        width: int,
        answer: "Callable[[asyncio.Future[T], Sequence[Reply]], None]",
        failure: Callable[[BaseException], BaseException],
    ) -> None:
        """The script gets `head` and then the arguments of each item, and answers with a flat list,
        `width` elements for each. `answer` resolves a caller's future with them; `failure` is the
        exception for a caller where the whole call failed."""
        self._connection = connection
        self._script = script
        self._keys = keys
        self._head = head
        self._width = width
        self._set_answer = answer
        self._failure = failure
        self._waiters: list[asyncio.Future[T]] = []
        self._items: list[Sequence[Arg]] = []
        self._characters = 0

    def add(self, item: Sequence[Arg], characters: int) -> Awaitable[T]:
        """Send an item by the end of this turn of the loop; await the result for its answer."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[T] = loop.create_future()
        if not self._waiters:
            loop.call_soon(self.send)
        self._waiters.append(waiter)
        self._items.append(item)
        self._characters += characters
        if len(self._waiters) >= _MAX_ITEMS or self._characters >= _MAX_CHARACTERS:
            self.send()
        return waiter

    def send(self) -> None:
        """Send what was added so far; called before calls that must not overtake it."""
        if not self._waiters:
            return
        waiters, self._waiters = self._waiters, []
        items, self._items = self._items, []
        self._characters = 0
        try:
            self._call(waiters, items)
        except ValkeyError as error:  # too many calls are queued already
            self._fail(waiters, error)
        except Exception:  # noqa: BLE001 - raised in the caller at fault, below
            # One item cannot be encoded: send each alone, so that only its caller gets the error.
            for waiter, item in zip(waiters, items, strict=True):
                try:
                    self._call([waiter], [item])
                except Exception as error:  # noqa: BLE001 - raised in its caller
                    self._fail([waiter], error)

    def _arguments(self, items: Sequence[Sequence[Arg]]) -> tuple[Sequence[Arg], list[Arg]]:
        """Keys and arguments of a call with these items."""
        args: list[Arg] = [*self._head()]
        for item in items:
            args += item
        return self._keys, args

    def _call(self, waiters: "Sequence[asyncio.Future[T]]", items: Sequence[Sequence[Arg]]) -> None:
        reply = self._connection.run(self._script, *self._arguments(items))
        answer = partial(self._answer, waiters, items)
        cast("asyncio.Future[Reply]", reply).add_done_callback(answer)

    def _answer(
        self,
        waiters: "Sequence[asyncio.Future[T]]",
        items: Sequence[Sequence[Arg]],
        reply: "asyncio.Future[Reply]",
    ) -> None:
        if reply.cancelled():
            self._fail(waiters, ValkeyError("the call was cancelled"))
        elif (error := reply.exception()) is not None:
            self._call_failed(waiters, items, error)
        else:
            answers, width, at = cast("list[Reply]", reply.result()), self._width, 0
            for waiter in waiters:
                if not waiter.done():
                    self._set_answer(waiter, answers[at : at + width])
                at += width

    def _call_failed(
        self,
        waiters: "Sequence[asyncio.Future[T]]",
        items: Sequence[Sequence[Arg]],  # noqa: ARG002 - for those that know which item it was
        error: BaseException,
    ) -> None:
        self._fail(waiters, error)

    def _fail(self, waiters: "Sequence[asyncio.Future[T]]", error: BaseException) -> None:
        for waiter in waiters:
            if not waiter.done():
                # One exception per caller: each gets its own traceback.
                own = self._failure(error)
                if own is not error:
                    own.__cause__ = error
                waiter.set_exception(own)
