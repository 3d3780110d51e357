"""Opens all sockets of a connection: at a fixed address, at the primary that sentinels name, or at
the node of a Cluster that has the connection's slot.

Used by the connection, its pool and its subscriptions. With Sentinel each dial asks for the
primary, and a subscription to one of the sentinels announces failovers: sockets of a former primary
are closed, also if that server hangs and would never close them. On a Cluster the map tells the
node (`cluster`); a node that refuses a command leads to a new map, and every socket at another node
than the map names is replaced. A server behind a fixed name, as managed services have it, needs
none of this: its name is resolved at each dial.
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
from jobwire.valkey.errors import (
    AuthFailed,
    ConnectionLost,
    ServerError,
    Unavailable,
    Unsupported,
    ValkeyError,
)
from jobwire.valkey.resp_socket import REDIRECTS, Arg, Push, RespSocket
from jobwire.valkey.subscription import Subscription

_log = logging.getLogger("jobwire.valkey")
_SWITCHED: Final = "+switch-master"
_NAME: Final = "jobwire-sentinel"
_OTHERS_S: Final = 1.0
"""How long to wait for further sentinels after the first has answered."""
_DOUBT_S: Final = 0.5
"""How long a node of a Cluster may take to answer before the map is read again."""
_LONGEST_PAUSE_S: Final = 0.25
"""Between two looks for the node that has the slot."""


class Dialer:
    def __init__(self, config: Config) -> None:
        self.config = config
        self._open: dict[RespSocket, str] = {}
        """Sockets → the address of their server; with Sentinel or on a Cluster."""
        self._attempts: dict[asyncio.Timeout, str] = {}
        """Dials that are under way, with the address of their server as soon as it is known."""
        self._switched = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        if config.topology is not None:
            config.topology.listen(self)

    async def dial(
        self,
        name: str,
        setup: Sequence[tuple[Arg, ...]] = (),
        on_push: Callable[[Push], None] | None = None,
    ) -> tuple[RespSocket, int]:
        """Connect once; see `dial.dial`."""
        if self.config.nodes:
            return await self._dial_slot(name, setup, on_push)
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
        self._keep(sock, found.address)
        return sock, client_id

    def _keep(self, sock: RespSocket, address: str) -> None:
        self._open[sock] = address
        sock.closed.add_done_callback(lambda _: self._open.pop(sock, None))

    # A slot of a Cluster

    async def _dial_slot(
        self,
        name: str,
        setup: Sequence[tuple[Arg, ...]],
        on_push: Callable[[Push], None] | None,
    ) -> tuple[RespSocket, int]:
        """Connect to the node that has the slot, and serves it: follow the map until one does."""
        config, topology = self.config, self.config.topology
        assert topology is not None
        loop = asyncio.get_running_loop()
        end_s, attempts = loop.time() + config.dial_timeout_s, 0
        while True:
            address = await topology.locate(config)
            try:
                sock, client_id = await self._dial_node(address, name, setup, on_push)
            except (AuthFailed, Unsupported):
                raise
            except Unavailable:
                topology.suspect(config.slot, address)
                if loop.time() >= end_s:
                    raise
            else:
                sock.redirects, sock.slot = REDIRECTS, config.slot
                sock.on_redirect = partial(topology.suspect, config.slot, address)
                try:
                    if on_push is not None:
                        self._announce_moves(sock, on_push)
                    await self._check_served(sock)
                except BaseException as error:
                    await sock.close("it does not serve the slot")
                    if not isinstance(error, Unavailable) or loop.time() >= end_s:
                        raise
                else:
                    self._keep(sock, address)
                    return sock, client_id
            await self.pause(min(_LONGEST_PAUSE_S, backoff_s(attempts)))
            attempts += 1

    async def _dial_node(
        self,
        address: str,
        name: str,
        setup: Sequence[tuple[Arg, ...]],
        on_push: Callable[[Push], None] | None,
    ) -> tuple[RespSocket, int]:
        """Connect to one node; given up when the map names another one meanwhile."""
        config, topology = self.config, self.config.topology
        assert topology is not None
        assert config.slot is not None
        dialing = asyncio.create_task(dial(config.of_node(address), name, setup, on_push))
        try:
            while not (await asyncio.wait({dialing}, timeout=_DOUBT_S))[0]:
                with contextlib.suppress(ValkeyError):
                    await topology.refresh(config, without=address)
                if topology.address_of(config.slot) != address:
                    raise Unavailable(f"slot {config.slot} is no longer at {address}")
            return dialing.result()
        except BaseException:
            dialing.cancel()
            (ended,) = await asyncio.gather(dialing, return_exceptions=True)
            if isinstance(ended, tuple):  # it ended while the map was read
                await ended[0].close("it was opened too late")
            raise

    async def _check_served(self, sock: RespSocket) -> None:
        """Raise Unavailable if the node does not serve the slot (yet, or any more)."""
        try:
            await sock.call("EXISTS", self._name_in_slot)
        except ConnectionLost as error:
            raise Unavailable(str(error)) from error
        except ServerError as error:
            if error.code == "NOPERM" and "channel" in str(error):
                channel = self._name_in_slot
                raise AuthFailed(f"{sock.peer}: no right to subscribe to {channel}") from error
            # Any other error: it serves the slot, but not this command to this user.
            if error.code in REDIRECTS:
                raise Unavailable(f"{sock.peer} does not serve the slot: {error}") from error

    def _announce_moves(self, sock: RespSocket, on_push: Callable[[Push], None]) -> None:
        """A socket that only receives would not notice that its slot is at another node now. A node
        that loses a slot ends the subscriptions to it."""

        def pushed(push: Push) -> None:
            if push[0] == "sunsubscribe":
                sock.on_redirect(ServerError("MOVED"))
                sock.on_not_primary()
            else:
                on_push(push)

        sock.on_push = pushed
        sock.send_unanswered("SSUBSCRIBE", self._name_in_slot)

    @property
    def _name_in_slot(self) -> str:
        """A key that nobody writes, a channel on which nobody publishes."""
        return f"{{{self.config.tag}}}:jobwire:slot"

    def map_changed(self) -> None:
        """Replace the sockets at a node that has the slot no more."""
        config, topology = self.config, self.config.topology
        assert topology is not None
        address = None if config.slot is None else topology.address_of(config.slot)
        if address is None:
            return
        loop = asyncio.get_running_loop()
        for sock in [sock for sock, at in self._open.items() if at != address]:
            sock.on_not_primary()
            # A node that hangs does not answer what is in flight.
            gone = ConnectionResetError(f"the slot is now at {address}")
            loop.call_later(config.read_timeout_s, sock.fail, gone)
        self._switched.set()
        self._switched.clear()

    # The pauses between attempts, and the announcements of sentinels

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


async def find_server(config: Config) -> Config:
    """The configuration of the server to connect to now: the primary that sentinels name, the node
    that has the slot, or the same configuration."""
    if config.topology is not None and config.nodes:
        return config.of_node(await config.topology.locate(config))
    return await find_primary(config) if config.sentinels else config


async def find_primary(config: Config) -> Config:
    """The configuration of the server that is the primary now: by the newest answer, since the
    others follow the sentinel that led a failover."""
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
