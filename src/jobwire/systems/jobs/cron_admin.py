"""Administration of cron entries: run now, pause, resume (J-52).

The gateway has one, over its shared connection. Workers store what their entries submit; a pause is
kept on the server, where every worker of the fleet honours it.
"""

from typing import Final, cast

import msgspec

from jobwire.job.messages import JobRequest
from jobwire.systems.jobs.contract import StreamsKeys
from jobwire.systems.jobs.replies import collect
from jobwire.systems.jobs.scripts import script
from jobwire.valkey import Connection

_RESUME: Final = script("resume_cron")


class CronJob(msgspec.Struct):
    """The job of an entry."""

    task: str
    payload: str
    queue: str = ""


def write_cron_job(request: JobRequest, queue: str) -> str:
    """The stored form of an entry's job."""
    job = CronJob(request.task, request.payload_json, queue)
    return msgspec.json.encode(job).decode()


class CronAdmin:
    def __init__(self, connection: Connection, keys: StreamsKeys) -> None:
        self._connection = connection
        self._keys = keys

    async def job(self, name: str) -> CronJob | None:
        """The job of the entry; None if no worker has or had it."""
        (reply,) = await collect([self._connection.call("GET", self._keys.cron_job(name))])
        try:
            return msgspec.json.decode(cast("str | None", reply) or "", type=CronJob)
        except (msgspec.DecodeError, ValueError):
            return None

    async def pause(self, name: str) -> bool:
        """Let its due times pass without a job; False if there is no such entry."""
        (known,) = await collect([self._connection.call("ZSCORE", self._keys.crons, name)])
        if known is not None:
            await collect([self._connection.call("SADD", self._keys.paused_crons, name)])
        return known is not None

    async def resume(self, name: str) -> bool:
        """Let it run again, from now on; False if there is no such entry."""
        (reply,) = await collect([self._connection.run(_RESUME, (self._keys.queue,), (name,))])
        return reply != "unknown"
