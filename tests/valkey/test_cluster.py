"""A Cluster: a connection follows the slot of its hash tag from node to node."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from jobwire.local import LocalValkey, free_port
from jobwire.valkey import (
    AuthFailed,
    Config,
    ConfigError,
    Connection,
    ConnectionLost,
    Consumer,
    HealthChecker,
    Producer,
    ProgressTracker,
    Reply,
    Script,
    StreamMessage,
    Unavailable,
    Unsupported,
    dialer,
)
from jobwire.valkey.blocking_socket import BlockingSocket
from jobwire.valkey.cluster import SLOTS, slot_of
from jobwire.valkey.dialer import Dialer
from jobwire.valkey.errors import Moved
from jobwire.valkey.tracking import TrackedKey, TrackingReader
from tests.support import Fresh, clause, wait_until
from tests.support.cluster import Cluster
from tests.support.patience import PATIENCE
from tests.support.sentinel import Replicated
from tests.support.servers import plain_client

pytestmark = pytest.mark.xdist_group("cluster")

COUNT: Final = Script(
    name="count",
    purpose="count",
    source="return redis.call('INCR', KEYS[1])",
    keys=("key",),
    args=(),
    returns=("number",),
    clauses=(),
)
Move = Callable[[Cluster, str], Replicated]


def move(cluster: Cluster, tag: str) -> Replicated:
    """The slot is moved to another primary."""
    return cluster.move_slot(tag)


def promote(cluster: Cluster, tag: str) -> Replicated:
    """The replica becomes the primary, and the primary a replica."""
    return cluster.fail_over(cluster.primary_of(tag))


MOVES = pytest.mark.parametrize("change", [move, promote])


@pytest.fixture
def tag(fresh: Fresh) -> str:
    return fresh("tag")


def config_of(cluster: Cluster, tag: str) -> Config:
    return Config.from_url(cluster.url).for_keys(f"{{{tag}}}:")


async def port_of(connection: Connection) -> int:
    reply = await connection.call("CONFIG", "GET", "port")
    assert isinstance(reply, dict)
    return int(str(reply["port"]))


class Counting:
    """Callers that each repeat a command; none may fail, and no reply may be of another caller."""

    def __init__(self, connection: Connection, key: str) -> None:
        self._connection = connection
        self._key = key
        self._stop = asyncio.Event()
        self.done = 0

    async def _count(self, number: int) -> None:
        key, counted = f"{self._key}:{number}", 0
        while not self._stop.is_set():
            counted += 1
            assert await self._connection.call("INCR", key) == counted
            self.done += 1

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Counting]:
        async with asyncio.TaskGroup() as tasks:
            for number in range(10):
                tasks.create_task(self._count(number))
            yield self
            self._stop.set()

    async def goes_on(self) -> None:
        before = self.done
        await wait_until(lambda: self.done > before + 100, "further answers")


@clause("G-10", "G-11")
@MOVES
async def test_g11_no_command_fails_while_its_slot_moves(
    cluster: Cluster, tag: str, change: Move
) -> None:
    async with Connection.open(config_of(cluster, tag)) as connection:
        async with Counting(connection, f"{{{tag}}}:n").running() as counting:
            for _ in range(2):
                await counting.goes_on()
                await asyncio.to_thread(change, cluster, tag)
            await counting.goes_on()
        assert await port_of(connection) == cluster.primary_of(tag).port


@clause("G-11")
@MOVES
async def test_g11_commands_keep_their_order_over_a_move(
    cluster: Cluster, tag: str, change: Move
) -> None:
    """No settle overtakes a report: what is sent while the slot moves arrives in its order."""
    key, sent = f"{{{tag}}}:list", 0
    async with Connection.open(config_of(cluster, tag)) as connection:
        moving = asyncio.create_task(asyncio.to_thread(change, cluster, tag))
        answers: list[asyncio.Future[Reply]] = []
        while not moving.done() or sent < 100:
            for _ in range(20):
                answers.append(asyncio.ensure_future(connection.call("RPUSH", key, sent)))
                sent += 1
            await asyncio.sleep(0)
        await moving
        assert await asyncio.gather(*answers) == list(range(1, sent + 1))
        assert await connection.call("LRANGE", key, 0, -1) == list(map(str, range(sent)))
        assert await port_of(connection) == cluster.primary_of(tag).port


@clause("G-11")
async def test_g11_a_killed_primary_loses_only_what_was_in_flight(
    cluster: Cluster, tag: str
) -> None:
    """What was not sent waits for the replica; a lost reply stays lost."""
    key = f"{{{tag}}}:n"
    # A vote that is lost is repeated some seconds later.
    config = replace(config_of(cluster, tag), failover_timeout_s=60)
    async with Connection.open(config) as connection:
        await connection.call("SET", key, 0)
        former = cluster.primary_of(tag)
        with plain_client(former) as plain:
            plain.wait(1, 5000)
        former.pause()
        in_flight = asyncio.ensure_future(connection.call("INCR", key))
        await asyncio.sleep(0)
        former.kill()
        with pytest.raises(ConnectionLost):
            await in_flight
        assert await connection.call("INCR", key) == 1
        assert await port_of(connection) == cluster.primary_of(tag).port != former.port


@clause("G-11")
async def test_g11_a_primary_that_hangs_is_left(cluster: Cluster, tag: str) -> None:
    """It closes nothing: the map of the other nodes tells."""
    config = replace(config_of(cluster, tag), read_timeout_s=0.5, failover_timeout_s=60)
    async with Connection.open(config) as connection:
        former = cluster.primary_of(tag)
        former.pause()
        with pytest.raises(ConnectionLost):
            await connection.call("INCR", f"{{{tag}}}:n")

        async def is_written() -> bool:
            with contextlib.suppress(ConnectionLost):  # no answer of a busy machine in time
                return await connection.call("SET", f"{{{tag}}}:n", "x") == "OK"
            return False

        await wait_until(is_written, "the next primary")
        assert cluster.primary_of(tag) is not former


@clause("G-11")
async def test_g11_without_a_node_commands_end_as_unavailable(cluster: Cluster, tag: str) -> None:
    config = replace(config_of(cluster, tag), failover_timeout_s=0.3)
    async with Connection.open(config) as connection:
        primary = cluster.primary_of(tag)
        slot = slot_of(tag)
        with plain_client(primary) as plain:
            plain.call("CLUSTER", "DELSLOTS", slot)
            try:
                with pytest.raises(Unavailable):
                    await connection.call("INCR", f"{{{tag}}}:n")
            finally:
                plain.call("CLUSTER", "ADDSLOTS", slot)
        cluster.wait_complete()
        await wait_until(lambda: connection.connected, "the connection")
        assert await connection.call("INCR", f"{{{tag}}}:n") == 1, "nothing ran before"


@clause("G-11")
async def test_g11_ask_is_followed_by_one_command(cluster: Cluster, tag: str) -> None:
    """A slot that is moved key by key: keys that are gone are asked for at the other node."""
    key, here = f"{{{tag}}}:there", f"{{{tag}}}:here"
    async with Connection.open(config_of(cluster, tag)) as connection:
        await connection.call("SET", here, "x")
        with cluster.half_moved(tag):
            assert await asyncio.gather(
                *(connection.call("INCR", key) for _ in range(3)),
                connection.call("GET", here),
                connection.run(COUNT, [f"{{{tag}}}:counted"]),
            ) == [1, 2, 3, "x", 1]
            assert await port_of(connection) == cluster.primary_of(tag).port


@clause("G-11")
async def test_g11_a_key_of_another_slot_fails_its_own_call_only(
    cluster: Cluster, tag: str, fresh: Fresh
) -> None:
    """Regression: the connection was replaced again and again, and every other call waited."""
    here = cluster.primary_of(tag)
    found = (fresh("other") for _ in itertools.count())
    other = next(each for each in found if cluster.primary_of(each) is not here)
    config = replace(config_of(cluster, tag), failover_timeout_s=0.3)
    async with Connection.open(config) as connection:
        foreign, own, script = await asyncio.gather(
            connection.call("GET", f"{{{other}}}:x"),
            connection.call("INCR", f"{{{tag}}}:n"),
            connection.run(COUNT, [f"{{{other}}}:n"]),
            return_exceptions=True,
        )
        assert isinstance(foreign, Moved)
        assert isinstance(script, Moved)
        assert own == 1
        with pytest.raises(Moved):
            await connection.block("BLPOP", f"{{{other}}}:list", 0, block_s=float("inf"))
        assert (connection.connected, connection.sockets_opened) == (True, 1)


@clause("G-12")
@MOVES
async def test_g12_scripts_are_loaded_on_the_next_node(
    cluster: Cluster, tag: str, change: Move
) -> None:
    async with Connection.open(config_of(cluster, tag), scripts=[COUNT]) as connection:
        key = f"{{{tag}}}:n"
        assert await connection.run(COUNT, [key]) == 1
        node = await asyncio.to_thread(change, cluster, tag)
        assert await connection.run(COUNT, [key]) == 2
        with plain_client(node) as plain:
            plain.script_flush()
        assert await connection.run(COUNT, [key]) == 3, "NOSCRIPT is healed"


@clause("G-14")
@MOVES
async def test_g14_threads_follow_the_slot(cluster: Cluster, tag: str, change: Move) -> None:
    """Lease renewal: no call fails."""
    thread = BlockingSocket(
        config_of(cluster, tag), "tests-thread", timeout_s=PATIENCE.total_seconds()
    )
    key = f"{{{tag}}}:n"
    assert await asyncio.to_thread(thread.run, COUNT, [key]) == 1
    await asyncio.to_thread(change, cluster, tag)
    assert await asyncio.to_thread(thread.run, COUNT, [key]) == 2
    thread.close()


@clause("G-14")
@MOVES
async def test_g14_messages_arrive_after_the_slot_has_moved(
    cluster: Cluster, tag: str, change: Move
) -> None:
    channel = f"{{{tag}}}:channel"
    async with (
        Connection.open(config_of(cluster, tag)) as connection,
        connection.subscribe(channel) as messages,
    ):
        assert connection.publish_command == "SPUBLISH"
        await connection.call(connection.publish_command, channel, "before")
        assert await anext(messages) == (channel, "before")
        await asyncio.to_thread(change, cluster, tag)
        assert await anext(messages) is None, "messages may have been missed"
        await connection.call(connection.publish_command, channel, "after")
        assert await anext(messages) == (channel, "after")


@clause("G-15")
@MOVES
async def test_g15_watched_keys_are_read_again_at_the_next_node(
    cluster: Cluster, tag: str, change: Move
) -> None:
    """Also those that did not exist when they were read: no server announces them."""
    seen: dict[str, Reply] = {}
    reader = TrackingReader[TrackedKey](
        lambda tracked: ("GET", tracked.key),
        lambda tracked, reply: seen.update({tracked.key: reply}),
    )
    async with reader.running(config_of(cluster, tag), "tests-tracking"):
        keys = [f"{{{tag}}}:{number}" for number in range(3)]
        for key in keys:
            tracked = TrackedKey(key)
            reader.add(tracked)
            reader.mark(tracked)
        await wait_until(lambda: seen == dict.fromkeys(keys), "the first reads")
        node = await asyncio.to_thread(change, cluster, tag)
        with plain_client(node) as plain:
            for key in keys:
                plain.set(key, "after")
        await wait_until(
            lambda: seen == dict.fromkeys(keys, "after"), "the changes at the next node"
        )


@clause("G-15")
async def test_g15_many_watched_keys_are_read_again_in_parts(cluster: Cluster, tag: str) -> None:
    """More than a thousand are spread over a second; none is left out."""
    many, reads = 2_500, Counter[str]()
    reader = TrackingReader[TrackedKey](
        lambda tracked: ("GET", tracked.key),
        lambda tracked, _: reads.update([tracked.key]),
    )
    async with reader.running(config_of(cluster, tag), "tests-tracking"):
        for number in range(many):
            tracked = TrackedKey(f"{{{tag}}}:{number}")
            reader.add(tracked)
            reader.mark(tracked)
        await wait_until(lambda: len(reads) == many, "the first reads")
        reads.clear()
        await asyncio.to_thread(move, cluster, tag)
        await wait_until(lambda: len(reads) == many, "the reads at the next node")


@clause("G-11")
async def test_g11_blocking_callers_learn_that_the_slot_moved(cluster: Cluster, tag: str) -> None:
    """A blocked command ends with MOVED; the next one is sent to the right node."""
    key = f"{{{tag}}}:list"
    async with Connection.open(config_of(cluster, tag)) as connection:
        blocked = asyncio.create_task(connection.block("BLPOP", key, 0, block_s=float("inf")))
        await _until_blocked(cluster.primary_of(tag))
        await asyncio.to_thread(move, cluster, tag)
        with pytest.raises(Moved):
            await blocked
        blocked = asyncio.create_task(connection.block("BLPOP", key, 0, block_s=float("inf")))
        await connection.call("RPUSH", key, "x")
        assert await blocked == [key, "x"]


async def _until_blocked(server: Replicated) -> None:
    with plain_client(server) as plain:
        await wait_until(
            lambda: [each for each in plain.client_list() if each["cmd"] == "blpop"], "the block"
        )


class Listening:
    """Notes the threads in which it is told of a new map."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    def map_changed(self) -> None:
        self.threads.append(threading.get_ident())


