"""Administration of queues: pause, resume, purge (J-53).

The gateway has one, over its shared connection. A paused queue accepts jobs; workers of ours start
none of them. Foreign workers know nothing of it.
"""

from typing import Final, NamedTuple, cast

from jobwire.systems.jobs import contract
from jobwire.systems.jobs.contract import StreamsKeys
from jobwire.systems.jobs.replies import collect
from jobwire.systems.jobs.scripts import script
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Arg, Connection, Reply, Script

_PAUSE: Final = script("pause")
_RESUME: Final = script("resume")
_PURGE: Final = script("purge")
_SCAN_LIMIT: Final = 200
_UNKNOWN: Final = "unknown"
_SUSPENDED: Final = contract.EventType.SUSPENDED.value


class _Purged(NamedTuple):
    """The reply of one call: where the next one begins, and how many jobs were canceled."""

    began_ms: str
    place: str
    cursor: str
    canceled: int


class JobQueueAdmin:
    def __init__(self, connection: Connection, settings: StreamsSettings) -> None:
        self._connection = connection
        self._keys = StreamsKeys(settings.key_prefix)
        self._limits: tuple[Arg, ...] = (settings.job_ttl_s, settings.max_events)

    async def paused(self) -> frozenset[str]:
        """The names of the paused queues."""
        (reply,) = await collect([self._connection.call("SMEMBERS", self._keys.paused)])
        return frozenset(cast("list[str]", reply))

    async def pause(self, name: str) -> bool:
        """Let workers start no job of the queue; False if there is no such queue."""
        return await self._announce(_PAUSE, name) != _UNKNOWN

    async def resume(self, name: str) -> bool:
        """Let them start jobs again; False if there is no such queue."""
        return await self._announce(_RESUME, name) != _UNKNOWN

    async def purge(self, name: str, tenant: str = "", *, suspended: bool = False) -> int | None:
        """Cancel all jobs of the queue that wait or are delayed, and the suspended ones if asked,
        of one tenant or of all; how many there were, or None if there is no such queue."""
        head = (*self._limits, name, tenant, contract.CANCELED_TTL_S)
        canceled, step = 0, _Purged("", _SUSPENDED if suspended else "delayed", "0", 0)
        while step.place != "end":
            reply = await self._run(_PURGE, *head, *step[:3], _SCAN_LIMIT)
            step = _Purged(*cast("tuple[str, str, str, int]", reply))
            canceled += step.canceled
        return canceled if step.began_ms else None

    async def _announce(self, verb: Script, name: str) -> Reply:
        return await self._run(
            verb, name, contract.QUEUES_CHANGED, self._connection.publish_command
        )

    async def _run(self, verb: Script, *args: Arg) -> Reply:
        (reply,) = await collect([self._connection.run(verb, (self._keys.queue,), args)])
        return reply
