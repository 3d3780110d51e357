"""Keys that are read again whenever they change, over one connection.

A follower adds keys and gets each reply. With CLIENT TRACKING the server announces when a key that
was read changes: reading a key and arming the announcement is one command, so no change is missed
between. Changed keys are read in one write, at most once per `_WINDOW_S`. Nothing is written.

What a reply means, and which of a key's subscribers need it, is the follower's: a new subscriber of
a known key may be served from what was read before, or `mark` the key for a read of its own.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Final, Generic, TypeVar, cast

from jobwire.valkey.config import Config
from jobwire.valkey.connection import Connection
from jobwire.valkey.errors import ServerError, ValkeyError
from jobwire.valkey.resp_socket import Arg, Reply

_log = logging.getLogger("jobwire.valkey")

_WINDOW_S: Final = 0.005
MAX_READS: Final = 1_000
"""Keys that are read in one turn of the event loop."""
_SPREAD_S: Final = 1.0
"""Over how long more keys than that are read again after a reconnect."""
_TICK_S: Final = 5.0
"""How often the server is asked for its tracking table, which also detects a dead connection."""
_TABLE: Final = "tracking-table-max-keys"
_MAX_KEYS: Final = 1_000_000
"""The server's default, where it does not tell."""
_PAUSE_S: Final = 0.25


class TrackedKey:
    """A key and its state as the reader keeps it; a follower derives its own class."""

    __slots__ = ("changed", "key", "reply")

    def __init__(self, key: str) -> None:
        self.key = key
        self.changed = False
        """The key may have changed since its last read."""
        self.reply: asyncio.Future[Reply] | None = None
        """The read in flight."""


K = TypeVar("K", bound=TrackedKey)


