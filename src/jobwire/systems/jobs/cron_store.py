"""The last run of each cron schedule on the Streams wire (J-52).

The worker's scheduler has one, over the connection that it shares with its engine. The scheduler
computes due times; the script makes sure that each has one run.
"""

from collections.abc import Awaitable, Mapping
from typing import Final

from jobwire.job.errors import ContractError
from jobwire.job.ids import new_job_id
from jobwire.job.messages import (
    AlreadyRun,
    CronState,
    DueAnswer,
    Full,
    JobId,
    JobRequest,
    NotDue,
    Submitted,
)
from jobwire.systems.jobs import contract
from jobwire.systems.jobs.contract import Extra, StreamsKeys
from jobwire.systems.jobs.cron_admin import write_cron_job
from jobwire.systems.jobs.payload import check_payload
from jobwire.systems.jobs.replies import LazyReply
from jobwire.systems.jobs.scripts import script
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Arg, Connection, Reply

_ENROLL: Final = script("enroll")
_CRON: Final = script("cron")


class StreamsCronStore:
    """Implements the `CronStore` protocol."""

    def __init__(
        self,
        connection: Connection,
        settings: StreamsSettings | None = None,
        queues: Mapping[str, str] | None = None,
    ) -> None:
        """`queues` has the queue of each entry's jobs; without one the default queue."""
        self._queues = queues or {}
        self._settings = settings or StreamsSettings()
        self._connection = connection
        self._declared = (StreamsKeys(self._settings.key_prefix).queue,)

    def enroll(
        self, name: str, entry: str, request: JobRequest | None = None
    ) -> Awaitable[CronState]:
        """The last due time of the entry that has run, in any process. `request` is stored, so that
        a gateway can run the entry now."""
        args = (
            *(name, entry, contract.CRON_TTL_S),
            *(contract.CRON_GONE_MS, contract.CRON_AHEAD_MS),
            write_cron_job(request, self._queues.get(name, "")) if request else "",
        )
        return LazyReply(self._connection.run(_ENROLL, self._declared, args), _read_state)

    def submit_due(
        self, name: str, entry: str, due_ms: int, request: JobRequest
    ) -> Awaitable[DueAnswer]:
        """Create the job of a due time, once."""
        check_payload(request.payload_json)
        idempotency = contract.cron_run_name(name, due_ms)
        queue = self._queues.get(name, contract.DEFAULT_QUEUE)
        args: list[Arg] = [
            name,
            entry,
            due_ms,
            contract.CRON_TTL_S,
            new_job_id(),
            request.task,
            request.payload_json,
            self._settings.job_ttl_s,
            self._settings.max_queue,
            idempotency,
            queue,
            Extra.IDEMPOTENCY_KEY,
            idempotency,
        ]
        if queue != contract.DEFAULT_QUEUE:
            args += (Extra.QUEUE, queue)
        return LazyReply(self._connection.run(_CRON, self._declared, args), _read_due)


def _read_state(reply: Reply) -> CronState:
    match reply:
        case ["enrolled", str(due_ms), str(now_ms)]:
            return CronState(int(due_ms), int(now_ms))
        case _:
            raise ContractError(
                "unknown answer of the enroll script", clause="J-52", detail=repr(reply)
            )


def _read_due(reply: Reply) -> DueAnswer:
    match reply:
        case ["submitted", str(job_id), int(created_ms)]:
            return Submitted(JobId(job_id), created_ms)
        case ["already_run"]:
            return AlreadyRun()
        case ["not_due"] | ["paused"]:
            return NotDue()
        case ["full", int(waiting)]:
            return Full(waiting)
        case _:
            raise ContractError(
                "unknown answer of the cron script", clause="J-52", detail=repr(reply)
            )
