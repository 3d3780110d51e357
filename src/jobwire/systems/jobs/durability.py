"""The level of durability that accepted jobs have, and whether the server meets it (G-22).

`memory`: the server has the job. `disk`: the server has also synced it to its disk: with
`appendfsync always` the server's reply is the receipt. The routes that submit jobs check the level
before they submit, and once more if the reply came from a new socket, behind which may be another
server. At the level `memory` nothing is asked.
"""

from collections.abc import Sequence
from typing import Final, cast

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

    @property
    def is_due(self) -> bool:
        """Whether to look up the server's settings: on each new socket, and while they are not
        those of the level. Not before the first socket: nothing is accepted without one."""
        opened = self._connection.sockets_opened
        return self._is_disk and self._met_by != opened and opened > 0

    @property
    def is_silent(self) -> bool:
        """Whether nothing is to be asked: there is no connection, and all that was accepted had
        the level."""
        return not self._connection.connected and not self.is_due

    async def fault(self) -> str:
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
    """The same for the servers of all shards: each must meet the level."""

    def __init__(self, connections: Sequence[Connection], level: Level) -> None:
        super().__init__(connections[0], level)
        self._servers = [Durability(connection, level) for connection in connections]

    @property
    def is_due(self) -> bool:
        return any(server.is_due for server in self._servers)

    async def fault(self) -> str:
        """What keeps a server from the level, or ""."""
        for server in self._servers:
            if not server.is_silent and (fault := await server.fault()):
                return fault
        return ""