class TrackingReader(Generic[K]):
    """`async with reader.running(config):` around every use.

    `command` returns the command that reads a key now, or None if no read is needed. `on_reply`
    gets the reply, None for a key of another type. `on_other` gets the changed keys that were read
    over `connection` directly. `on_tick` is called every few seconds.
    """

    def __init__(
        self,
        command: Callable[[K], Sequence[Arg] | None],
        on_reply: Callable[[K, Reply], None],
        *,
        on_other: Callable[[str], None] = lambda _: None,
        on_tick: Callable[[], None] = lambda: None,
    ) -> None:
        self._command = command
        self._on_reply = on_reply
        self._on_other = on_other
        self._on_tick = on_tick
        self._keys: dict[str, K] = {}
        self._marked: dict[K, None] = {}
        self._failed: dict[K, None] = {}
        """Keys whose read failed; `mark`ed again after a pause, which delays no other key."""
        self._timer: asyncio.Handle | None = None
        self._pause: asyncio.Handle | None = None
        self._flushed_at_s = float("-inf")
        self._again: asyncio.Task[None] | None = None
        self.table_use = 0.0
        """How much of the server's table of tracked keys is in use, by all clients. A full table
        makes the server announce changes that did not happen (G-16)."""

    @contextlib.asynccontextmanager
    async def running(
        self,
        config: Config | str,
        name: str,
        *,
        connect_timeout_s: float = 0.0,
        or_later: bool = False,
    ) -> AsyncGenerator[None]:
        """Read inside the block."""
        self._loop = asyncio.get_running_loop()
        opening = Connection.open(
            config,
            name=name,
            setup=[("CLIENT", "TRACKING", "ON")],
            on_push=self._pushed,
            on_up=self._read_all_again,
            connect_timeout_s=connect_timeout_s,
            or_later=or_later,
        )
        async with opening as self.connection, asyncio.TaskGroup() as group:
            ticks = group.create_task(self._tick())
            try:
                yield
            finally:
                ticks.cancel()
                if self._again is not None:
                    self._again.cancel()
                for timer in (self._timer, self._pause):
                    if timer is not None:
                        timer.cancel()

    # Keys

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def keys(self) -> Iterable[K]:
        return self._keys.values()

    def get(self, key: str) -> K | None:
        return self._keys.get(key)

    def add(self, tracked: K) -> None:
        """Follow a key; its first read is `mark`ed by the caller."""
        self._keys[tracked.key] = tracked

    def remove(self, tracked: K) -> None:
        """Forget a key; a reply in flight is dropped."""
        del self._keys[tracked.key]
        self._marked.pop(tracked, None)
        self._failed.pop(tracked, None)

    def mark(self, tracked: K) -> None:
        """Read a key again, at the end of the window."""
        self._marked[tracked] = None
        if self._timer is None:
            window_s = self._flushed_at_s + _WINDOW_S - self._loop.time()
            self._timer = self._loop.call_later(max(0.0, window_s), self._flush)

    def _mark_later(self, tracked: K) -> None:
        self._failed[tracked] = None
        if self._pause is None:
            self._pause = self._loop.call_later(_PAUSE_S, self._mark_failed)

    def _mark_failed(self) -> None:
        self._pause = None
        failed, self._failed = self._failed, {}
        for tracked in failed:
            self.mark(tracked)

    # Announcements of the server

    def _pushed(self, push: list[Reply]) -> None:
        match push:
            case ["invalidate", [*keys]]:
                for key in keys:
                    tracked = self._keys.get(cast(str, key))
                    if tracked is None:
                        self._on_other(cast(str, key))
                    # A read in flight will see this change: announcements and replies come in
                    # order over one socket.
                    elif tracked.reply is None or tracked.reply.done():
                        tracked.changed = True
                        self.mark(tracked)
            case ["invalidate", None]:
                self._read_all_again()
            case _:
                pass

    def _read_all_again(self) -> None:
        """A new connection has no tracking armed, and an emptied server no keys."""
        for tracked in self._keys.values():
            tracked.changed = True
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if len(self._keys) <= MAX_READS:
            self._mark_all(tuple(self._keys.values()))
        else:
            self._again = self._loop.create_task(self._spread(), name="tracking: read again")

    def _mark_all(self, keys: Iterable[K]) -> None:
        for tracked in keys:
            if self._keys.get(tracked.key) is tracked:
                self.mark(tracked)

    async def _spread(self) -> None:
        """G-15: the server and this process serve others meanwhile."""
        keys = tuple(self._keys.values())
        parts = math.ceil(len(keys) / MAX_READS)
        for part in range(parts):
            self._mark_all(keys[part::parts])
            await asyncio.sleep(_SPREAD_S / parts)

    async def _tick(self) -> None:
        while True:
            with contextlib.suppress(ValkeyError):
                self.table_use = await self._read_table_use()
            await asyncio.sleep(_TICK_S)
            self._on_tick()

    async def _read_table_use(self) -> float:
        info = str(await self.connection.call("INFO", "stats"))
        used = info.partition("tracking_total_keys:")[2].partition("\r")[0]
        try:
            reply = await self.connection.call("CONFIG", "GET", _TABLE)
        except ServerError:  # hosted servers do not allow CONFIG
            most = _MAX_KEYS
        else:
            most = int(cast("dict[str, str]", reply).get(_TABLE, 0))
        return int(used or 0) / most if most else 0.0

    # Reads

    def _flush(self) -> None:
        self._timer = None
        self._flushed_at_s = self._loop.time()
        # A key whose read is in flight is handled when the reply arrives.
        idle = (tracked for tracked in self._marked if tracked.reply is None)
        ready = list(islice(idle, MAX_READS))
        for tracked in ready:
            del self._marked[tracked]
            self._read(tracked)
        if len(ready) == MAX_READS:
            self._timer = self._loop.call_soon(self._flush)

    def _read(self, tracked: K) -> None:
        command = self._command(tracked)
        if command is None:
            return
        try:
            reply = self.connection.call(*command)
        except ValkeyError:
            self._mark_later(tracked)
            return
        tracked.reply = cast("asyncio.Future[Reply]", reply)
        tracked.reply.add_done_callback(partial(self._replied, tracked))

    def _replied(self, tracked: K, reply: "asyncio.Future[Reply]") -> None:
        tracked.reply = None
        if self._keys.get(tracked.key) is not tracked:
            return
        try:
            read = reply.result()
        except ServerError as error:
            if error.code != "WRONGTYPE":
                _log.warning(
                    "key not read key=%(key)s error=%(error)s; read again",
                    {"key": tracked.key, "error": error},
                )
                self._mark_later(tracked)
                return
            read = None
        except ValkeyError:
            # The next connection reads all keys again; it may be open already.
            self._mark_later(tracked)
            return
        self._on_reply(tracked, read)
        if tracked in self._marked:
            self.mark(tracked)
