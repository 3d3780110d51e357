"""Progress by id, in a hash that expires.

Writing merges fields and renews the TTL in one atomic step, so that no hash is left without TTL;
another client than a `Connection` gets two commands.
"""

from collections.abc import Mapping
from typing import Final

from jobwire.valkey.checks import check_client, check_duration
from jobwire.valkey.connection import Connection
from jobwire.valkey.operations import Client
from jobwire.valkey.resp_socket import Arg
from jobwire.valkey.scripts import load_scripts

_TTL_S: Final = 3600.0
_SET: Final = load_scripts("jobwire.valkey.lua")["set_progress"]


class ProgressTracker:
    """`ProgressTracker(connection)`; the key is `prefix` and the id."""

    def __init__(
        self, connection: Client, *, ttl_s: float = _TTL_S, prefix: str = "image:status:"
    ) -> None:
        """A `ttl_s` of 0 means the default."""
        ttl_s = ttl_s or _TTL_S
        check_client(connection, "hset", "expire", "hgetall", "delete")
        check_duration("ttl_s", ttl_s)
        self._connection = connection
        self._ttl_ms = max(1, round(ttl_s * 1000))
        self._prefix = prefix

    async def set_progress(self, id_: str, fields: Mapping[str, Arg]) -> None:
        """Set these fields, keep the others, and renew the TTL to `ttl_s`."""
        if not isinstance(self._connection, Connection):
            await self._connection.hset(self._key(id_), fields)
            await self._connection.expire(self._key(id_), self._ttl_ms / 1000)
            return
        flat = [part for pair in fields.items() for part in pair]
        await self._connection.run(_SET, [self._key(id_)], [self._ttl_ms, *flat])

    async def get_progress(self, id_: str) -> dict[str, str]:
        """All fields; empty if there is no progress or it has expired."""
        return await self._connection.hgetall(self._key(id_))

    async def delete_progress(self, id_: str) -> bool:
        """Delete the progress; False if there was none."""
        return await self._connection.delete(self._key(id_)) == 1

    def _key(self, id_: str) -> str:
        return self._prefix + id_
