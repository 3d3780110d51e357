"""A Valkey Cluster of three primaries, each with a replica, as real processes.

with Cluster(folder) as cluster:
    connect(cluster.url)
    cluster.move_slot("jobs")                  # of a hash tag, to another primary
    cluster.fail_over(cluster.primary_of("jobs"))
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, Self, cast

from redis import RedisError

from jobwire.local import free_port
from jobwire.local.ports import LOOPBACK
from jobwire.local.valkey import USER
from jobwire.valkey.cluster import SLOTS, slot_of
from tests.support.sentinel import IMPATIENT_MS, PASSWORD, PATIENT_MS, Replicated
from tests.support.servers import Plain, plain_client
from tests.support.wait import wait_until_sync

PRIMARIES: Final = 3
_START_S: Final = 90.0
_SETTINGS: Final = (
    *("cluster-enabled yes", f"cluster-node-timeout {IMPATIENT_MS}"),
    *("cluster-require-full-coverage no", "cluster-replica-validity-factor 0"),
    *("repl-diskless-sync-delay 0", "repl-ping-replica-period 1"),
)


class Cluster:
    """`extra` are further lines of the servers' configuration."""

    def __init__(self, folder: Path, extra: Sequence[str] = ()) -> None:
        self.nodes = [
            Replicated(
                folder / f"node{number}", [*_SETTINGS, f"cluster-port {free_port()}", *extra]
            )
            for number in range(2 * PRIMARIES)
        ]
        for node in self.nodes:
            node.before_fault = partial(self.set_node_timeout, IMPATIENT_MS)

    @property
    def url(self) -> str:
        """For programs: all keys of the Cluster; a connection needs a hash tag besides."""
        return self.url_of(self.nodes)

    def url_of(self, nodes: Sequence[Replicated], query: str = "") -> str:
        """The same, with these nodes as seeds."""
        hosts = ",".join(node.address for node in nodes)
        return f"valkey+cluster://{USER}:{PASSWORD}@{hosts}/{query}"

    # State, as the node says that most others agree with

    def primary_of(self, tag: str) -> Replicated:
        """The node that has the slot of a hash tag."""
        slot = slot_of(tag)
        for shard in self._shards():
            if any(first <= slot <= last for first, last in shard.slots):
                return self._node(shard.primary)
        raise AssertionError(f"no node has the slot of {tag!r}")

    def tags_at(self, primary: Replicated, tags: Sequence[str]) -> list[str]:
        """Those of the hash tags whose slots a node has."""
        slots = [
            bounds
            for shard in self._shards()
            if shard.primary == self._id(primary)
            for bounds in shard.slots
        ]
        return [tag for tag in tags if any(a <= slot_of(tag) <= b for a, b in slots)]

    @property
    def primaries(self) -> list[Replicated]:
        """The nodes that have slots."""
        return [self._node(shard.primary) for shard in self._shards()]

    def _primary_beside(self, node: Replicated) -> Replicated:
        """The primary of this node's shard."""
        own = self._id(node)
        for shard in self._shards():
            if own in (shard.primary, *shard.replicas):
                return self._node(shard.primary)
        raise AssertionError(f"{node.address} is in no shard")

    def replica_of(self, primary: Replicated) -> Replicated:
        """The other node of its shard, once the others know it: after a failover that takes a
        moment."""

        def known() -> Replicated | None:
            for shard in self._shards():
                if self._id(primary) == shard.primary and shard.replicas:
                    return self._node(shard.replicas[0])
            return None

        replica = wait_until_sync(known, f"a replica of {primary.address}", timeout_s=_START_S)
        assert replica is not None
        return replica

    # Faults

    def move_slot(self, tag: str, to: Replicated | None = None) -> Replicated:
        """Move the slot of a hash tag to another shard, atomically; returns its primary. A failover
        of a node that stood still for a while ends a move, which then begins anew."""
        former, slot = self.primary_of(tag), slot_of(tag)
        aim = to or next(node for node in self.primaries if node is not former)

        def moved() -> Replicated | None:
            source, target = self.primary_of(tag), self._primary_beside(aim)
            if source is target:
                return target
            with contextlib.suppress(RedisError, OSError), plain_client(source) as plain:
                words = ("SLOTSRANGE", slot, slot, "NODE", self._id(target))
                plain.call("CLUSTER", "MIGRATESLOTS", *words)  # refused while it moves
            return None

        target = wait_until_sync(moved, "the slot to move", timeout_s=_START_S)
        assert target is not None
        return target

    @contextlib.contextmanager
    def half_moved(self, tag: str) -> Generator[None]:
        """A slot whose keys are being moved one by one, as old tools do it."""
        slot, source = slot_of(tag), self.primary_of(tag)
        target = next(node for node in self.primaries if node is not source)
        with plain_client(source) as here, plain_client(target) as there:
            _cluster(there, "SETSLOT", slot, "IMPORTING", self._id(source))
            _cluster(here, "SETSLOT", slot, "MIGRATING", self._id(target))
            try:
                yield
            finally:
                for plain in (here, there):
                    _cluster(plain, "SETSLOT", slot, "STABLE")

    def fail_over(self, primary: Replicated) -> Replicated:
        """Promote the replica of a primary that lives; returns the replica."""
        replica = self.replica_of(primary)
        with plain_client(replica) as plain:
            plain.call("CLUSTER", "FAILOVER")
        self._wait_promoted(replica)
        return replica

    def kill(self, primary: Replicated) -> Replicated:
        """Kill a primary; returns its replica when it is promoted."""
        replica = self.replica_of(primary)
        primary.kill()
        self._wait_promoted(replica)
        return replica

    def _wait_promoted(self, replica: Replicated) -> None:
        def promoted() -> bool:
            with plain_client(replica) as plain:
                return cast("dict[str, str]", plain.info("replication"))["role"] == "master"

        wait_until_sync(promoted, "the replica to be promoted", timeout_s=_START_S)

    def heal(self) -> None:
        """Start what was killed or paused; remove all keys."""
        for node in self.nodes:
            if not node.is_serving:
                if node.alive:
                    node.resume()
                else:
                    node.start()
        self.wait_complete()
        self.set_node_timeout(PATIENT_MS)
        for primary in self.primaries:
            with plain_client(primary) as plain:
                plain.flushall()

    def set_node_timeout(self, time_ms: int) -> None:
        """After which the nodes take a silent one for dead."""
        for node in self.nodes:
            if node.is_serving:
                with plain_client(node) as plain:
                    plain.config_set("cluster-node-timeout", time_ms)

    def wait_complete(self) -> None:
        """Wait until all nodes agree: three primaries, each with a replica in step."""
        wait_until_sync(self._is_complete, "the Cluster to be complete", timeout_s=_START_S)

    # Start and stop

    def start(self) -> Self:
        with ThreadPoolExecutor(len(self.nodes)) as threads:
            list(threads.map(Replicated.start, self.nodes))
        primaries, replicas = self.nodes[:PRIMARIES], self.nodes[PRIMARIES:]
        bounds = [SLOTS * number // PRIMARIES for number in range(PRIMARIES + 1)]
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(plain_client(node)) for node in self.nodes]
            for number, (first, end) in enumerate(itertools.pairwise(bounds)):
                _cluster(clients[number], "ADDSLOTSRANGE", first, end - 1)
            for number, client in enumerate(clients):
                _cluster(client, "SET-CONFIG-EPOCH", number + 1)
            for node in self.nodes[1:]:
                bus = next(line for line in node.extra if line.startswith("cluster-port"))
                _cluster(clients[0], "MEET", LOOPBACK, node.port, bus.split(" ")[1])
            wait_until_sync(
                lambda: all(_known(client) == len(self.nodes) for client in clients),
                "the nodes to know each other",
                timeout_s=_START_S,
            )
            for primary, client in zip(primaries, clients[PRIMARIES:], strict=True):
                _cluster(client, "REPLICATE", self._id(primary))
        assert len(replicas) == PRIMARIES
        self.wait_complete()
        self.set_node_timeout(PATIENT_MS)
        return self

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()

    # Reading

    def _shards(self) -> list[_Shard]:
        """The map of the node with the highest epoch, which has seen most."""
        maps: list[tuple[int, list[_Shard]]] = []
        for node in self.nodes:
            if node.is_serving:
                with contextlib.suppress(RedisError, OSError), plain_client(node) as plain:
                    maps.append((_epoch(plain), _shards(plain)))
        return max(maps, key=lambda each: each[0])[1]

    def _node(self, node_id: str) -> Replicated:
        return next(node for node in self.nodes if self._id(node) == node_id)

    def _id(self, node: Replicated) -> str:
        if not hasattr(self, "_ids"):
            self._ids: dict[Replicated, str] = {}
        if node not in self._ids:
            with plain_client(node) as plain:
                self._ids[node] = str(plain.call("CLUSTER", "MYID"))
        return self._ids[node]

    def _is_complete(self) -> bool:
        try:
            with contextlib.ExitStack() as stack:
                clients = [stack.enter_context(plain_client(node)) for node in self.nodes]
                maps = [_shards(client) for client in clients]
                healthy = all(_is_ok(client) for client in clients)
                in_step = [_in_step(client) for client in clients]
        except (RedisError, OSError):
            return False
        shards = sorted(maps[0], key=lambda shard: shard.primary)
        return (
            healthy
            and sum(in_step) == len(self.nodes)
            and len(shards) == PRIMARIES
            and all(len(shard.replicas) == 1 for shard in shards)
            and all(sorted(each, key=lambda shard: shard.primary) == shards for each in maps)
        )