@clause("G-10")
async def test_g10_sockets_learn_of_a_new_map_in_their_own_thread(cluster: Cluster) -> None:
    """The thread that renews leases reads the map too, in a loop of its own."""
    config, listening = Config.from_url(cluster.url), Listening()
    assert config.topology is not None
    config.topology.listen(listening)
    await asyncio.to_thread(asyncio.run, config.topology.refresh(config))
    await wait_until(lambda: listening.threads, "the news of the map")
    assert listening.threads == [threading.get_ident()]


@clause("G-10")
async def test_g10_the_map_is_read_once_for_all_connections(cluster: Cluster, fresh: Fresh) -> None:
    """Twenty connections at one node that is no longer the primary."""
    config = Config.from_url(cluster.url)
    assert config.topology is not None
    await config.topology.refresh(config)
    before = config.topology.reads
    at = config.topology.address_of(0)
    found = (fresh("tag") for _ in itertools.count())
    here = (tag for tag in found if config.topology.address_of(slot_of(tag)) == at)
    async with contextlib.AsyncExitStack() as stack:
        connections = {
            tag: await stack.enter_async_context(Connection.open(config.for_keys(f"{{{tag}}}")))
            for tag in itertools.islice(here, 20)
        }
        assert config.topology.reads == before
        await asyncio.to_thread(cluster.fail_over, cluster.primary_of(next(iter(connections))))
        # Until the nodes agree, the map is read again and again.
        await asyncio.to_thread(cluster.wait_complete)
        sets = (each.call("SET", f"{{{tag}}}:x", 1) for tag, each in connections.items())
        assert await asyncio.gather(*sets) == ["OK"] * len(connections)
        assert config.topology.reads < before + 5


