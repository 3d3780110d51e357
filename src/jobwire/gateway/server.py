"""The HTTP server: uvicorn's, with a check of every connection once a second.

At shutdown event streams are ended first: uvicorn would wait for them, and they do not end by
themselves.
"""

import asyncio
import gc
import logging
import socket
from collections.abc import Callable
from typing import Final, cast

import uvicorn

from jobwire.gateway.app import Gateway
from jobwire.gateway.connection import HttpConnection
from jobwire.gateway.request import ASGIApp
from jobwire.gateway.settings import GatewaySettings

_SWEEP_S: Final = 1.0


class HttpServer(uvicorn.Server):
    """Serves one gateway on one socket until `stop`."""

    def __init__(
        self,
        gateway: Gateway,
        settings: GatewaySettings,
        on_ready: Callable[[], None] = lambda: None,
        around: Callable[[ASGIApp], ASGIApp] = lambda app: app,
    ) -> None:
        """`around` may wrap the application, for example with tracing."""
        protocol: type[HttpConnection] = type("Limited", (HttpConnection,), {"limits": settings})
        # Lower levels repeat our own log, and clients can cause them at will.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        super().__init__(
            uvicorn.Config(
                around(gateway),
                http=protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=2048,
                timeout_keep_alive=int(settings.keep_alive.total_seconds()) or 1,
                timeout_graceful_shutdown=int(settings.drain.total_seconds()) or 1,
            )
        )
        self._gateway = gateway
        self._on_ready = on_ready
        self._swept_at_s = 0.0

    def stop(self) -> None:
        """Stop: the first call lets requests finish, the second does not."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    async def on_tick(self, counter: int) -> bool:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._swept_at_s >= _SWEEP_S:
            self._swept_at_s = now_s
            for connection in cast(
                "tuple[HttpConnection, ...]", tuple(self.server_state.connections)
            ):
                connection.sweep(now_s)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Listening ends first, so that a client that reconnects reaches another gateway.
        for server in self.servers:
            server.close()
        await self._gateway.streams.stop()
        await super().shutdown(sockets)

    async def run_until_stopped(self, listening: socket.socket) -> None:
        """Serve until `stop`; the caller handles signals."""
        # Objects of the start-up live until the end: scanning them cost a fifth of a request.
        gc.collect()
        gc.freeze()
        # Requests create hardly any reference cycles.
        gc.set_threshold(20_000, 20, 100)
        async with self._gateway.streams.running():
            await self._serve([listening])
