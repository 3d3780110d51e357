"""Which node of a Cluster has which slot.

All keys of a connection share one hash tag, hence one slot: a connection follows its slot from node
to node, and no command is looked into. One `Topology` serves all connections of a process to a
Cluster: the map is read once for all of them, from any node that answers.
"""

import asyncio
import contextlib
import random
import weakref
from binascii import crc_hqx
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, cast

from jobwire.valkey.errors import AuthFailed, ServerError, Unavailable, Unsupported, ValkeyError

if TYPE_CHECKING:
    from jobwire.valkey.config import Config
    from jobwire.valkey.resp_socket import Reply

SLOTS: Final = 16_384
_NAME: Final = "jobwire-map"
_NEXT_S: Final = 0.3
"""How long a node may take to answer before the next one is asked besides."""
_TO: Final = frozenset({"MOVED", "ASK"})


def hash_tag(key: str) -> str:
    """The part of a key in braces, by which the Cluster places it; empty if there is none."""
    _, _, rest = key.partition("{")
    tag, brace, _ = rest.partition("}")
    return tag if brace else ""


def slot_of(key: str) -> int:
    """The slot of a key."""
    return crc_hqx((hash_tag(key) or key).encode("utf-8", "surrogateescape"), 0) % SLOTS


def redirected_to(error: ServerError) -> str:
    """The address in `MOVED 7638 host:port`; empty if the error names none."""
    words = str(error).split(" ")
    # The node that answers does not know its own address if the host is empty.
    return words[2] if words[0] in _TO and len(words) > 2 and words[2][:1] != ":" else ""


@dataclass(frozen=True, slots=True)
class Node:
    address: str
    is_primary: bool
    slots: tuple[tuple[int, int], ...]
    """The first and the last slot of each range that it or its primary has."""


_shared: weakref.WeakValueDictionary[tuple[object, ...], "Topology"] = weakref.WeakValueDictionary()
"""By the seeds and the login."""


def topology_of(*key: object) -> "Topology":
    """The map of a Cluster: one for all configurations of this process."""
    found = _shared.get(key)
    if found is None:
        found = _shared[key] = Topology()
    return found


class Listener(Protocol):
    """Is told that the map was read anew."""

    def map_changed(self) -> None: ...


class Topology:
    """The map; of any age until somebody doubts it."""

    def __init__(self) -> None:
        self.nodes: tuple[Node, ...] = ()
        self.reads = 0
        """How often the map was read."""
        self._suspect = True
        self._first = ""
        """The node to ask first: the one that a redirect named knows what it has."""
        self._reading: asyncio.Task[None] | None = None
        self._listeners: weakref.WeakKeyDictionary[Listener, asyncio.AbstractEventLoop] = (
            weakref.WeakKeyDictionary()
        )

    def address_of(self, slot: int) -> str | None:
        """The address of the primary that has a slot, as far as known."""
        for node in self.nodes:
            if node.is_primary and any(first <= slot <= last for first, last in node.slots):
                return node.address
        return None

    @property
    def primaries(self) -> list[Node]:
        """The nodes that have slots."""
        return [node for node in self.nodes if node.is_primary and node.slots]

    def listen(self, listener: Listener) -> None:
        """Tell it of every reading of the map, in the event loop that runs now."""
        self._listeners[listener] = asyncio.get_running_loop()

    def suspect(self, slot: int | None, address: str, error: ServerError | None = None) -> None:
        """A node does not serve a slot: if the map still names it, the map is wrong, and is read
        again before the next dial."""
        if slot is None or self.address_of(slot) != address:
            return
        self._suspect = True
        if error is not None and (address := redirected_to(error)):
            self._first = address

    async def locate(self, config: "Config") -> str:
        """The address of the node that has the slot of the configuration."""
        assert config.slot is not None
        if self._suspect or self.address_of(config.slot) is None:
            await self.refresh(config)
        address = self.address_of(config.slot)
        if address is None:
            raise Unavailable(f"no node of the Cluster {config.address} has slot {config.slot}")
        return address

    async def refresh(self, config: "Config", *, without: str = "") -> None:
        """Read the map; callers at the same time share one reading."""
        loop = asyncio.get_running_loop()
        reading = self._reading
        if reading is None or reading.done() or reading.get_loop() is not loop:
            reading = loop.create_task(self._read(config, without), name="cluster: map")
            reading.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._reading = reading
        await asyncio.shield(reading)

    async def _read(self, config: "Config", without: str) -> None:
        first, self._first = self._first, ""
        known = [node.address for node in self.nodes if node.address not in (first, without)]
        random.shuffle(known)
        # Seeds are names, which are resolved again: all known nodes may have new addresses.
        order = dict.fromkeys([address for address in (first, *known, *config.nodes) if address])
        # Doubts that arise while it is read are about the next map.
        self._suspect = False
        try:
            self.nodes = await _first_answer(config, list(order))
        except BaseException:
            self._suspect = True
            raise
        self.reads += 1
        for listener, loop in tuple(self._listeners.items()):
            if loop is asyncio.get_running_loop():
                listener.map_changed()
                continue
            # The thread that renews leases reads the map in a loop of its own.
            with contextlib.suppress(RuntimeError):  # that loop is closed
                loop.call_soon_threadsafe(listener.map_changed)


