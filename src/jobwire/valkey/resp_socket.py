"""One RESP socket: commands leave in call order, replies are matched to callers in order.

Used by the connection (shared by many callers), the pool and subscriptions. It never reconnects
and never sends anything twice. A socket whose replies can no longer be matched is closed.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, cast

import hiredis

from jobwire.valkey.errors import ConnectionLost, NotSent, ServerError, error_reply

Arg: TypeAlias = str | bytes | int | float
Reply: TypeAlias = "str | int | float | bool | list[Reply] | dict[str, Reply] | ServerError | None"
"""A reply: text is decoded, a map is a dict, nil is None; an error inside an array is a value."""
Push: TypeAlias = list[Reply]

# The library's annotation is a tuple of length one; any length is accepted.
_pack: Final = cast("Callable[[tuple[Arg, ...]], bytes]", hiredis.pack_command)

MAX_COMMANDS: Final = 20_000
"""Limit of commands in flight on a socket; further ones wait."""
MAX_BYTES: Final = 16 * 1024 * 1024
"""Limit of bytes in flight on a socket: bounds the memory that a slow server costs."""
_HIGH_WATER: Final = 1024 * 1024
_GRACE_S: Final = 0.05
INCOMPLETE: Final = object()  # hiredis' default for "no reply yet" is False, a legal reply
NOT_PRIMARY: Final = frozenset({"READONLY", "MASTERDOWN", "LOADING"})
"""Codes of a server that is not the primary now: nothing ran, and a new dial may find it."""
REDIRECTS: Final = NOT_PRIMARY | {"MOVED", "CLUSTERDOWN", "TRYAGAIN"}
"""The like of a node of a Cluster that does not serve the slot now (G-11)."""


class RepeatableCall(asyncio.Future[Reply]):
    """A waiter that keeps the bytes of its command, for a repetition after a reply that says that
    nothing ran."""

    packed: bytes
    redirects: int = 0
    """How often a node of a Cluster has refused it."""
    redirected_at_s: float = 0.0
    """When the first one did."""


class ScriptCall(RepeatableCall):
    """The waiter of an EVALSHA, which may be repeated after NOSCRIPT."""

    reloaded: bool = False


Waiter: TypeAlias = asyncio.Future[Reply]


def new_reader() -> hiredis.Reader:
    """A parser of replies; `gets` returns INCOMPLETE where the next one has not arrived."""
    return hiredis.Reader(
        replyError=error_reply,
        notEnoughData=INCOMPLETE,
        encoding="utf-8",
        errors="surrogateescape",
    )


def pack(args: tuple[Arg, ...]) -> bytes:
    """A command as bytes. Foreign bytes that are not UTF-8 arrive as lone surrogates, and
    leave as the same bytes; raises on None, bool and any other lone surrogate."""
    try:
        return _pack(args)
    except UnicodeEncodeError:
        return _pack(
            tuple(
                each.encode("utf-8", "surrogateescape") if isinstance(each, str) else each
                for each in args
            )
        )


def fail_waiter(waiter: Waiter, error: Exception) -> None:
    """Raise the error in a caller that still waits."""
    if not waiter.done():
        waiter.set_exception(error)
        waiter.exception()  # asyncio logs no error that a caller who left did not read


def _ignore(*_: object) -> None:
    """The default callback."""


class RespSocket(asyncio.Protocol):
    def __init__(self, peer: str, read_timeout_s: float, write_timeout_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self.peer = peer
        self._reader = new_reader()
        self._waiters: deque[Waiter] = deque()
        # One mark per write, not per command: (commands sent so far, time, bytes).
        self._marks: deque[tuple[int, float, int]] = deque()
        self._sent = self._answered = self._bytes = self._bytes_seen = 0
        self._transport: asyncio.Transport | None = None
        self._paused = self._full = self._retiring = False
        self._deadline: asyncio.TimerHandle | None = None
        self._write_deadline: asyncio.TimerHandle | None = None
        self._write_timeout_s = write_timeout_s
        self.reply_timeout_s = read_timeout_s
        """How long the oldest command may wait for its reply; `inf` means forever."""
        self.max_reply_bytes = float("inf")
        self._reply_bytes = 0
        self.closed: asyncio.Future[Exception] = self._loop.create_future()
        """Done, with the reason, when the socket is closed or failed."""
        self._gone = asyncio.Event()
        self.on_push: Callable[[Push], None] = _ignore
        self.on_capacity: Callable[[], None] = _ignore
        self.on_unknown_script: Callable[[ScriptCall], None] | None = None
        """Called on NOSCRIPT: the connection loads its scripts and sends the call again."""
        self.on_not_primary: Callable[[], None] = _ignore
        """Called when the server replies that it accepts no writes."""
        self.redirects = NOT_PRIMARY
        """The codes that mean this."""
        self.slot: int | None = None
        """The slot of a Cluster for which the socket was opened."""
        self.on_redirect: Callable[[ServerError], None] = _ignore
        """Gets the error with such a code, before all others."""
        self.repeat: Callable[[RepeatableCall, ServerError], bool] | None = None
        """Takes over a call that was refused so, or by ASK; False if its caller gets the error."""

    @property
    def capacity(self) -> int:
        """How many more commands may be written now."""
        free = MAX_COMMANDS - len(self._waiters)
        if self._paused or self._bytes >= MAX_BYTES or free <= 0:
            self._full = True
            return 0
        return free

    @property
    def idle(self) -> bool:
        return not self._waiters and not self.closed.done()

    def write(self, packed: Sequence[bytes], waiters: Sequence[Waiter]) -> None:
        """Send commands, already packed, in one write; each reply goes to its waiter."""
        if not packed:
            return
        if self.closed.done() or self._transport is None:
            for waiter in waiters:
                fail_waiter(
                    waiter, NotSent(f"no connection to {self.peer}; the command was not sent")
                )
            return
        data = packed[0] if len(packed) == 1 else b"".join(packed)
        now = self._loop.time()
        self._sent += len(waiters)
        self._bytes += len(data)
        self._waiters.extend(waiters)
        self._marks.append((self._sent, now, len(data)))
        if self._deadline is None and waiters:
            self._arm(self.reply_timeout_s)
        self._transport.write(data)

    def call(self, *args: Arg) -> Waiter:
        """Send one command now."""
        packed = pack(args)
        waiter: Waiter = self._loop.create_future()
        self.write((packed,), (waiter,))
        return waiter

    def send_unanswered(self, *args: Arg) -> None:
        """Send a command whose reply is a push, such as SUBSCRIBE."""
        self.write((pack(args),), ())

    def retire(self) -> None:
        """Close after the outstanding replies have arrived."""
        self._retiring = True
        if not self._waiters:
            self.fail(ConnectionResetError("the server is no longer the primary"))

    def fail(self, reason: Exception) -> None:
        """Abort the socket and fail all waiters; later replies cannot be matched."""
        if self.closed.done():
            return
        self.closed.set_result(reason)
        for timer in (self._deadline, self._write_deadline):
            if timer is not None:
                timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            fail_waiter(waiter, self._lost(reason))

    async def close(self, why: str) -> None:
        """Abort the socket and return when it is closed."""
        self.fail(ConnectionAbortedError(why))
        if self._transport is not None:
            await self._gone.wait()

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's: no isinstance here.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER)

    def data_received(self, data: bytes) -> None:
        self._bytes_seen += len(data)
        self._reply_bytes += len(data)
        if self._reply_bytes > self.max_reply_bytes:
            self.fail(ConnectionAbortedError(f"a reply above {self.max_reply_bytes:,.0f} bytes"))
            return
        reader, waiters = self._reader, self._waiters
        reader.feed(data)
        try:
            while (reply := reader.gets()) is not INCOMPLETE:
                self._reply_bytes = 0
                if isinstance(reply, hiredis.PushNotification):
                    self.on_push(reply)
                    continue
                if not waiters:
                    self.fail(ConnectionAbortedError("unexpected reply without a command"))
                    return
                waiter = waiters.popleft()
                self._answered += 1
                if isinstance(reply, ServerError):
                    self._error(waiter, reply)
                elif not waiter.done():  # a cancelled caller's reply is dropped
                    waiter.set_result(reply)
        except hiredis.ProtocolError as error:
            self.fail(error)
            return
        marks = self._marks
        while marks and marks[0][0] <= self._answered:
            self._bytes -= marks.popleft()[2]
        if self._full and not self._paused:
            self._full = False
            self.on_capacity()
        if self._retiring and not waiters:
            self.fail(ConnectionResetError("the server is no longer the primary"))

    def pause_writing(self) -> None:
        self._paused = True
        self._write_deadline = self._loop.call_later(self._write_timeout_s, self._write_timed_out)

    def resume_writing(self) -> None:
        self._paused = False
        if self._write_deadline is not None:
            self._write_deadline.cancel()
        if self._full:
            self._full = False
            self.on_capacity()

    def eof_received(self) -> None:
        self.fail(ConnectionResetError("the server closed the connection"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone.set()
        self.fail(exc or ConnectionResetError("the server closed the connection"))

    # Deadlines

    def _arm(self, delay_s: float) -> None:
        self._deadline = None
        if delay_s != float("inf"):
            self._deadline = self._loop.call_later(delay_s, self._check_oldest)

    def _check_oldest(self) -> None:
        self._deadline = None
        if not self._waiters:
            return
        late_s = self._loop.time() - self._marks[0][1] - self.reply_timeout_s
        if late_s < 0:
            self._arm(-late_s)
        else:
            # The event loop may have been blocked while the reply was in the socket buffer, and
            # some loops run timers before reads: check once more after a read was possible.
            self._deadline = self._loop.call_later(_GRACE_S, self._expire, self._bytes_seen)

    def _expire(self, bytes_seen: int) -> None:
        if self._bytes_seen == bytes_seen and self._waiters:
            self.fail(TimeoutError(f"no reply within {self.reply_timeout_s:g} s"))
        else:
            self._check_oldest()

    def _write_timed_out(self) -> None:
        if self._paused:
            self.fail(TimeoutError(f"the server read nothing for {self._write_timeout_s:g} s"))

    # Failures

    def _error(self, waiter: Waiter, error: ServerError) -> None:
        is_redirect = error.code in self.redirects and not self._names_another_slot(error)
        if is_redirect:
            self.on_redirect(error)
            self.on_not_primary()
        if (
            self.repeat is not None
            and isinstance(waiter, RepeatableCall)
            and (is_redirect or error.code == "ASK")
            and self.repeat(waiter, error)
        ):
            return
        if (
            error.code == "NOSCRIPT"
            and self.on_unknown_script is not None
            and isinstance(waiter, ScriptCall)
            and not waiter.reloaded
        ):
            self.on_unknown_script(waiter)
        else:
            fail_waiter(waiter, error)

    def _names_another_slot(self, error: ServerError) -> bool:
        """Whether the command had a key of another slot: the caller's error. `MOVED 7638 …`"""
        if error.code != "MOVED" or self.slot is None:
            return False
        return str(error).split(" ")[1:2] != [str(self.slot)]

    def _lost(self, reason: Exception) -> ConnectionLost:
        lost = ConnectionLost(
            f"connection to {self.peer} lost ({reason}); the command may have run"
        )
        lost.__cause__ = reason
        return lost
