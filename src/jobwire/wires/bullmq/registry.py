"""Makes a worker visible to `getWorkers` of the official packages, by the names of sockets (B-20).

Node looks for the queue's name in base64, the Python package for the plain name, and neither
accepts the other's, so each queue has two sockets that do nothing else. `BullSettings.announce`
turns them off.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from jobwire.valkey import Config, ConfigError, Connection, ServerError, ValkeyError
from jobwire.wires.bullmq.contract import node_client_name, python_client_name

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
                    "worker not announced: queue=%s name=%s error=%s; getWorkers does not list it",
                    *(self._queue, name, error),
                )

    async def close(self) -> None:
        while self._connections:
            await self._connections.pop().close()


async def seen_workers(
    connection: Connection, prefix: str, queues: Iterable[str]
) -> Mapping[str, int] | None:
    """How many workers Node's `getWorkers` lists for each queue: Node's and ours. Workers of the
    Python package have other names. None where the server does not allow to list its clients."""
    try:
        reply = await connection.call("CLIENT", "LIST", "TYPE", "normal")
    except ServerError:
        return None
    names = Counter(
        field.removeprefix("name=").partition(_WORKER_NAME)[0]
        for line in str(reply).splitlines()
        for field in line.split(" ")
        if field.startswith("name=")
    )
    return {queue: names[node_client_name(queue, prefix)] for queue in queues}
