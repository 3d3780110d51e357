"""A producer's end of a BullMQ queue: submit, bulk, get, counts, list, pause, resume, logs.

Programs that hand work to a queue have one for each queue, over a connection that many share. It
checks what the wire does not take (B-19) and never whether a handler exists.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, NamedTuple, cast

from jobwire.job.errors import RefusedError
from jobwire.job.messages import CancelOutcome
from jobwire.systems.queues import contract
from jobwire.systems.queues.add_batcher import AddAnswer, add_batcher
from jobwire.systems.queues.checks import (
    BULK_TOO_LARGE,
    SCHEDULED,
    UNKNOWN_STATE,
    check_json,
    check_name,
    check_options,
    check_queue_name,
    is_job_id,
    refuse,
)
from jobwire.systems.queues.clock import NowMs, system_now_ms
from jobwire.systems.queues.codec import JobHash, read_counts, read_fields, read_job
from jobwire.systems.queues.contract import COLLECTIONS, BullState, Keys
from jobwire.systems.queues.options import BullJobOptions, write_options, write_parent
from jobwire.systems.queues.scripts import script
from jobwire.systems.queues.settings import BullSettings
from jobwire.valkey import Arg, Connection, Reply

_CANCEL_OUTCOMES: Final = {
    "canceled": CancelOutcome.CANCELED,
    "requested": CancelOutcome.REQUESTED,
    "foreign": CancelOutcome.REQUESTED_FOREIGN,
    "finished": CancelOutcome.FINISHED,
    "gone": CancelOutcome.GONE,
}

_PLAIN: Final = BullJobOptions()

DataCheck = Callable[[str, str], None]
"""Called with a job's name and data; raises RefusedError."""


class NewBullJob(NamedTuple):
    """A job to submit."""

    name: str
    data_json: str = "{}"
    options: BullJobOptions = BullJobOptions()


class Logs(NamedTuple):
    lines: list[str]
    total: int


