"""The connection to the server: one shared socket for all callers, exclusive sockets for those
that block.

Commands are packed and queued when they are issued and leave in that order, many in one write.
A broken socket is replaced in the background. A command whose reply was lost is never sent
again: only its caller knows whether that is safe.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Final

from jobwire.valkey.ask import AskedNodes
from jobwire.valkey.cluster import redirected_to
from jobwire.valkey.config import Config
from jobwire.valkey.dial import Loading, backoff_s, check_name, is_without_lua, without_lua
from jobwire.valkey.dialer import Dialer
from jobwire.valkey.errors import (
    AuthFailed,
    ConfigError,
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
    RepeatableCall,
    Reply,
    RespSocket,
    ScriptCall,
    Waiter,
    fail_waiter,
    pack,
)
from jobwire.valkey.scripts import Script, load_scripts
from jobwire.valkey.shared_socket_rules import check_shareable
from jobwire.valkey.subscription import Subscription

_log = logging.getLogger("jobwire.valkey")
_NOT_PRIMARY_PAUSE_S: Final = 1.0
_REPLICAS_PAUSE_S: Final = 0.05
_WRITABLE: Final = load_scripts("jobwire.valkey.lua")["writable"]


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
        """Prefer `Connection.open`. `setup` commands run first on each new socket; `on_push` gets
        the server's push messages; `on_up` is called after each connect."""
        self.config = Config.from_url(config) if isinstance(config, str) else config
        self._in_cluster = bool(self.config.nodes)
        if self._in_cluster and not self.config.tag:
            message = "is missing; on a Cluster a connection serves the keys of one hash tag"
            raise ConfigError("tag", f"{message}: config.for_keys('{{jobs}}:'), or ?tag=jobs")
        self.name = check_name(name)
        self._scripts = {script.sha: script for script in scripts}
        self._setup = tuple(setup)
        self._on_push = on_push
        self._on_up = on_up
        self._loop = asyncio.get_running_loop()
        self._outbox = Outbox()
        self._unknown_script_calls: list[ScriptCall] = []
        self._redirected: list[RepeatableCall] = []
        """Calls that a node of a Cluster has refused, in their order; sent again before all
        others."""
        self._sock: RespSocket | None = None
        self._flush_due = self._closed = self._reloading = False
        self._waiting_timer: asyncio.TimerHandle | None = None
        self._last_error: ValkeyError | None = None
        self._not_primary_at_s = self._reconnected_at_s = float("-inf")
        self._reconnect_task: asyncio.Task[None] | None = None
        self.sockets_opened = 0
        """Grows with every socket that replaces a lost one: behind it may be another server."""
        self._dialer = Dialer(self.config)
        self._pool = SocketPool(self._dialer, f"{self.name}-own")
        self._asked_nodes = AskedNodes(self.config, f"{self.name}-ask", self._loads)

    @staticmethod
    def open(
        config: Config | str,
        *,
        name: str = "jobwire",
        scripts: Iterable[Script] = (),
        setup: Sequence[tuple[Arg, ...]] = (),
        on_push: Callable[[Push], None] | None = None,
        on_up: Callable[[], None] | None = None,
        connect_timeout_s: float = 0.0,
        or_later: bool = False,
    ) -> "Opening":
        """Connect: `await Connection.open(url)`, or `async with Connection.open(url) as conn:`.

        Raises AuthFailed or Unsupported at once, and Unavailable after `connect_timeout_s` of
        attempts; with `or_later` the attempts go on in the background instead, and without a
        timeout they only begin there. A server that is loading its data is waited for, up to
        `dial_timeout_s`.
        """
        return Opening(
            lambda: Connection(
                config, name=name, scripts=scripts, setup=setup, on_push=on_push, on_up=on_up
            ),
            connect_timeout_s,
            or_later=or_later,
        )

    # Commands

    def call(self, *args: Arg) -> Awaitable[Reply]:
        """Issue a command; awaiting returns its reply. Commands leave in call order."""
        check_shareable(args)
        packed = pack(args)
        if self._in_cluster:
            waiter = RepeatableCall(loop=self._loop)
            waiter.packed = packed
        else:
            waiter = self._loop.create_future()
        self._issue(packed, waiter)
        return waiter

    def run(
        self, script: Script, keys: Sequence[Arg] = (), args: Sequence[Arg] = ()
    ) -> Awaitable[Reply]:
        """Run a script; in call order, as `call`."""
        if script.sha not in self._scripts:
            self._scripts[script.sha] = script
        call = ScriptCall(loop=self._loop)
        call.packed = pack(("EVALSHA", script.sha, len(keys), *keys, *args))
        self._issue(call.packed, call)
        return call

    async def load_scripts(self, scripts: Iterable[Script]) -> None:
        """Load scripts now, and again on each new socket. A script that was not loaded before is
        loaded when it is run, but then a later command may overtake it once."""
        new = {script.sha: script for script in scripts if script.sha not in self._scripts}
        self._scripts.update(new)
        if not self.sockets_opened:
            return  # the first socket loads them; there was none for a later command to overtake
        # Without a server this still succeeds: each new socket loads them before its first use.
        try:
            await asyncio.gather(
                *(self.call("SCRIPT", "LOAD", script.source) for script in new.values())
            )
        except (ConnectionLost, NotSent, Unavailable):
            pass
        except ServerError as error:
            if is_without_lua(error):
                raise without_lua(self.config) from error
            raise

    def socket(self) -> "OwnSocket":
        """An exclusive socket, for blocking: `async with connection.socket() as own:`."""
        self._check_open()
        return OwnSocket(self._pool)

    async def block(self, *args: Arg, block_s: float) -> Reply:
        """Run one blocking command on a socket of the pool."""
        async with self.socket() as own:
            return await own.call(*args, block_s=block_s)

    def subscribe(self, *channels: str) -> Subscription:
        """Messages of channels: `async with connection.subscribe("news") as messages:`."""
        self._check_open()
        dial = partial(self._dialer.dial, f"{self.name}-sub")
        return Subscription(dial, channels, sharded=self._in_cluster)

    @property
    def publish_command(self) -> str:
        """The command whose messages `subscribe` receives: on a Cluster only the nodes of the slot
        get them (G-14)."""
        return "SPUBLISH" if self._in_cluster else "PUBLISH"

    @property
    def connected(self) -> bool:
        return self._sock is not None

    @property
    def since_reconnect_s(self) -> float:
        """Seconds since a lost connection was replaced; infinite if none was."""
        return self._loop.time() - self._reconnected_at_s

    async def close(self) -> None:
        """Close every socket; waiting callers get ConnectionLost or NotSent."""
        if self._closed:
            return
        self._closed = True
        if self._waiting_timer is not None:
            self._waiting_timer.cancel()
        not_sent = (*self._redirected, *self._unknown_script_calls, *self._outbox.take_all())
        for waiter in not_sent:
            fail_waiter(waiter, NotSent("the connection was closed"))
        if self._reconnect_task is not None:
            self._reconnect_task.cancel()
            await asyncio.gather(self._reconnect_task, return_exceptions=True)
        if self._sock is not None:
            await self._sock.close("the connection was closed here")
            self._sock = None
        await self._pool.close()
        await self._asked_nodes.close()
        await self._dialer.close()

    # Issuing and writing

    def _check_open(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError("a connection belongs to the event loop that opened it")
        if self._closed:
            raise NotSent("the connection was closed")

    def _issue(self, packed: bytes, waiter: Waiter) -> None:
        self._check_open()
        self._outbox.put(packed, waiter)
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Write everything that was issued in this loop turn, in one write."""
        self._flush_due = False
        sock, outbox = self._sock, self._outbox
        if sock is not None and not self._reloading and not sock.closed.done():
            while outbox and (capacity := sock.capacity):
                sock.write(*outbox.take(capacity, MAX_BYTES))
            if not outbox:
                return
        outbox.note_waiting(self._loop.time())
        if self._waiting_timer is None:
            self._waiting_timer = self._loop.call_later(
                self.config.failover_timeout_s, self._fail_expired
            )

    def _fail_expired(self) -> None:
        """Fail commands that waited `failover_timeout_s` for a connection or for capacity on it."""
        self._waiting_timer = None
        now_s, limit_s = self._loop.time(), self.config.failover_timeout_s
        for waiter in self._outbox.take_older(now_s - limit_s):
            fail_waiter(waiter, self._waiting_error())
        oldest_s = self._outbox.oldest_s()
        if oldest_s is not None:
            self._waiting_timer = self._loop.call_at(oldest_s + limit_s, self._fail_expired)

    def _waiting_error(self) -> ValkeyError:
        where, limit_s = self.config.address, self.config.failover_timeout_s
        if self._sock is not None:
            return NotSent(f"the connection to {where} had no capacity for {limit_s:g} s")
        last_error = self._last_error
        kind = AuthFailed if isinstance(last_error, AuthFailed) else Unavailable
        error = kind(
            f"no connection to {where} for {limit_s:g} s"
            + (f": {last_error}" if last_error else "")
        )
        error.__cause__ = last_error
        return error

    # Staying connected

    async def start(self, connect_timeout_s: float, *, or_later: bool) -> None:
        """Connect for the first time; called by `open`."""
        started_s = self._loop.time()
        attempts = 0
        if or_later and not connect_timeout_s:
            self._start_later(attempts)
            return
        while True:
            try:
                sock = await self._dial()
                break
            except Unsupported:
                raise
            except Unavailable as error:
                loading_s = self.config.dial_timeout_s if isinstance(error, Loading) else 0.0
                if self._loop.time() >= started_s + max(connect_timeout_s, loading_s):
                    if not or_later:
                        raise
                    self._last_error = error
                    self._start_later(attempts)
                    return
                self._log_failure(error)
                await asyncio.sleep(backoff_s(attempts))
                attempts += 1
        self._publish(sock)
        self._reconnect_task = asyncio.create_task(
            self._stay_connected(sock), name=f"{self.name}: connection"
        )

    def _start_later(self, attempts: int) -> None:
        self._reconnect_task = asyncio.create_task(
            self._connect_later(attempts), name=f"{self.name}: connection"
        )

    async def _connect_later(self, attempts: int) -> None:
        sock = await self._dial_with_backoff(attempts)
        _log.info("connected address=%(address)s", {"address": sock.peer})
        self._reconnected_at_s = self._loop.time()
        self._publish(sock)
        await self._stay_connected(sock)

    async def _dial(self) -> RespSocket:
        setup = (*self._setup, *self._loads())
        sock, _ = await self._dialer.dial(self.name, setup, self._on_push)
        if self.config.sentinels:
            await self._wait_for_replicas(sock)
        return sock

    def _loads(self) -> list[tuple[Arg, ...]]:
        return [("SCRIPT", "LOAD", script.source) for script in self._scripts.values()]

    def _publish(self, sock: RespSocket) -> None:
        """Let callers use a socket that is authenticated and has the scripts loaded."""
        sock.on_capacity = self._flush
        sock.on_unknown_script = self._reload_scripts
        if self._in_cluster:
            sock.on_not_primary = lambda: self._park(sock)
            sock.repeat = self._repeat
        else:
            sock.on_not_primary = lambda: self._replace(sock)
        self._sock, self._last_error = sock, None
        self.sockets_opened += 1
        if self._on_up is not None:
            self._on_up()
        self._flush()

    async def _stay_connected(self, sock: RespSocket) -> None:
        try:
            while True:
                reason = await asyncio.shield(sock.closed)
                self._sock = None
                redirects = self._send_redirected_first()
                _log.warning(
                    "connection lost address=%(address)s error=%(error)s; reconnecting",
                    {"address": sock.peer, "error": reason},
                )
                sock = await self._dial_with_backoff(redirects)
                _log.info("reconnected address=%(address)s", {"address": sock.peer})
                self._reconnected_at_s = self._loop.time()
                self._publish(sock)
        finally:
            # Also a socket that is being replaced and is no longer published.
            await sock.close("the connection was closed here")

    async def _dial_with_backoff(self, attempts: int) -> RespSocket:
        while True:
            if attempts or not self._in_cluster:  # most often the map has the next node already
                await self._dialer.pause(backoff_s(attempts))
            attempts += 1
            try:
                sock = await self._dial()
            except ValkeyError as error:
                self._log_failure(error)
            else:
                return sock

    async def _wait_for_replicas(self, sock: RespSocket) -> None:
        """A replica that was promoted refuses writes until another one follows it; nobody should
        notice. Without one the socket is used for what is left: reads."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.config.failover_timeout_s):
                while True:
                    try:
                        await sock.call("EVAL", _WRITABLE.source, 0)
                    except ValkeyError as error:
                        if not isinstance(error, ServerError) or error.code != "NOREPLICAS":
                            return
                        await asyncio.sleep(_REPLICAS_PAUSE_S)
                    else:
                        return

    def _log_failure(self, error: ValkeyError) -> None:
        """Log a connect error once, until another one occurs."""
        if str(error) != str(self._last_error):
            _log.warning("connect failed error=%(error)s; will retry", {"error": error})
        self._last_error = error

    def _replace(self, sock: RespSocket) -> None:
        """The server is a replica now, or is loading: connect anew, which resolves its name."""
        now_s = self._loop.time()
        if sock is self._sock and now_s - self._not_primary_at_s > _NOT_PRIMARY_PAUSE_S:
            self._not_primary_at_s = now_s
            self._sock = None
            self._loop.call_soon(sock.retire)

    # Calls that a node of a Cluster has refused without running them (G-11)

    def _park(self, sock: RespSocket) -> None:
        """The node does not serve the slot: new commands wait, those in flight are awaited, then
        the map tells the next node."""
        if sock is self._sock:
            self._sock = None
            self._loop.call_soon(sock.retire)

    def _repeat(self, call: RepeatableCall, error: ServerError) -> bool:
        """Take over a refused call; False if it was refused for too long."""
        if error.code == "ASK":
            self._asked_nodes.send(call, redirected_to(error))
            return True
        now_s = self._loop.time()
        call.redirects += 1
        if call.redirects == 1:
            call.redirected_at_s = now_s
        elif now_s - call.redirected_at_s > self.config.failover_timeout_s:
            failed = Unavailable(f"no node of {self.config.address} accepts the command: {error}")
            failed.__cause__ = error
            fail_waiter(call, failed)
            return True
        self._redirected.append(call)
        return True

    def _send_redirected_first(self) -> int:
        """Queue refused calls before all others; returns how often one of them was refused before,
        for the pause until the next attempt."""
        calls, self._redirected = self._redirected, []
        self._outbox.put_first([call for call in calls if not call.done()])
        self._flush()
        return max((call.redirects - 1 for call in calls), default=0)

    # Scripts that the server does not have (NOSCRIPT)

    def _reload_scripts(self, call: ScriptCall) -> None:
        """Load all scripts once for all calls that got NOSCRIPT, then send those calls again.

        None of them ran. New commands wait meanwhile, so that none overtakes them.
        """
        call.reloaded = True
        if self._in_cluster and self._sock is None:
            self._redirected.append(call)  # the next node's socket loads the scripts first
            return
        self._unknown_script_calls.append(call)
        if not self._reloading and self._sock is not None:
            self._reloading = True
            loads = [
                self._sock.call("SCRIPT", "LOAD", script.source)
                for script in self._scripts.values()
            ]
            asyncio.gather(*loads, return_exceptions=True).add_done_callback(self._scripts_reloaded)

    def _scripts_reloaded(self, loads: "asyncio.Future[list[Reply | BaseException]]") -> None:
        self._reloading = False
        calls, self._unknown_script_calls = self._unknown_script_calls, []
        refused = next((load for load in loads.result() if isinstance(load, ServerError)), None)
        for call in calls if refused else ():
            fail_waiter(call, refused or NotSent(""))
        # A connection lost meanwhile does no harm: the next one loads the scripts first.
        waiting = [call for call in calls if not call.done()]
        if self._redirected:  # by later commands
            self._redirected[:0] = waiting
        else:
            self._outbox.put_first(waiting)
        if not self._closed:
            self._flush()


class Opening:
    """The result of `Connection.open`: await it, or enter it."""

    def __init__(
        self, build: Callable[[], Connection], connect_timeout_s: float, *, or_later: bool
    ) -> None:
        self._build = build
        self._connect_timeout_s = connect_timeout_s
        self._or_later = or_later
        self._connection: Connection | None = None

    def __await__(self) -> Generator[object, None, Connection]:
        return self._open().__await__()

    async def __aenter__(self) -> Connection:
        self._connection = await self._open()
        return self._connection

    async def __aexit__(self, *_exception: object) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def _open(self) -> Connection:
        connection = self._build()
        try:
            await connection.start(self._connect_timeout_s, or_later=self._or_later)
        except BaseException:
            await connection.close()
            raise
        return connection
