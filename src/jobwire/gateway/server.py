"""The HTTP server: accepts connections on one socket, and checks each of them once a second.

At shutdown event streams are ended first: they do not end by themselves. Then requests in flight
have the time `drain`.
"""

import asyncio
import contextlib
import gc
import resource
import socket
from collections.abc import Callable
from email.utils import formatdate
from typing import Final

from jobwire.gateway.app import Gateway
from jobwire.gateway.connection import HttpConnection, ServerState
from jobwire.gateway.memory import MemoryBudgets
from jobwire.gateway.request import ASGIApp
from jobwire.gateway.settings import GatewaySettings
from jobwire.log import component

_BACKLOG: Final = 2048
_SWEEP_S: Final = 1.0
_DRAIN_CHECK_S: Final = 0.02
_CANCEL_S: Final = 1.0
"""For requests that are cancelled when the time to drain is over."""
_OPEN_FILES: Final = 1 << 16
"""As many are asked of the system; each connection is one."""
_RESERVED_FILES: Final = 512
"""Not for connections: servers, files, child processes. At most half of what is allowed."""
_log = component("gateway.server")


class HttpServer:
    """Serves one gateway on one socket until `stop`."""

    def __init__(
        self,
        gateway: Gateway,
        settings: GatewaySettings,
        on_ready: Callable[[], None] = lambda: None,
        around: Callable[[ASGIApp], ASGIApp] = lambda app: app,
    ) -> None:
        """`around` may wrap the application, for example with tracing."""
        self.state = ServerState(around(gateway), settings, gateway.accounts)
        self._gateway = gateway
        self._memory = MemoryBudgets.of(settings)
        self._drain_s = settings.drain.total_seconds()
        self._on_ready = on_ready
        self._stopped = asyncio.Event()
        self._forced = False

    def stop(self) -> None:
        """Stop: the first call lets requests finish, the second does not."""
        self._forced = self._stopped.is_set()
        self._stopped.set()

    async def run_until_stopped(self, listening: socket.socket) -> None:
        """Serve until `stop`; the caller handles signals."""
        # Objects of the start-up live until the end: scanning them cost a fifth of a request.
        gc.collect()
        gc.freeze()
        # Requests create hardly any reference cycles.
        gc.set_threshold(20_000, 20, 100)
        allowed = _raise_open_files()
        connections = allowed - min(_RESERVED_FILES, allowed // 2)
        connections = min(connections, self._memory.connections)
        accounts = self.state.accounts
        accounts.set_limit(min(accounts.limit, connections))
        async with self._gateway.keys.running(), self._gateway.streams.running():
            self._tick()
            server = await asyncio.get_running_loop().create_server(
                lambda: HttpConnection(self.state), sock=listening, backlog=_BACKLOG
            )
            self._on_ready()
            while not self._stopped.is_set():
                await _wait(self._stopped, _SWEEP_S)
                self._tick()
            # Listening ends first, so that a client that reconnects reaches another gateway.
            server.close()
            await self._gateway.streams.stop()
            await self._drain()

    def _tick(self) -> None:
        """Once a second: the date of responses, and the time limits of all connections."""
        self.state.date_line = b"date: %b\r\n" % formatdate(usegmt=True).encode()
        now_s = asyncio.get_running_loop().time()
        for connection in tuple(self.state.connections):
            connection.sweep(now_s)
        accounts = self.state.accounts
        accounts.forget_idle()
        if accounts.closed_for_others:
            _log.warning(
                "too many connections limit=%(limit)s closed=%(closed)s; "
                "see gateway.max_connections and the limit of open files",
                {"limit": accounts.limit, "closed": accounts.closed_for_others},
            )
            accounts.closed_for_others = 0
        if self.state.closed_unread:
            _log.warning(
                "too many bytes of responses not read closed=%(closed)s; "
                "see gateway.unread_budget_mb",
                {"closed": self.state.closed_unread},
            )
            self.state.closed_unread = 0

    async def _drain(self) -> None:
        """Close each connection after its response; end what is left when the time is over."""
        state, loop = self.state, asyncio.get_running_loop()
        for connection in tuple(state.connections):
            connection.shutdown()
        until_s = loop.time() + self._drain_s
        while state.connections and not self._forced and loop.time() < until_s:
            await asyncio.sleep(_DRAIN_CHECK_S)
        if tasks := state.tasks:
            _log.error(
                "requests cancelled requests=%(requests)s; too late", {"requests": len(tasks)}
            )
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=_CANCEL_S)
        for connection in tuple(state.connections):
            connection.transport.abort()


def _raise_open_files() -> int:
    """The number of files that this process may have open, raised if the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _OPEN_FILES if soft == resource.RLIM_INFINITY else soft
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Wait for the event, but not longer."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