class _Shard:
    """One primary with its replicas, by their ids."""

    def __init__(
        self, primary: str, replicas: Sequence[str], slots: Sequence[tuple[int, int]]
    ) -> None:
        self.primary = primary
        self.replicas = sorted(replicas)
        self.slots = list(slots)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Shard) and vars(self) == vars(other)

    __hash__ = None  # pyright: ignore[reportAssignmentType] - compared only


def _shards(plain: Plain) -> list[_Shard]:
    return [shard for shard in _read_nodes(plain) if shard.slots]


def _read_nodes(plain: Plain) -> Iterator[_Shard]:
    lines = [line.split(" ") for line in _text(plain, "NODES").splitlines()]
    alive = [words for words in lines if "fail" not in words[2].split(",")]
    for words in alive:
        if "master" in words[2]:
            bounds = [word.partition("-") for word in words[8:] if not word.startswith("[")]
            slots = [(int(first), int(last or first)) for first, _, last in bounds]
            yield _Shard(words[0], [each[0] for each in alive if each[3] == words[0]], slots)


def _text(plain: Plain, word: str) -> str:
    reply = plain.call("CLUSTER", word)
    if isinstance(reply, dict):  # the client has parsed it
        raise TypeError(word)
    return str(reply)


def _cluster(plain: Plain, *words: str | int) -> None:
    plain.call("CLUSTER", *words)


def _info(plain: Plain) -> dict[str, str]:
    reply = plain.call("CLUSTER", "INFO")
    if isinstance(reply, dict):
        return cast("dict[str, str]", reply)
    return dict(line.split(":", 1) for line in str(reply).splitlines() if ":" in line)


def _known(plain: Plain) -> int:
    return int(_info(plain)["cluster_known_nodes"])


def _epoch(plain: Plain) -> int:
    return int(_info(plain)["cluster_current_epoch"])


def _is_ok(plain: Plain) -> bool:
    return _info(plain)["cluster_state"] == "ok"


def _in_step(plain: Plain) -> bool:
    found = cast("dict[str, object]", plain.info("replication"))
    if found["role"] == "master":
        return found.get("connected_slaves") == 1
    return found.get("master_link_status") == "up"
