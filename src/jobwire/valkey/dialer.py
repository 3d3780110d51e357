"""Opens all sockets of a connection: at a fixed address, or at the primary that sentinels name.

Used by the connection, its pool and its subscriptions. With Sentinel each dial asks for the
primary, and a subscription to one of the sentinels announces failovers: sockets of a former primary
are closed, also if that server hangs and would never close them. A server behind a fixed name, as
managed services have it, needs none of this: its name is resolved at each dial.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from jobwire.valkey.config import Config
from jobwire.valkey.dial import backoff_s, dial
from jobwire.valkey.errors import AuthFailed, ServerError, Unavailable, Unsupported, ValkeyError
from jobwire.valkey.resp_socket import Arg, Push, RespSocket
from jobwire.valkey.subscription import Subscription

_log = logging.getLogger("jobwire.valkey")
_SWITCHED: Final = "+switch-master"
_NAME: Final = "jobwire-sentinel"
_OTHERS_S: Final = 1.0
"""How long to wait for further sentinels after the first has answered."""


class Dialer:
    def __init__(self, config: Config) -> None:
        self.config = config
        self._open: dict[RespSocket, str] = {}
        """Sockets → the address of their server; with Sentinel only."""
        self._attempts: dict[asyncio.Timeout, str] = {}
        """Dials that are under way, with the address of their server as soon as it is known."""
        self._switched = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    async def dial(
        self,
        name: str,
        setup: Sequence[tuple[Arg, ...]] = (),
        on_push: Callable[[Push], None] | None = None,
    ) -> tuple[RespSocket, int]:
        """Connect once; see `dial.dial`."""
        if not self.config.sentinels:
            return await dial(self.config, name, setup, on_push)
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch(), name=f"{name}: sentinels")
        while True:
            # Ended by a failover meanwhile: a hanging server would use up the whole time.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None) as attempt:
                    return await self._attempt(attempt, name, setup, on_push)

    async def _attempt(
        self,
        attempt: asyncio.Timeout,
        name: str,
        setup: Sequence[tuple[Arg, ...]],
        on_push: Callable[[Push], None] | None,
    ) -> tuple[RespSocket, int]:
        self._attempts[attempt] = ""
        try:
            found = await find_primary(self.config)
            self._attempts[attempt] = found.address
            sock, client_id = await dial(found, name, setup, on_push)
        finally:
            del self._attempts[attempt]
        self._open[sock] = found.address
        sock.closed.add_done_callback(lambda _: self._open.pop(sock, None))
        return sock, client_id

    async def pause(self, seconds: float) -> None:
        """Wait before the next attempt; a failover ends the pause."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._switched.wait()

    async def close(self) -> None:
        """Watch no longer; open sockets are their users'."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)

    async def _watch(self) -> None:
        attempts = 0
        while True:
            with contextlib.suppress(ValkeyError):
                dial_any = partial(_dial_any_sentinel, self.config)
                async with Subscription(dial_any, (_SWITCHED,)) as messages:
                    attempts = 0
                    # What happened before the subscription, or while it was interrupted, was
                    # not announced.
                    self._now_at((await find_primary(self.config)).address)
                    async for message in messages:
                        if message is None:
                            break
                        name, *_, host, port = message[1].split(" ")
                        if name == self.config.primary:
                            self._now_at(_address(host, port))
            await asyncio.sleep(backoff_s(attempts))
            attempts += 1

    def _now_at(self, address: str) -> None:
        """The primary has this address: end everything at another one."""
        former = [sock for sock, at in self._open.items() if at != address]
        for sock in former:
            sock.fail(ConnectionResetError(f"the primary is now {address}"))
        if former:
            _log.warning(
                "failover primary=%(primary)s address=%(address)s sockets=%(sockets)s; "
                "reconnecting",
                {"primary": self.config.primary, "address": address, "sockets": len(former)},
            )
        now_s = asyncio.get_running_loop().time()
        for attempt, at in self._attempts.items():
            if at != address:
                attempt.reschedule(now_s)
        self._switched.set()
        self._switched.clear()


@dataclass(frozen=True, slots=True)
class _Answer:
    """What one sentinel knows of the primary."""

    epoch: int
    """Counts failovers: of two answers the larger epoch is right."""
    address: str


async def find_primary(config: Config) -> Config:
    """The configuration of the server that is the primary now: by the newest answer, since the
    others follow the sentinel that led a failover. Without Sentinel the same configuration."""
    if not config.sentinels:
        return config
    asking = {asyncio.create_task(_ask(config, address)) for address in config.sentinels}
    everyone = frozenset(asking)
    answers: list[_Answer] = []
    errors: list[ValkeyError] = []
    try:
        while asking:
            done, asking = await asyncio.wait(
                asking,
                timeout=_OTHERS_S if answers else config.dial_timeout_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not done:
                break
            for task in done:
                try:
                    answers.append(task.result())
                except ValkeyError as error:
                    errors.append(error)
    finally:
        for task in everyone:
            task.cancel()
        await asyncio.gather(*everyone, return_exceptions=True)
    if not answers:
        raise _no_answer(config, errors)
    return config.of_primary(max(answers, key=lambda answer: answer.epoch).address)


async def _ask(config: Config, address: str) -> _Answer:
    sock, _ = await dial(config.of_sentinel(address), _NAME, sentinel=True)
    try:
        # The sentinel that leads a failover goes on to list the former address in the first reply.
        state, server = await asyncio.gather(
            sock.call("SENTINEL", "MASTER", config.primary),
            sock.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", config.primary),
        )
    except ServerError as error:
        raise Unavailable(f"the sentinel {address} has no {config.primary!r}: {error}") from error
    finally:
        await sock.close("the sentinel was asked")
    assert isinstance(state, dict)
    assert isinstance(server, list)
    return _Answer(int(str(state["config-epoch"])), _address(str(server[0]), str(server[1])))


def _no_answer(config: Config, errors: Sequence[ValkeyError]) -> ValkeyError:
    """The error if no sentinel knows the primary; final only if it is so for each of them."""
    reasons = "; ".join(dict.fromkeys(map(str, errors))) or f"{config.dial_timeout_s:g} s passed"
    for kind in (AuthFailed, Unsupported):
        if len(errors) == len(config.sentinels) and all(isinstance(e, kind) for e in errors):
            return kind(reasons)
    return Unavailable(f"no sentinel of {config.primary!r} answers: {reasons}")


async def _dial_any_sentinel(
    config: Config, *, on_push: Callable[[Push], None]
) -> tuple[RespSocket, int]:
    """Connect to one of the sentinels, whichever answers."""
    addresses = random.sample(config.sentinels, len(config.sentinels))
    for address in addresses[:-1]:
        with contextlib.suppress(ValkeyError):
            return await dial(config.of_sentinel(address), _NAME, on_push=on_push, sentinel=True)
    return await dial(config.of_sentinel(addresses[-1]), _NAME, on_push=on_push, sentinel=True)


def _address(host: str, port: str) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
