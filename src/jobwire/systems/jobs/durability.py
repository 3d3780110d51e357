"""The level of durability that accepted jobs have, and whether the server meets it (G-22).

`memory`: the server has the job. `disk`: the server has also synced it to its disk: with
`appendfsync always` the server's reply is the receipt. The routes that submit jobs check the level
before they submit, and once more if the reply came from a new socket, behind which may be another
server. At the level `memory` nothing is asked.
"""

from collections.abc import Mapping
from typing import Final, cast

from jobwire.job.ids import shard_of
from jobwire.systems.jobs.settings import DISK, Level
from jobwire.valkey import Connection, ServerError

_REQUIRED: Final = {
    "appendonly": "yes",
    "appendfsync": "always",
    # While the log is rewritten, `yes` suspends the syncs, also with `always`.
    "no-appendfsync-on-rewrite": "no",
}
_FORBIDDEN: Final = "CONFIG GET is not permitted, so that the server's appendfsync is not known"


class Durability:
    fix: Final = (
        "CONFIG SET appendfsync always, or set jobs.durability to memory; docs/durability.md"
    )

    def __init__(self, connection: Connection, level: Level) -> None:
        self.level: Final = level
        self._connection = connection
        self._is_disk = level == DISK
        self._met_by = -1
        """The socket, by its number, whose server was found to meet the level."""

    def is_due(self, job_id: str = "") -> bool:  # noqa: ARG002 - one server for all jobs
        """Whether to look up the server's settings, before a submission or after that of a job: on
        each new socket, and while they are not those of the level. Not before the first socket:
        nothing is accepted without one."""
        opened = self._connection.sockets_opened
        return self._is_disk and self._met_by != opened and opened > 0

    @property
    def is_connected(self) -> bool:
        return self._connection.connected

    async def fault(self, job_id: str = "") -> str:  # noqa: ARG002 - as above
        """Look up the settings; what keeps the server from the level, or "". Raises ValkeyError:
        then the last answer counts, until there is a new socket."""
        if not self._is_disk:
            return ""
        fault = await self._find_fault()
        self._met_by = -1 if fault else self._connection.sockets_opened
        return fault

    async def _find_fault(self) -> str:
        try:
            reply = await self._connection.call("CONFIG", "GET", *_REQUIRED)
        except ServerError as error:
            if error.code == "NOPERM" or "unknown command" in str(error):
                return _FORBIDDEN
            raise
        found = cast("dict[str, str]", reply)
        for name, value in _REQUIRED.items():
            if found.get(name) != value:
                return f"{name} of the server is {found.get(name, 'not known')}, not {value}"
        return ""


class DurabilityOfAll(Durability):
    """The same for the servers of all shards: each must meet the level. Before a submission those
    without a connection are left out, as they get no jobs; after it, the server of the job
    counts."""

    def __init__(self, shards: Mapping[int, Connection], level: Level) -> None:
        super().__init__(shards[0], level)
        servers = {each: Durability(each, level) for each in dict.fromkeys(shards.values())}
        self._by_shard = {number: servers[connection] for number, connection in shards.items()}
        self._servers = list(servers.values())

    def is_due(self, job_id: str = "") -> bool:
        if job_id:
            return self._server_of(job_id).is_due()
        return any(server.is_connected and server.is_due() for server in self._servers)

    async def fault(self, job_id: str = "") -> str:
        """What keeps a server from the level, or ""."""
        if job_id:
            return await self._server_of(job_id).fault()
        for server in self._servers:
            if server.is_connected and (fault := await server.fault()):
                return fault
        return ""

    def _server_of(self, job_id: str) -> Durability:
        # An id that a foreign program has chosen may name a shard that does not exist.
        return self._by_shard.get(shard_of(job_id), self._by_shard[0])
