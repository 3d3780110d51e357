"""One socket: commands go out in call order, replies are matched to their callers in order.

Used by the connection (shared by many callers) and by sockets that block. It knows bytes,
waiters and deadlines; it never reconnects, never sends anything twice and never invents a
command. When in doubt about which reply belongs to whom, it gives the socket up.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, cast

import hiredis

from jobwire.valkey.errors import ConnectionLost, NotSent, ServerError, error_reply

Arg: TypeAlias = str | bytes | int | float
Reply: TypeAlias = "str | int | float | bool | list[Reply] | dict[str, Reply] | ServerError | None"
"""What a server may answer: text is decoded, a map is a dict, nil is None; an error inside an
array stays where it is, as a value."""
Push: TypeAlias = list[Reply]

# The library's own annotation says "a tuple of one"; it takes any length.
pack = cast("Callable[[tuple[Arg, ...]], bytes]", hiredis.pack_command)
"""A command as bytes. Raises on None, bool and lone surrogates."""

MAX_COMMANDS: Final = 20_000
"""Commands in flight on a socket; further ones wait their turn."""
MAX_BYTES: Final = 16 * 1024 * 1024
"""Bytes in flight on a socket; what a slow server may cost us in memory."""
_HIGH_WATER: Final = 1024 * 1024
_GRACE_S: Final = 0.05
_NOTHING: Final = object()  # hiredis would say False for "no reply yet", which is a legal reply
_UNFIT: Final = frozenset({"READONLY", "MASTERDOWN", "LOADING"})


class ScriptCall(asyncio.Future[Reply]):
    """The waiter of an EVALSHA: keeps its bytes, since NOSCRIPT means that nothing ran."""

    packed: bytes
    reloaded: bool = False


Waiter: TypeAlias = asyncio.Future[Reply]


def _ignore(*_: object) -> None:
    """The default for what nobody listens to."""


class RespSocket(asyncio.Protocol):
    def __init__(self, peer: str, read_timeout_s: float, write_timeout_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._peer = peer
        self._reader = hiredis.Reader(
            replyError=error_reply,
            notEnoughData=_NOTHING,
            encoding="utf-8",
            errors="surrogateescape",
        )
        self._waiters: deque[Waiter] = deque()
        # One mark a write, not one a command: (commands sent so far, when, bytes).
        self._marks: deque[tuple[int, float, int]] = deque()
        self._sent = self._answered = self._bytes = self._bytes_seen = 0
        self._transport: asyncio.Transport | None = None
        self._paused = self._full = self._retiring = False
        self._deadline: asyncio.TimerHandle | None = None
        self._write_deadline: asyncio.TimerHandle | None = None
        self._write_timeout_s = write_timeout_s
        self.patience_s = read_timeout_s
        """How long the oldest command may wait for its reply; `inf` means for ever."""
        self.closed: asyncio.Future[Exception] = self._loop.create_future()
        """Done, with the reason, once the socket is of no use any more."""
        self._gone = asyncio.Event()
        self.on_push: Callable[[Push], None] = _ignore
        self.on_room: Callable[[], None] = _ignore
        self.on_forgotten: Callable[[ScriptCall], None] | None = None
        """NOSCRIPT arrived: the connection loads its scripts and sends the call again."""
        self.on_unfit: Callable[[], None] = _ignore
        """The server answers, but is not (or no longer) one that we can write to."""

    @property
    def capacity(self) -> int:
        """How many more commands may be written now."""
        if self._paused or self._bytes >= MAX_BYTES:
            self._full = True
            return 0
        free = MAX_COMMANDS - len(self._waiters)
        if free <= 0:
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
                _fail(waiter, NotSent(f"no connection to {self._peer}; the command was not sent"))
            return
        data = packed[0] if len(packed) == 1 else b"".join(packed)
        now = self._loop.time()
        self._sent += len(waiters)
        self._bytes += len(data)
        self._waiters.extend(waiters)
        self._marks.append((self._sent, now, len(data)))
        if self._deadline is None and waiters:
            self._arm(self.patience_s)
        self._transport.write(data)

    def call(self, *args: Arg) -> Waiter:
        """Send one command now."""
        packed = pack(args)
        waiter: Waiter = self._loop.create_future()
        self.write((packed,), (waiter,))
        return waiter

    def send_unanswered(self, *args: Arg) -> None:
        """SUBSCRIBE and its like, whose answer is a push."""
        self.write((pack(args),), ())

    def retire(self) -> None:
        """Close as soon as the replies under way are in."""
        self._retiring = True
        if not self._waiters:
            self.fail(ConnectionResetError("given up for another server"))

    def fail(self, reason: Exception) -> None:
        """Give the socket up: nothing that comes from it now can be trusted."""
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
            _fail(waiter, self._lost(reason))

    async def close(self, why: str) -> None:
        """Give the socket up, and return when the system has it back."""
        self.fail(ConnectionAbortedError(why))
        if self._transport is not None:
            await self._gone.wait()

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's, so no isinstance here.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER)

    def data_received(self, data: bytes) -> None:
        self._bytes_seen += len(data)
        reader, waiters = self._reader, self._waiters
        reader.feed(data)
        try:
            while (reply := reader.gets()) is not _NOTHING:
                if isinstance(reply, hiredis.PushNotification):
                    self.on_push(reply)
                    continue
                if not waiters:
                    self.fail(ConnectionAbortedError("a reply came that nobody asked for"))
                    return
                waiter = waiters.popleft()
                self._answered += 1
                if isinstance(reply, ServerError):
                    self._error(waiter, reply)
                elif not waiter.done():  # a cancelled caller's reply is taken and dropped
                    waiter.set_result(reply)
        except hiredis.ProtocolError as error:
            self.fail(error)
            return
        marks = self._marks
        while marks and marks[0][0] <= self._answered:
            self._bytes -= marks.popleft()[2]
        if self._full and not self._paused:
            self._full = False
            self.on_room()
        if self._retiring and not waiters:
            self.fail(ConnectionResetError("given up for another server"))

    def pause_writing(self) -> None:
        self._paused = True
        self._write_deadline = self._loop.call_later(self._write_timeout_s, self._stuck)

    def resume_writing(self) -> None:
        self._paused = False
        if self._write_deadline is not None:
            self._write_deadline.cancel()
        if self._full:
            self._full = False
            self.on_room()

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
        late_s = self._loop.time() - self._marks[0][1] - self.patience_s
        if late_s < 0:
            self._arm(-late_s)
        else:
            # Our own loop may have been blocked while the reply lay in the socket, and some
            # loops run timers before they read: look once more after they had their chance.
            self._deadline = self._loop.call_later(_GRACE_S, self._expire, self._bytes_seen)

    def _expire(self, bytes_seen: int) -> None:
        if self._bytes_seen == bytes_seen and self._waiters:
            self.fail(TimeoutError(f"no reply within {self.patience_s:g} s"))
        else:
            self._check_oldest()

    def _stuck(self) -> None:
        if self._paused:
            self.fail(TimeoutError(f"the server read nothing for {self._write_timeout_s:g} s"))

    # Failures

    def _error(self, waiter: Waiter, error: ServerError) -> None:
        if error.code in _UNFIT:
            self.on_unfit()
        if (
            error.code == "NOSCRIPT"
            and self.on_forgotten is not None
            and isinstance(waiter, ScriptCall)
            and not waiter.reloaded
        ):
            self.on_forgotten(waiter)
        else:
            _fail(waiter, error)

    def _lost(self, reason: Exception) -> ConnectionLost:
        lost = ConnectionLost(
            f"connection to {self._peer} lost ({reason}); the command may have run"
        )
        lost.__cause__ = reason
        return lost


def _fail(waiter: Waiter, error: Exception) -> None:
    if not waiter.done():
        waiter.set_exception(error)