@clause("G-11")
@pytest.mark.parametrize("ends", ["with a socket", "with an error"])
async def test_g11_a_dial_that_ends_while_the_map_is_read_is_not_forgotten(
    cluster: Cluster, tag: str, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """The map names another node then, and the socket stayed open for ever."""
    config = config_of(cluster, tag)
    topology = config.topology
    assert topology is not None
    await topology.refresh(config)
    if ends == "with an error":
        config = replace(config, password="wrong")
    unhandled: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: unhandled.append(context))

    async def refresh(_config: Config, *, without: str = "") -> None:
        # The node answers at last, while the map is read; the slot is elsewhere by now.
        await wait_until(lambda: not dials(), "the dial to end")
        topology.nodes = ()

    monkeypatch.setattr(dialer, "_DOUBT_S", 0.0)
    monkeypatch.setattr(topology, "refresh", refresh)
    with pytest.raises(Unavailable):
        await Dialer(config).dial("forgotten")
    monkeypatch.undo()
    gc.collect()
    assert unhandled == []
    with plain_client(cluster.primary_of(tag)) as plain:

        def named() -> list[str]:
            return [each["name"] for each in plain.client_list() if each["name"] == "forgotten"]

        await wait_until(lambda: named() == [], "the socket to be closed")


def dials() -> list[str]:
    names = [getattr(task.get_coro(), "__name__", "") for task in asyncio.all_tasks()]
    return [name for name in names if name == "dial"]