class QueueProducer:
    def __init__(
        self,
        connection: Connection,
        queue: str,
        settings: BullSettings | None = None,
        *,
        check_data: DataCheck | None = None,
        now_ms: NowMs = system_now_ms,
    ) -> None:
        """`check_data` is the queue's schema, where it has one."""
        self.settings = settings or BullSettings()
        self.keys = Keys(check_queue_name(queue), self.settings.prefix)
        self.connection = connection
        self._check_data = check_data
        self.now_ms = now_ms
        self._declared = (self.keys.meta,)
        self._extras = int(self.settings.extras)
        self._batcher = add_batcher(connection, self._extras)
        self._last_options: BullJobOptions | None = None
        """The options of the last job: many jobs have the same ones."""
        self._last_json = ""

    # Submitting

    async def submit(
        self, name: str, data_json: str = "{}", options: BullJobOptions | None = None
    ) -> AddAnswer:
        """Make a job; RefusedError where the wire does not take it."""
        return await self._add(NewBullJob(name, data_json, options or _PLAIN))

    def send(self, job: NewBullJob) -> Awaitable[AddAnswer]:
        """`submit`, sent when called and not at the end of the loop turn."""
        answer = self._add(job)
        self._batcher.send()
        return answer

    async def submit_many(self, jobs: Sequence[NewBullJob]) -> list[AddAnswer]:
        """Make all of them in one round trip; all are refused if one must be."""
        if len(jobs) > contract.MAX_BULK_JOBS:
            raise refuse(
                f"{len(jobs)} jobs in one bulk; at most {contract.MAX_BULK_JOBS} are taken",
                code=BULK_TOO_LARGE,
            )
        check_bulk_bytes(job.data_json for job in jobs)
        items: list[Sequence[Arg]] = []
        for number, job in enumerate(jobs):
            try:
                items.append(self._args(job))
            except RefusedError as error:
                raise refuse(f"job {number}: {error.message}", code=error.code) from None
        add = self._batcher.add
        return await asyncio.gather(
            *[add(item, len(job.data_json)) for item, job in zip(items, jobs, strict=True)]
        )

    async def submit_parent(self, name: str, data_json: str, options: BullJobOptions) -> AddAnswer:
        """Make a job that waits until children are added and have ended."""
        job = NewBullJob(name, data_json, options)
        self.check(job)
        if options.deduplication is not None:
            raise refuse("a job that waits for children cannot be deduplicated")
        return await self._add(job, waits_for_children=True)

    async def cancel(self, job_id: str) -> CancelOutcome:
        """Remove a job that waits; ask the worker of an active one to stop it. The job then fails
        as `canceled` (B-17)."""
        if not is_job_id(job_id):
            return CancelOutcome.GONE
        channel = contract.control_channel(self.settings.prefix)
        args = (job_id, contract.CANCELED, channel, contract.TOKEN_PREFIX)
        publish = self.connection.publish_command
        answer = cast(str, await self.run("cancel", *args, publish))
        if answer == SCHEDULED:
            raise refuse(
                f"job {job_id} belongs to a scheduler: remove the scheduler instead", SCHEDULED
            )
        return _CANCEL_OUTCOMES[answer]

    # Looking

    async def get(self, job_id: str) -> JobHash | None:
        """A job with its fields; None where there is none."""
        if not is_job_id(job_id):
            return None
        found = cast("dict[str, str]", await self.connection.call("HGETALL", self.keys.job(job_id)))
        return read_fields(job_id, found) if found else None

    async def exists(self, job_id: str) -> bool:
        """Whether there is such a job."""
        key = self.keys.job(job_id)
        return is_job_id(job_id) and bool(await self.connection.call("EXISTS", key))

    async def state(self, job_id: str) -> BullState:
        """`unknown` where the job is in no list of the queue."""
        if not is_job_id(job_id):
            return BullState.UNKNOWN
        return BullState(cast(str, await self.run("state", job_id)))

    async def counts(self) -> dict[BullState, int]:
        """Jobs by state."""
        return read_counts(cast("list[int]", await self.run("counts")))

    async def list(
        self, state: BullState | str, *, first: int = 0, count: int = 50, oldest_first: bool = True
    ) -> list[JobHash]:
        """A page of the jobs in a state."""
        jobs, _ = await self.page(state, first, count, oldest_first=oldest_first)
        return [*jobs]

    async def page(
        self,
        state: BullState | str,
        first: int,
        count: int,
        *,
        oldest_first: bool,
        max_bytes: int = 1 << 62,
    ) -> tuple[Sequence[JobHash], int]:
        """A page that ends before the job that exceeds `max_bytes`, and how many jobs of the state
        it went through."""
        collection = COLLECTIONS.get(cast(BullState, state))
        if collection is None:
            known = ", ".join(COLLECTIONS)
            raise refuse(f"no such state: {state!r}; there are {known}", code=UNKNOWN_STATE)
        if not 0 <= first < 1 << 31 or not 1 <= count <= contract.MAX_BULK_JOBS:
            raise refuse(f"a page begins at 0 or later and has 1 to {contract.MAX_BULK_JOBS} jobs")
        found = await self.run("range", collection, first, count, int(oldest_first), max_bytes)
        rows = cast("list[tuple[str, list[Reply]]]", found)
        return [read_job(job_id, flat) for job_id, flat in rows if flat], len(rows)

    async def logs(self, job_id: str, *, first: int = 0, last: int = -1) -> Logs:
        """The lines of a job's log, the oldest first, and how many there are."""
        if not is_job_id(job_id):
            return Logs([], 0)
        key = self.keys.logs(job_id)
        lines, total = await asyncio.gather(
            self.connection.call("LRANGE", key, first, last), self.connection.call("LLEN", key)
        )
        return Logs(cast("list[str]", lines), cast(int, total))

    # Pausing

    async def pause(self) -> None:
        """No worker of any program starts another job; running ones go on."""
        await self._until_none_left("pause")

    async def resume(self) -> None:
        """Start again; jobs that an older program moved to the list `paused` are next."""
        await self._until_none_left("resume")

    async def _until_none_left(self, verb: str) -> None:
        first = 1
        while cast(int, await self.run(verb, first)) > 0:
            first = 0

    # How the scripts are called

    def run(self, verb: str, *args: Arg) -> Awaitable[Reply]:
        """A script of this queue, for the admin verbs; sent when called, after all jobs that were
        submitted before."""
        self._batcher.send()
        return self.connection.run(script(verb), self._declared, (*self._head(), *args))

    def _head(self) -> tuple[Arg, ...]:
        return (self.now_ms(), self._extras)

    def _add(self, job: NewBullJob, *, waits_for_children: bool = False) -> Awaitable[AddAnswer]:
        args = self._args(job, waits_for_children=waits_for_children)
        return self._batcher.add(args, len(job.data_json))

    def _args(self, job: NewBullJob, *, waits_for_children: bool = False) -> Sequence[Arg]:
        """The arguments of `add` for one job; RefusedError where the wire does not take it."""
        options = job.options
        if options is not self._last_options:
            check_options(options)
            self._last_json = write_options(options, self.settings.prefix)
            self._last_options = options
        self._check_content(job)
        timestamp_ms = self.now_ms() if options.timestamp_ms is None else options.timestamp_ms
        args: list[Arg] = [self.keys.meta, options.job_id, job.name, job.data_json]
        args += (self._last_json, timestamp_ms)
        parent, rule = options.parent, options.deduplication
        is_plain = not (options.delay_ms or options.priority or options.lifo or waits_for_children)
        if is_plain and parent is None and rule is None:
            args.append(0)
            return args
        prefix = self.settings.prefix
        args += (1, options.delay_ms, options.priority, int(options.lifo))
        args += (
            (Keys(parent.queue, prefix).job(parent.id), write_parent(parent, prefix))
            if parent
            else ("", "")
        )
        args += (rule.id, rule.ttl_ms, rule.flags) if rule else ("", 0, "")
        args.append(int(waits_for_children))
        return args

    def check(self, job: NewBullJob) -> None:
        """Raise RefusedError where the wire does not take the job (B-19)."""
        check_options(job.options)
        self._check_content(job)

    def _check_content(self, job: NewBullJob) -> None:
        check_name(job.name)
        self.check_data(job.name, job.data_json, job.options.size_limit)

    def check_data(self, name: str, data_json: str, limit: int | None = None) -> None:
        """Raise RefusedError if this cannot be the data of a job of this name."""
        if limit is None:
            limit = contract.MAX_DATA_BYTES
        if _bytes(data_json) > limit:
            raise refuse(f"the data of a job may have {limit} bytes")
        check_json(data_json, "the data")
        if self._check_data is not None:
            self._check_data(name, data_json)


def check_bulk_bytes(texts: Iterable[str]) -> None:
    """Raise RefusedError if the data of jobs that are added at once is too large."""
    size = sum(map(_bytes, texts))
    if size > contract.MAX_BULK_BYTES:
        raise refuse(
            f"{size} bytes of data in one bulk; at most {contract.MAX_BULK_BYTES} are taken",
            code=BULK_TOO_LARGE,
        )


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