async def _first_answer(config: "Config", addresses: Sequence[str]) -> tuple[Node, ...]:
    """Ask one node after another, without waiting long for one that is silent."""
    asked: list[asyncio.Task[tuple[Node, ...]]] = []
    errors: list[ValkeyError] = []
    left = iter(addresses)
    try:
        async with asyncio.timeout(config.dial_timeout_s):
            while True:
                address = next(left, None)
                if address is not None:
                    asked.append(asyncio.create_task(_ask(config, address)))
                waiting = [task for task in asked if not task.done()]
                if not waiting:
                    break
                done, _ = await asyncio.wait(
                    waiting,
                    timeout=None if address is None else _NEXT_S,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in done:
                    try:
                        return task.result()
                    except ValkeyError as error:
                        errors.append(error)
    except TimeoutError:
        pass
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    reasons = "; ".join(dict.fromkeys(map(str, errors))) or f"{config.dial_timeout_s:g} s passed"
    for kind in (AuthFailed, Unsupported):
        if errors and all(isinstance(error, kind) for error in errors):
            raise kind(reasons)
    raise Unavailable(f"no node of the Cluster answers: {reasons}")


async def _ask(config: "Config", address: str) -> tuple[Node, ...]:
    from jobwire.valkey.dial import dial  # late: it needs the configuration, which needs this

    at = config.of_node(address)
    sock, _ = await dial(at, _NAME)
    try:
        with contextlib.suppress(ServerError):
            return _of_shards(await sock.call("CLUSTER", "SHARDS"), at)
        try:
            return _of_slots(await sock.call("CLUSTER", "SLOTS"), at)
        except ServerError as error:
            if "cluster support disabled" in str(error):
                message = f"{address} is not a node of a Cluster; use valkey:// for one server"
                raise Unsupported(message) from error
            raise Unavailable(f"{address} does not tell its slots: {error}") from error
    finally:
        await sock.close("the map was read")


def _of_shards(reply: "Reply", asked: "Config") -> tuple[Node, ...]:
    nodes: list[Node] = []
    for shard in cast("list[dict[str, Reply]]", reply):
        bounds = [int(str(each)) for each in cast("list[Reply]", shard["slots"])]
        slots = tuple(zip(bounds[::2], bounds[1::2], strict=True))
        members = cast("list[dict[str, Reply]]", shard["nodes"])
        # A primary that failed is still listed as one, beside the replica that was promoted.
        primary = max(
            (node for node in members if node["role"] == "master"),
            key=lambda node: (node["health"] == "online", int(str(node["replication-offset"]))),
            default=None,
        )
        nodes += (Node(address_in(node, asked), node is primary, slots) for node in members)
    return tuple(nodes)


def address_in(node: "Mapping[str, Reply]", asked: "Config") -> str:
    """The address of a node in the reply to `CLUSTER SHARDS` of the one that was asked."""
    port = node.get("tls-port") if asked.tls else None
    return _address(node.get("endpoint"), port or node.get("port"), asked)


def _of_slots(reply: "Reply", asked: "Config") -> tuple[Node, ...]:
    slots: dict[tuple[str, bool], list[tuple[int, int]]] = {}
    for entry in cast("list[list[Reply]]", reply):
        bounds = (int(str(entry[0])), int(str(entry[1])))
        for number, node in enumerate(cast("list[list[Reply]]", entry[2:])):
            address = _address(node[0], node[1], asked)
            slots.setdefault((address, number == 0), []).append(bounds)
    return tuple(
        Node(address, is_primary, tuple(ranges)) for (address, is_primary), ranges in slots.items()
    )


def _address(host: "Reply", port: "Reply", asked: "Config") -> str:
    """A node that met nobody has no host, and one that hides it has `?`: it is the one asked."""
    name = str(host or "").strip("?")
    if not name:
        endpoint = asked.endpoint
        name = endpoint[0] if isinstance(endpoint, tuple) else endpoint
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