@clause("G-10")
async def test_g10_any_seed_is_enough(cluster: Cluster, tag: str) -> None:
    """Others may be gone; a replica will do."""
    replica = cluster.replica_of(cluster.primary_of(tag))
    login = cluster.url.partition("@")[0]
    url = f"{login}@127.0.0.1:{free_port()},{replica.address}/?tag={tag}"
    async with Connection.open(url) as connection:
        assert await connection.call("SET", f"{{{tag}}}:x", "y") == "OK"


@clause("G-10")
async def test_g10_a_node_that_met_nobody_is_where_it_was_asked(tmp_path: Path, tag: str) -> None:
    """It reports an empty host; also by CLUSTER SLOTS, where SHARDS is not allowed."""
    settings = ["cluster-enabled yes", f"cluster-port {free_port()}"]
    server = Replicated(tmp_path / "alone", settings)
    with server as alone, plain_client(alone) as plain:
        plain.call("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
        await wait_until(
            lambda: "cluster_state:ok" in str(plain.call("CLUSTER", "INFO")), "its state"
        )
        url = alone.url.replace("valkey:", "valkey+cluster:") + f"?tag={tag}"
        async with Connection.open(url) as connection:
            assert await connection.call("SET", f"{{{tag}}}:x", "y") == "OK"
        plain.call("ACL", "SETUSER", "jobwire", "-cluster|shards")
        async with Connection.open(url) as connection:
            assert await connection.call("GET", f"{{{tag}}}:x") == "y"


@clause("G-10")
async def test_g10_wrong_addresses_are_named(
    cluster: Cluster, valkey: LocalValkey, tag: str
) -> None:
    with pytest.raises(Unavailable, match="no node of the Cluster answers"):
        await Connection.open(f"valkey+cluster://127.0.0.1:{free_port()}/?tag={tag}")
    with pytest.raises(Unsupported, match="is not a node of a Cluster; use valkey://"):
        await Connection.open(valkey.url.replace("valkey:", "valkey+cluster:") + f"?tag={tag}")
    with pytest.raises(AuthFailed):
        await Connection.open(cluster.url.replace("of-the-programs", "wrong") + f"?tag={tag}")


@clause("G-7")
async def test_g07_a_connection_needs_a_hash_tag(cluster: Cluster) -> None:
    config = Config.from_url(cluster.url)
    with pytest.raises(ConfigError, match="one hash tag"):
        await Connection.open(config)
    with pytest.raises(ConfigError, match="'jobs:' has none"):
        config.for_keys("jobs:")
    one = Config.from_url("valkey://127.0.0.1")
    assert one.for_keys("jobs:") is one, "a single server needs none"


@clause("G-7", "T-10")
async def test_g07_the_toolkit_works_while_its_slot_moves(cluster: Cluster, tag: str) -> None:
    """Producer, consumer, progress and health, with tagged names."""
    stream, handled = f"{{{tag}}}:stream", list[str]()

    async def handler(message: StreamMessage) -> None:
        handled.append(message.fields["n"])

    async with Connection.open(config_of(cluster, tag)) as connection:
        producer = Producer(connection)
        tracker = ProgressTracker(connection, prefix=f"{{{tag}}}:status:")
        consumer = Consumer(
            connection, stream=stream, group="g", consumer="c", handler=handler, block_s=0.5
        )
        await consumer.start()
        for number in range(3):
            await producer.publish(stream, {"n": str(number)})
            await tracker.set_progress("x", {"n": str(number)})
            await wait_until(lambda wanted=str(number): wanted in handled, "the message")
            await asyncio.to_thread(cluster.move_slot, tag)
        assert await tracker.get_progress("x") == {"n": "2"}
        assert (await HealthChecker(connection).summary(stream, "g")).lag == 0
        await consumer.stop()
    assert handled == ["0", "1", "2"]
