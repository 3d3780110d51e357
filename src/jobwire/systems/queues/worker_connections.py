"""What all BullMQ queues of one worker share on one server: sockets, renewal, cancel requests.

Built by `worker.py` with the engines of the queues. One blocking socket waits for all queues, one
renewer renews all locks, one subscription brings all cancel requests.
"""

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator
from typing import Final

from jobwire.job.messages import CancelRequest, Token
from jobwire.systems.queues.clock import NowMs, system_now_ms
from jobwire.systems.queues.contract import TOKEN_PREFIX, control_channel
from jobwire.systems.queues.idle_queues import IdleQueues
from jobwire.systems.queues.lease_renewal import BullLeaseRenewer
from jobwire.systems.queues.replies import raises_unavailable
from jobwire.systems.queues.scripts import SCRIPTS
from jobwire.systems.queues.settings import BullSettings
from jobwire.valkey import Config, Connection, ValkeyError

_log = logging.getLogger("jobwire.bullmq")
_SUBSCRIBE_PAUSE_S: Final = 1.0


class WorkerConnections:
    def __init__(
        self,
        server: Connection | Config,
        settings: BullSettings | None = None,
        *,
        worker_name: str = "",
        now_ms: NowMs = system_now_ms,
    ) -> None:
        """`server` is an open connection, or where to connect to: then the first engine that
        registers opens the connection, and the last one that leaves closes it."""
        self.settings = settings or BullSettings()
        self.worker_name = worker_name
        self.worker_id = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self.token_prefix = f"{TOKEN_PREFIX}{secrets.token_hex(12)}:"
        self.now_ms = now_ms
        self._given = server if isinstance(server, Connection) else None
        self.config = server.config if isinstance(server, Connection) else server
        self._connection = self._given
        self._opening = asyncio.Lock()
        self._engines = 0
        self._tokens = 0
        self._idle: IdleQueues | None = None
        self._renewer: BullLeaseRenewer | None = None
        self._listeners: set[asyncio.Queue[Token]] = set()
        self._subscription: asyncio.Task[None] | None = None

    @property
    def connection(self) -> Connection:
        if self._connection is None:
            raise RuntimeError("register an engine of this worker first")
        return self._connection

    @property
    def idle(self) -> IdleQueues:
        if self._idle is None:
            self._idle = IdleQueues(self.connection, self.now_ms)
        return self._idle

    def new_tokens(self, count: int) -> list[str]:
        """Unique tokens, which begin with `token_prefix` (B-15)."""
        first = self._tokens
        self._tokens += count
        return [f"{self.token_prefix}{number}" for number in range(first, first + count)]

    def lease_renewer(self) -> BullLeaseRenewer:
        """One renewer for all engines."""
        if self._renewer is None:
            self._renewer = BullLeaseRenewer(self.config, self.settings, self.now_ms)
        return self._renewer

    async def register(self) -> None:
        """An engine registers."""
        async with self._opening:
            with raises_unavailable():
                if self._connection is None:
                    self._connection = await Connection.open(self.config, name="jobwire-queues")
                await self._connection.load_scripts(SCRIPTS.values())
            self._engines += 1

    async def deregister(self) -> None:
        """An engine has deregistered; the last one closes what was opened."""
        async with self._opening:
            self._engines -= 1
            if self._engines > 0:
                return
            if self._idle is not None:
                await self._idle.close()
                self._idle = None
            if self._subscription is not None:
                self._subscription.cancel()
                await asyncio.gather(self._subscription, return_exceptions=True)
                self._subscription = None
            if self._connection is not None and self._connection is not self._given:
                await self._connection.close()
                self._connection = None

    # Cancel requests

    async def cancels(self) -> AsyncIterator[CancelRequest]:
        """Tokens of jobs to be canceled, of all queues; `renew` also answers requests that were
        missed here."""
        listener: asyncio.Queue[Token] = asyncio.Queue()
        self._listeners.add(listener)
        if self._subscription is None or self._subscription.done():
            self._subscription = asyncio.create_task(self._listen(), name="bullmq: cancels")
        try:
            while True:
                yield CancelRequest(await listener.get())
        finally:
            self._listeners.discard(listener)

    async def _listen(self) -> None:
        channel = control_channel(self.settings.prefix)
        while True:
            try:
                async with self.connection.subscribe(channel) as messages:
                    async for message in messages:
                        if message is not None:
                            self._pass_on(Token(message[1]))
            except ValkeyError as error:
                _log.warning(
                    "cancel requests delayed until the next renewal error=%(error)s",
                    {"error": error},
                )
            await asyncio.sleep(_SUBSCRIBE_PAUSE_S)

    def _pass_on(self, token: Token) -> None:
        if token.startswith(self.token_prefix):
            for listener in self._listeners:
                listener.put_nowait(token)
