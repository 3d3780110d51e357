"""The shards of an installation for the operator: `jobwire shards` (G-5).

Reads each shard, and on a Cluster the nodes; nothing is changed. The commands that spread the
shards evenly over the nodes are computed, and run by the operator.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

from jobwire.job.errors import BackendUnavailable
from jobwire.settings import Settings
from jobwire.systems.backends import open_reachable
from jobwire.systems.jobs.contract import Counter as Counted
from jobwire.systems.jobs.depth import depth
from jobwire.systems.jobs.registry import WorkerRegistry
from jobwire.systems.jobs.replies import collect
from jobwire.systems.jobs.shard_table import ShardReport, ShardTable
from jobwire.systems.jobs.stats import LastHour
from jobwire.systems.jobs.system import jobs_settings, shard_servers
from jobwire.valkey import Config, Connection, Reply
from jobwire.valkey.cluster import address_in

_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class ShardRow:
    """One shard now."""

    number: int
    prefix: str
    server: str
    """The address of its server, or of the node that has its slot."""
    slot: int | None
    """Of a Cluster."""
    gets_jobs: bool
    waiting: int
    delayed: int
    running: int
    stored: int
    """Jobs that are kept, with those that have ended."""
    per_minute: int
    """Submissions in the last full minute."""
    memory: int
    """Bytes that its server uses, for all of its keys."""


class ShardMove(NamedTuple):
    """A slot that another node is to have."""

    shard: int
    slot: int
    source: str
    target: str
    target_id: str

    @property
    def command(self) -> str:
        """What the operator runs; Valkey 9 moves the slot atomically, while everything runs."""
        host, _, port = self.source.rpartition(":")
        words = f"CLUSTER MIGRATESLOTS SLOTSRANGE {self.slot} {self.slot} NODE {self.target_id}"
        return f"valkey-cli -h {host.strip('[]')} -p {port} {words}"


@dataclass(frozen=True, slots=True)
class ShardOverview:
    rows: Sequence[ShardRow]
    silent: Sequence[int]
    reports: Sequence[ShardReport]
    waits_for: Sequence[ShardReport]
    """Processes that have reported other shards, so that the table does not change."""
    moves: Sequence[ShardMove]


async def read_shards(settings: Settings) -> ShardOverview:
    """Read all shards; a shard that does not answer is named."""
    jobs, servers = jobs_settings(settings), shard_servers(settings)
    async with open_reachable(servers.values(), "jobwire-shards") as opened:
        connections = {
            number: opened[config] for number, config in servers.items() if config in opened
        }
        if 0 not in connections:
            raise BackendUnavailable("the first shard, which has the table, does not answer")
        table = ShardTable(connections[0], jobs)
        await table.read()
        writers = table.tables[-1]

        async def row(number: int, connection: Connection) -> ShardRow | None:
            try:
                async with asyncio.timeout(_TIMEOUT_S):
                    return await _row(
                        number,
                        connection,
                        WorkerRegistry(connection, jobs.of_shard(number)),
                        gets_jobs=number in writers,
                    )
            except (BackendUnavailable, TimeoutError):
                return None

        found = await asyncio.gather(*(row(*each) for each in connections.items()))
        rows = [each for each in found if each is not None]
        silent = sorted({*servers} - {each.number for each in rows})
        nodes = await _nodes(connections[0]) if connections[0].config.nodes else {}
    wanted = Counter(report.writes for report in table.reports)
    waits_for = [report for report in table.reports if len(wanted) > 1 and report.writes == writers]
    return ShardOverview(rows, silent, table.reports, waits_for, balance(rows, nodes))


async def _nodes(connection: Connection) -> dict[str, str]:
    """The ids of the Cluster's primaries that are up, by the address that the map has."""
    (reply,) = await collect([connection.call("CLUSTER", "SHARDS")])
    asked = connection.config.of_node(_server(connection.config))
    found: dict[str, str] = {}
    for shard in cast("list[dict[str, list[dict[str, Reply]]]]", reply):
        # A node without slots is listed too, and may get some; so is a primary that failed.
        for node in shard["nodes"]:
            if node["role"] == "master" and node["health"] == "online":
                found[address_in(node, asked)] = str(node["id"])
    return found


def _server(config: Config) -> str:
    """The address of the server, or of the node that has the slot."""
    node = None if config.topology is None else config.topology.address_of(config.slot or 0)
    return node or config.address


async def _row(
    number: int, connection: Connection, registry: WorkerRegistry, *, gets_jobs: bool
) -> ShardRow:
    keys = registry.keys
    now = await depth(connection, keys, await registry.queue_names())
    minutes = await LastHour(connection, keys).read()
    memory, tenants = await collect(
        [connection.call("INFO", "memory"), connection.call("ZRANGE", keys.tenants, 0, -1)]
    )
    names = ["", *cast("list[str]", tenants)]
    counts = await collect([connection.call("ZCARD", keys.index(name)) for name in names])
    used = dict(line.split(":", 1) for line in str(memory).splitlines() if ":" in line)
    config = connection.config
    return ShardRow(
        number=number,
        prefix=keys.prefix,
        server=_server(config),
        slot=config.slot,
        gets_jobs=gets_jobs,
        waiting=now.waiting,
        delayed=now.delayed,
        running=now.running,
        stored=sum(cast("list[int]", counts)),
        per_minute=minutes[-2].count(Counted.SUBMISSIONS),
        memory=int(used.get("used_memory", 0)),
    )


def balance(rows: Sequence[ShardRow], nodes: Mapping[str, str]) -> list[ShardMove]:
    """The fewest moves after which no node has two shards more than another. Pure."""
    on: dict[str, list[ShardRow]] = {address: [] for address in nodes}
    for row in sorted(rows, key=lambda row: row.per_minute):
        if row.slot is not None and row.server in on:
            on[row.server].append(row)
    moves: list[ShardMove] = []
    while on:
        fullest = max(on, key=lambda address: (len(on[address]), address))
        emptiest = min(on, key=lambda address: (len(on[address]), address))
        if len(on[fullest]) - len(on[emptiest]) < 2:
            break
        row = on[fullest].pop(0)  # the one with the least load: its move is the shortest
        on[emptiest].append(row)
        assert row.slot is not None
        moves.append(ShardMove(row.number, row.slot, fullest, emptiest, nodes[emptiest]))
    return moves
