"""A TCP proxy that misbehaves on request, between a client and a real server.

Used by tests of everything that talks to a server: it records, holds, cuts, delays, drops
bytes, refuses connections, and offers TLS to the client. It runs in its own thread, so a test
may block its own loop while the proxy continues.

    with Proxy(valkey.port) as proxy:
        client = connect(proxy.url(valkey.url))
        with proxy.hold("XADD") as hold:
            ...
            await hold.until_reached()     # the command is here, the server has not seen it
            proxy.cut()
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Final, Self, TypeVar

from jobwire.local.ports import LOOPBACK
from tests.support.resp import Command, CommandReader
from tests.support.tls import own_certificate
from tests.support.wait import wait_until, wait_until_sync

T = TypeVar("T")
Match = str | Callable[[Command], bool]

_CHUNK: Final = 65_536


class Hold:
    """A place where a command waits; later commands of its connection wait behind it."""

    def __init__(self, proxy: Proxy, match: Match) -> None:
        self._proxy = proxy
        self._match = match
        self._gate = asyncio.Event()
        self.command: Command | None = None
        self.answered = False
        """The server has sent something to the connection since the command was forwarded."""

    @property
    def reached(self) -> bool:
        """Whether a command is (or was) held here."""
        return self.command is not None

    async def until_reached(self) -> Command:
        """Wait, in an async test, until the command is here."""
        await wait_until(lambda: self.reached, f"the proxy to hold {self._match}")
        assert self.command
        return self.command

    def wait_reached(self) -> Command:
        """Wait, in a sync test, until the command is here."""
        wait_until_sync(lambda: self.reached, f"the proxy to hold {self._match}")
        assert self.command
        return self.command

    async def until_answered(self) -> None:
        """Wait, after the release, until the server has run the command."""
        await wait_until(lambda: self.answered, f"the server to answer {self._match}")

    def release(self) -> None:
        """Forward the command to the server."""
        self._proxy.call(self._release)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    async def passes(self, command: Command) -> bool:
        """Wait here if this command is the one to hold, and say so; called by the proxy."""
        if self._gate.is_set() or not matches(self._match, command):
            return False
        self.command = self.command or command
        await self._gate.wait()
        return True

    async def _release(self) -> None:
        self._gate.set()
        self._proxy.forget(self)


class Proxy:
    """Listens on a free port of loopback and forwards to `upstream` (a port of loopback)."""

    def __init__(self, upstream: int, *, tls: bool = False, port: int = 0) -> None:
        self.upstream = upstream
        self.tls = tls
        self.port = port
        self.commands: list[Command] = []
        self.sent = bytearray()
        self.received = bytearray()
        self.delay_s = 0.0
        self.accepted = 0
        self._holds: list[Hold] = []
        self._links: set[_Link] = set()
        self._writers: weakref.WeakSet[asyncio.StreamWriter] = weakref.WeakSet()
        self._refusing = False
        self._reading = asyncio.Event()
        self._reading.set()
        self._silent = False
        self._budget: int | None = None
        self._cut_at: tuple[Match, int] | None = None
        self._cut_reply: Match | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._server: asyncio.Server | None = None

    def start(self) -> Self:
        """Listen."""
        self._thread.start()
        self.call(self._listen)
        return self

    def stop(self) -> None:
        """End every connection and the thread."""
        if self._loop.is_closed():
            return
        self.call(self._close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        assert not self._thread.is_alive(), "the proxy did not stop"
        self._loop.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # Observations.

    def url(self, upstream_url: str) -> str:
        """The same URL, through this proxy."""
        through = re.sub(r"(@|//)[^@/]+(/\d+)?$", rf"\g<1>{LOOPBACK}:{self.port}\2", upstream_url)
        return re.sub(r"^(valkey|redis)s?:", r"\1s:" if self.tls else r"\1:", through)

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def connections(self) -> int:
        """How many clients are connected now."""
        return len(self._links)

    @property
    def names(self) -> list[str]:
        """The names of all commands seen, in order of arrival."""
        return [command.name for command in list(self.commands)]

    def seen(self, match: Match) -> list[Command]:
        """The commands seen that fit a name or a condition."""
        return [command for command in list(self.commands) if matches(match, command)]

    async def until_seen(self, match: Match, count: int = 1) -> Command:
        """Wait, in an async test, for a command to arrive; returns the last of `count`."""
        await wait_until(lambda: len(self.seen(match)) >= count, f"the proxy to see {match}")
        return self.seen(match)[count - 1]

    def wait_seen(self, match: Match, count: int = 1) -> Command:
        """The same in a sync test."""
        wait_until_sync(lambda: len(self.seen(match)) >= count, f"the proxy to see {match}")
        return self.seen(match)[count - 1]

    def wait_behind(self, text: str) -> None:
        """Wait, in a sync test, for text of a command that waits behind a held one."""

        async def arrived() -> bool:
            return any(text.encode() in link.unread for link in self._links)

        wait_until_sync(lambda: self.call(arrived), f"the proxy to get {text}")

    def forget_seen(self) -> None:
        """Clear the records."""
        self.commands.clear()
        self.sent.clear()
        self.received.clear()

    # Faults.

    def hold(self, match: Match) -> Hold:
        """Let the next fitting command wait before the server gets it."""

        async def add() -> Hold:
            hold = Hold(self, match)
            self._holds.append(hold)
            return hold

        return self.call(add)

    def cut(self) -> None:
        """Break every connection now, as a pulled cable with a reset would."""
        self.call(self._cut_all)

    def cut_one(self, number: int) -> None:
        """Break one of the connections, chosen by number; the others stay."""

        async def cut() -> None:
            if links := list(self._links):
                links[number % len(links)].cut()

        self.call(cut)

    def cut_after(self, size: int) -> None:
        """Break the connection once this many more bytes went to the server."""
        self._budget = size

    def cut_at(self, match: Match, size: int = 5) -> None:
        """Break the connection in the middle of the next fitting command, `size` bytes into it."""
        self._cut_at = (match, size)

    def cut_reply(self, match: Match) -> None:
        """Let the next fitting command run on the server, and break before its reply arrives."""
        self._cut_reply = match

    def inject(self, data: bytes) -> None:
        """Send bytes to every client as if the server had sent them."""

        async def send() -> None:
            for link in list(self._links):
                await link.back(data)

        self.call(send)

    def half_close(self) -> None:
        """End the server's side of every connection; what clients send still arrives."""
        self.call(self._half_close)

    def stop_reading(self) -> None:
        """Stop reading what clients send."""
        self._loop.call_soon_threadsafe(self._reading.clear)

    def resume_reading(self) -> None:
        """Read again."""
        self._loop.call_soon_threadsafe(self._reading.set)

    def silence(self) -> None:
        """Half-open: connections stay, but no byte passes in either direction."""
        self._silent = True

    def refuse(self) -> None:
        """Break every connection and refuse new ones."""
        self._refusing = True
        self.cut()

    def accept(self) -> None:
        """Accept new connections again, and forward bytes."""
        self._refusing = False
        self._silent = False

    def heal(self) -> None:
        """Forward everything again; cancel faults that wait for a command."""
        self.accept()
        self.delay_s = 0.0
        self._cut_at = self._cut_reply = self._budget = None

    # Internal, in the proxy's own thread.

    def call(self, action: Callable[[], Coroutine[None, None, T]]) -> T:
        """Run a function in the proxy's thread and wait for it."""
        return asyncio.run_coroutine_threadsafe(action(), self._loop).result(30)

    def forget(self, hold: Hold) -> None:
        if hold in self._holds:
            self._holds.remove(hold)

    async def _listen(self) -> None:
        context = own_certificate().server_context() if self.tls else None
        self._server = await asyncio.start_server(
            self._serve, LOOPBACK, self.port, ssl=context, limit=_CHUNK
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        if self._refusing:
            _reset(writer)
            return
        self.accepted += 1
        try:
            upstream = await asyncio.open_connection(LOOPBACK, self.upstream, limit=_CHUNK)
        except OSError:
            _reset(writer)
            return
        self._writers.add(upstream[1])
        link = _Link(self, (reader, writer), upstream)
        self._links.add(link)
        # Behind a canceled task asyncio closes the transport once more, and a TLS transport that is
        # closed twice forgets its socket, which `_reset` needs.
        with contextlib.suppress(asyncio.CancelledError):
            await link.run()
        self._links.discard(link)

    async def _close(self) -> None:
        assert self._server is not None
        self._refusing = True
        for listening in self._server.sockets:
            self._loop.remove_reader(listening.fileno())
        # asyncio leaves a socket that is being accepted to the garbage collector if its server is
        # closed, or its task canceled, before the first step of that task.
        await _turns()
        self._server.close()
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            for writer in self._writers:
                _reset(writer)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await _turns()
        for writer in self._writers:
            _reset(writer)
        await _turns()

    async def _cut_all(self) -> None:
        for link in list(self._links):
            link.cut()

    async def _half_close(self) -> None:
        for link in list(self._links):
            link.half_close()

    async def to_server(self, command: Command, link: _Link) -> None:
        """Decide how to handle a command; called by a link."""
        self.commands.append(command)
        for hold in list(self._holds):
            if await hold.passes(command):
                link.released = hold
        if self._cut_at and matches(self._cut_at[0], command):
            size, self._cut_at = self._cut_at[1], None
            await link.forward(command.raw[:size])
            link.cut()
            return
        if self._cut_reply and matches(self._cut_reply, command):
            self._cut_reply = None
            link.cut_at_next_reply = True
        raw = command.raw
        if self._budget is not None:
            raw, self._budget = raw[: self._budget], self._budget - len(raw)
        if not self._silent:
            await link.forward(raw)
        if self._budget is not None and self._budget <= 0:
            self._budget = None
            link.cut()

    async def to_client(self, data: bytes, link: _Link) -> None:
        """Decide how to handle a reply; called by a link."""
        self.received += data
        if link.released:
            link.released.answered, link.released = True, None
        if link.cut_at_next_reply:
            link.cut()
        elif not self._silent:
            await link.back(data)

    async def until_reading(self) -> None:
        await self._reading.wait()


_Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Link:
    """One client and its connection to the server."""

    def __init__(self, proxy: Proxy, client: _Pair, server: _Pair) -> None:
        self._proxy = proxy
        self._client_reads, self._client_writes = client
        self._server_reads, self._server_writes = server
        self._half_closed = False
        self.cut_at_next_reply = False
        self.released: Hold | None = None

    @property
    def unread(self) -> bytes:
        """What the client has sent behind the command that is being handled."""
        return bytes(self._client_reads._buffer)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType] - nothing public has it

    async def run(self) -> None:
        pumps = [
            asyncio.create_task(self._pump_commands()),
            asyncio.create_task(self._pump_replies()),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for writer in (self._client_writes, self._server_writes):
                if not writer.is_closing():  # not twice: see `_serve`
                    writer.close()

    async def forward(self, data: bytes) -> None:
        self._proxy.sent += data
        self._server_writes.write(data)
        await self._server_writes.drain()

    async def back(self, data: bytes) -> None:
        if not self._half_closed:
            self._client_writes.write(data)
            await self._client_writes.drain()

    def cut(self) -> None:
        _reset(self._client_writes)
        _reset(self._server_writes)

    def half_close(self) -> None:
        self._half_closed = True
        if self._client_writes.can_write_eof():
            self._client_writes.write_eof()

    async def _pump_commands(self) -> None:
        commands = CommandReader()
        while True:
            await self._proxy.until_reading()
            data = await self._client_reads.read(_CHUNK)
            if not data:
                return
            if self._proxy.delay_s:
                await asyncio.sleep(self._proxy.delay_s)
            for command in commands.feed(data):
                await self._proxy.to_server(command, self)

    async def _pump_replies(self) -> None:
        while data := await self._server_reads.read(_CHUNK):
            if self._proxy.delay_s:
                await asyncio.sleep(self._proxy.delay_s)
            await self._proxy.to_client(data, self)


def matches(match: Match, command: Command) -> bool:
    """Whether a command fits a name ("HSET") or a condition."""
    return command.name == match.upper() if isinstance(match, str) else match(command)


async def _turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def _reset(writer: asyncio.StreamWriter) -> None:
    # Linger 0: the peer gets a reset at once, whatever is still in the buffers.
    peer = writer.get_extra_info("socket")
    if peer is not None and peer.fileno() >= 0:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
