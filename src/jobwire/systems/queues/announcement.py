"""Makes a worker visible to `getWorkers` of the official packages, by the names of sockets (B-20).

Node looks for the queue's name in base64, the Python package for the plain name, and neither
accepts the other's, so each queue has two sockets that do nothing else, up to `MOST_ANNOUNCED`
queues. `BullSettings.announce` turns them off.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from jobwire.systems.queues.contract import node_client_name, python_client_name
from jobwire.valkey import Config, ConfigError, Connection, ServerError, ValkeyError

MOST_ANNOUNCED: Final = 100
"""Queues of one worker. A process may usually open 1,024 files, and a server 10,000 clients."""
_log = logging.getLogger("jobwire.bullmq")
_WORKER_NAME: Final = ":w:"
"""Between the name of the queue and that of the worker."""


class Announcement:
    """The named sockets of one queue."""

    def __init__(self, config: Config, queue: str, prefix: str, worker_name: str) -> None:
        suffix = f"{_WORKER_NAME}{worker_name}" if worker_name else ""
        makers = (node_client_name, python_client_name)
        self._names = [make(queue, prefix) + suffix for make in makers]
        self._config = config
        self._queue = queue
        self._connections: list[Connection] = []

    async def open(self) -> None:
        """Connect; a name that the server does not accept is left out. They reconnect by
        themselves."""
        for name in self._names:
            try:
                self._connections.append(await Connection.open(self._config, name=name))
            except (ConfigError, ValkeyError) as error:
                _log.warning(
                    "worker not announced queue=%(queue)s worker=%(worker)s error=%(error)s; "
                    "getWorkers does not list it",
                    {"queue": self._queue, "worker": name, "error": error},
                )

    async def close(self) -> None:
        while self._connections:
            await self._connections.pop().close()


class SeenWorker(NamedTuple):
    """A worker as the server's list of clients shows it."""

    queue: str
    name: str
    """As its program has named it; empty without a name."""
    address: str
    """`host:port` of its socket."""
    age_s: int
    ours: bool


async def list_workers(
    connection: Connection, prefix: str, queues: Iterable[str]
) -> list[SeenWorker] | None:
    """The workers of all programs: those that Node's `getWorkers` lists, and those of the Python
    package, of which several with the same name on one host count as one: each has two or three
    sockets. None where the server does not allow to list its clients."""
    try:
        reply = await connection.call("CLIENT", "LIST", "TYPE", "normal")
    except ServerError:
        return None
    by_node = {node_client_name(queue, prefix): queue for queue in queues}
    by_python = {python_client_name(queue, prefix): queue for queue in by_node.values()}
    marker = f" name={prefix}:"
    found: list[SeenWorker] = []
    of_python: dict[tuple[str, str, str], SeenWorker] = {}
    for line in str(reply).splitlines():
        if marker not in line:
            continue
        worker_name, worker = _read_client(line)
        if (queue := by_node.get(worker_name)) is not None:
            found.append(worker._replace(queue=queue))
        elif (queue := by_python.get(worker_name)) is not None and not worker.ours:
            host = worker.address.rpartition(":")[0]
            of_python.setdefault((queue, worker.name, host), worker._replace(queue=queue))
    return [*found, *of_python.values()]


def _read_client(line: str) -> tuple[str, SeenWorker]:
    """The client's name without the worker's own, and the worker."""
    fields: dict[str, str] = {}
    for field in line.split(" "):
        key, _, value = field.partition("=")
        fields[key] = value
    client_name, _, own_name = fields.get("name", "").partition(_WORKER_NAME)
    # The official packages name their library; ours does not, and speaks RESP 3.
    ours = not fields.get("lib-name") and fields.get("resp") == "3"
    age_s, address = int(fields.get("age") or 0), fields.get("addr", "")
    return client_name, SeenWorker("", own_name, address, age_s, ours)


async def seen_workers(
    connection: Connection, prefix: str, queues: Iterable[str]
) -> Mapping[str, int] | None:
    """How many workers each queue has; None where the server does not allow to list its clients."""
    names = list(queues)
    found = await list_workers(connection, prefix, names)
    if found is None:
        return None
    counts = Counter(worker.queue for worker in found)
    return {queue: counts[queue] for queue in names}
