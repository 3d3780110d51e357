"""The way to the server: one socket that many callers share, and sockets of their own for those
that block.

Every part of the product that talks to Valkey has one of these. Commands are packed and queued
the moment they are issued and leave in that order, many in one write; a broken socket is
replaced behind the callers' backs. A command whose reply was lost is never sent again here:
only its caller knows whether that is safe.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from types import TracebackType
from typing import Final

from jobwire.valkey.config import Config
from jobwire.valkey.dial import Loading, check_name, dial
from jobwire.valkey.errors import (
    AuthFailed,
    ConnectionLost,
    NotSent,
    ServerError,
    Unavailable,
    Unsupported,
    ValkeyError,
)
from jobwire.valkey.operations import Operations
from jobwire.valkey.outbox import Outbox
from jobwire.valkey.pool import OwnSocket, SocketPool
from jobwire.valkey.resp_socket import (
    MAX_BYTES,
    Arg,
    Push,
    Reply,
    RespSocket,
    ScriptCall,
    Waiter,
    pack,
)
from jobwire.valkey.scripts import Script
from jobwire.valkey.shared_socket_rules import check_shareable
from jobwire.valkey.subscription import Subscription

_log = logging.getLogger("jobwire.valkey")
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0
_UNFIT_PAUSE_S: Final = 1.0


def pause_s(tries: int) -> float:
    """How long to wait before trying again: doubling, with full jitter."""
    return random.uniform(0, min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(tries, 10)))  # noqa: S311


class Connection(Operations):
    def __init__(
        self,
        config: Config | str,
        *,
        name: str = "jobwire",
        scripts: Iterable[Script] = (),
        setup: Sequence[tuple[Arg, ...]] = (),
        on_push: Callable[[Push], None] | None = None,
        on_up: Callable[[], None] | None = None,
    ) -> None:
        """Prefer `Connection.open`. `setup` commands run on each new socket before anybody else's;
        `on_push` gets what the server sends unasked; `on_up` is told of each new socket."""
        self.config = Config.from_url(config) if isinstance(config, str) else config
        self.name = check_name(name)
        self._scripts = {script.sha: script for script in scripts}
        self._setup = tuple(setup)
        self._on_push = on_push
        self._on_up = on_up
        self._loop = asyncio.get_running_loop()
        self._outbox = Outbox()
        self._forgotten: list[ScriptCall] = []
        self._wire: RespSocket | None = None
        self._flush_due = self._closed = self._healing = False
        self._waiting_timer: asyncio.TimerHandle | None = None
        self._trouble: ValkeyError | None = None
        self._unfit_at_s = self._reconnected_at_s = float("-inf")
        self._keeper: asyncio.Task[None] | None = None
        self._pool = SocketPool(self.config, f"{self.name}-own")

    @staticmethod
    def open(
        config: Config | str,
        *,
        name: str = "jobwire",
        scripts: Iterable[Script] = (),
        setup: Sequence[tuple[Arg, ...]] = (),
        on_push: Callable[[Push], None] | None = None,
        on_up: Callable[[], None] | None = None,
        patience_s: float = 0.0,
    ) -> "Opening":
        """Connect: `await Connection.open(url)`, or `async with Connection.open(url) as conn:`.

        Fails with AuthFailed or Unsupported at once, and with Unavailable once `patience_s` is
        over; a server that is still loading its data is waited for, up to `dial_timeout_s`.
        """
        return Opening(
            lambda: Connection(
                config, name=name, scripts=scripts, setup=setup, on_push=on_push, on_up=on_up
            ),
            patience_s,
        )

    # Commands

    def call(self, *args: Arg) -> Awaitable[Reply]:
        """Issue a command; awaiting gives its reply. Leaves in the order of the calls."""
        check_shareable(args)
        waiter: Waiter = self._loop.create_future()
        self._issue(pack(args), waiter)
        return waiter

    def run(
        self, script: Script, keys: Sequence[Arg] = (), args: Sequence[Arg] = ()
    ) -> Awaitable[Reply]:
        """Run a script, under the same promise of order as `call`."""
        if script.sha not in self._scripts:
            self._scripts[script.sha] = script
        call = ScriptCall(loop=self._loop)
        call.packed = pack(("EVALSHA", script.sha, len(keys), *keys, *args))
        self._issue(call.packed, call)
        return call

    async def load_scripts(self, scripts: Iterable[Script]) -> None:
        """Load scripts now, and again on each new socket. One that the server first hears of when
        it is run is healed too, but a command behind it may overtake it once."""
        new = {script.sha: script for script in scripts if script.sha not in self._scripts}
        self._scripts.update(new)
        # Without a server it is done all the same: the next socket learns them before it is used.
        with contextlib.suppress(ConnectionLost, NotSent, Unavailable):
            await asyncio.gather(
                *(self.call("SCRIPT", "LOAD", script.source) for script in new.values())
            )

    def socket(self) -> "OwnSocket":
        """A socket of one's own, for blocking: `async with connection.socket() as own:`."""
        self._check_usable()
        return OwnSocket(self._pool)

    async def block(self, *args: Arg, block_s: float) -> Reply:
        """One blocking command on a socket of the pool."""
        async with self.socket() as own:
            return await own.call(*args, block_s=block_s)

    def subscribe(self, *channels: str) -> Subscription:
        """What is published on channels: `async with connection.subscribe("news") as messages:`."""
        self._check_usable()
        return Subscription(self.config, f"{self.name}-sub", channels, pause_s)

    @property
    def connected(self) -> bool:
        return self._wire is not None

    @property
    def since_reconnect_s(self) -> float:
        """How long ago a lost connection was replaced; infinite if none ever was."""
        return self._loop.time() - self._reconnected_at_s

    async def close(self) -> None:
        """Close every socket; whoever still waits is told whether the command may have run."""
        if self._closed:
            return
        self._closed = True
        if self._waiting_timer is not None:
            self._waiting_timer.cancel()
        for waiter in (*self._forgotten, *self._outbox.take_all()):
            _fail(waiter, NotSent("the connection was closed"))
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._wire is not None:
            await self._wire.close("the connection was closed here")
            self._wire = None
        await self._pool.close()

    # Issuing and writing

    def _check_usable(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError("a connection belongs to the event loop that opened it")
        if self._closed:
            raise NotSent("the connection was closed")

    def _issue(self, packed: bytes, waiter: Waiter) -> None:
        self._check_usable()
        self._outbox.put(packed, waiter)
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Write everything that was issued in this turn of the loop, in one go."""
        self._flush_due = False
        wire, outbox = self._wire, self._outbox
        if wire is not None and not self._healing and not wire.closed.done():
            while outbox and (room := wire.capacity):
                wire.write(*outbox.take(room, MAX_BYTES))
            if not outbox:
                return
        outbox.note_waiting(self._loop.time())
        if self._waiting_timer is None:
            self._waiting_timer = self._loop.call_later(
                self.config.dial_timeout_s, self._refuse_the_oldest
            )

    def _refuse_the_oldest(self) -> None:
        """Commands wait for a connection, or for room on it, no longer than `dial_timeout_s`."""
        self._waiting_timer = None
        now_s, limit_s = self._loop.time(), self.config.dial_timeout_s
        for waiter in self._outbox.take_older(now_s - limit_s):
            _fail(waiter, self._why_waiting())
        oldest_s = self._outbox.oldest_s()
        if oldest_s is not None:
            self._waiting_timer = self._loop.call_at(oldest_s + limit_s, self._refuse_the_oldest)

    def _why_waiting(self) -> ValkeyError:
        where, limit_s = self.config.address, self.config.dial_timeout_s
        if self._wire is not None:
            return NotSent(f"no room on the connection to {where} for {limit_s:g} s")
        trouble = self._trouble
        kind = AuthFailed if isinstance(trouble, AuthFailed) else Unavailable
        error = kind(
            f"no connection to {where} for {limit_s:g} s" + (f": {trouble}" if trouble else "")
        )
        error.__cause__ = trouble
        return error

    # Staying connected

    async def start(self, reply_timeout_s: float) -> None:
        """Connect for the first time; called by `open`."""
        begun_s = self._loop.time()
        tries = 0
        while True:
            try:
                wire = await self._dial()
                break
            except Unsupported:
                raise
            except Unavailable as error:
                loading_s = self.config.dial_timeout_s if isinstance(error, Loading) else 0.0
                if self._loop.time() >= begun_s + max(reply_timeout_s, loading_s):
                    raise
                self._complain(error)
                await asyncio.sleep(pause_s(tries))
                tries += 1
        self._publish(wire)
        self._keeper = asyncio.create_task(
            self._stay_connected(wire), name=f"{self.name}: connection"
        )

    async def _dial(self) -> RespSocket:
        loads = [("SCRIPT", "LOAD", script.source) for script in self._scripts.values()]
        wire, _ = await dial(self.config, self.name, (*self._setup, *loads), self._on_push)
        return wire

    def _publish(self, wire: RespSocket) -> None:
        """From here on callers may use it: it is greeted and knows our scripts."""
        wire.on_room = self._flush
        wire.on_forgotten = self._reload_scripts
        wire.on_unfit = lambda: self._replace(wire)
        self._wire, self._trouble = wire, None
        if self._on_up is not None:
            self._on_up()
        self._flush()

    async def _stay_connected(self, wire: RespSocket) -> None:
        try:
            while True:
                reason = await asyncio.shield(wire.closed)
                self._wire = None
                _log.warning("connection to %s lost: %s", self.config.address, reason)
                wire = await self._dial_until_there()
                _log.info("connected to %s again", self.config.address)
                self._reconnected_at_s = self._loop.time()
                self._publish(wire)
        finally:
            # Also one that is being replaced and no longer published.
            await wire.close("the connection was closed here")

    async def _dial_until_there(self) -> RespSocket:
        tries = 0
        while True:
            await asyncio.sleep(pause_s(tries))
            tries += 1
            try:
                return await self._dial()
            except ValkeyError as error:
                self._complain(error)

    def _complain(self, error: ValkeyError) -> None:
        """The same trouble is worth one line, however often it is met."""
        if str(error) != str(self._trouble):
            _log.warning("cannot connect: %s; trying again", error)
        self._trouble = error

    def _replace(self, wire: RespSocket) -> None:
        """The server became a replica, or is loading: look up its address again."""
        now_s = self._loop.time()
        if wire is self._wire and now_s - self._unfit_at_s > _UNFIT_PAUSE_S:
            self._unfit_at_s = now_s
            self._wire = None
            self._loop.call_soon(wire.retire)

    # Scripts that the server forgot

    def _reload_scripts(self, call: ScriptCall) -> None:
        """Load all scripts once for all callers whose call came back unknown, then send it again.

        Nothing of theirs ran. New commands wait meanwhile, so that none overtakes them.
        """
        call.reloaded = True
        self._forgotten.append(call)
        if not self._healing and self._wire is not None:
            self._healing = True
            loads = [
                self._wire.call("SCRIPT", "LOAD", script.source)
                for script in self._scripts.values()
            ]
            asyncio.gather(*loads, return_exceptions=True).add_done_callback(self._scripts_reloaded)

    def _scripts_reloaded(self, loads: "asyncio.Future[list[Reply | BaseException]]") -> None:
        self._healing = False
        calls, self._forgotten = self._forgotten, []
        refused = next((load for load in loads.result() if isinstance(load, ServerError)), None)
        for call in calls if refused else ():
            _fail(call, refused or NotSent(""))
        # A connection lost meanwhile does no harm: the next one has the scripts before us.
        self._outbox.put_first([call for call in calls if not call.done()])
        if not self._closed:
            self._flush()


class Opening:
    """What `Connection.open` gives: await it, or enter it."""

    def __init__(self, build: Callable[[], Connection], patience_s: float) -> None:
        self._build = build
        self._patience_s = patience_s
        self._connection: Connection | None = None

    def __await__(self) -> Generator[object, None, Connection]:
        return self._open().__await__()

    async def __aenter__(self) -> Connection:
        self._connection = await self._open()
        return self._connection

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def _open(self) -> Connection:
        connection = self._build()
        await connection.start(self._patience_s)
        return connection


def _fail(waiter: Waiter, error: Exception) -> None:
    if not waiter.done():
        waiter.set_exception(error)
