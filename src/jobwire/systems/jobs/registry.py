"""The live workers and their tasks (J-10, O-11).

The gateway has one. Everything is read from the server on request; only the names of the known
tasks are cached for a moment, so that a submission need not read them each time. A task is known
while a live worker has it, and for 30 days after that (J-37).
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final, NamedTuple, cast

import msgspec

from jobwire.job.errors import BackendUnavailable
from jobwire.job.messages import MissingRequirement, ServedQueue, TaskDefinition
from jobwire.json_depth import bounded
from jobwire.systems.jobs import contract
from jobwire.systems.jobs.codec import (
    number,
    read_missing_requirements,
    read_served_queues,
    readable,
)
from jobwire.systems.jobs.contract import DEFAULT_QUEUE, TASK_FIELD, StreamsKeys, WorkerField
from jobwire.systems.jobs.replies import collect, pairs, server_ms
from jobwire.systems.jobs.scripts import script
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Arg, Connection, Reply

_WORKER_INFO: Final = script("worker_info")
_MAX_RUNNING: Final = 200
"""Running jobs that are shown per worker."""
_FRESH_S: Final = 5.0
"""How long the cached task names are used."""
_MAX_QUEUES: Final = 100
"""Queues whose consumers are read for a list of the workers."""
_MIN_REFRESH_S: Final = 0.1
"""The workers are read at most this often, however many requests name unknown tasks."""


class RunningJob(NamedTuple):
    """A job that a worker runs."""

    job_id: str
    task: str
    tenant: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class RegisteredWorker:
    """One worker; of a foreign worker only the name and the running jobs are known."""

    name: str
    ours: bool
    host: str
    pid: int | None
    version: str
    slots: int | None
    tasks: tuple[str, ...]
    serves: tuple[ServedQueue, ...]
    """The queues of its process, on all wires."""
    started_ms: int | None
    heartbeat_age_ms: int
    """Since its last heartbeat; of a foreign worker: since its last call."""
    running: tuple[RunningJob, ...]
    missing_requirements: tuple[MissingRequirement, ...]
    queues: tuple[str, ...]
    """The queues that it reads; empty for a foreign worker."""


class RegisteredTask(NamedTuple):
    """A task that can be submitted."""

    definition: TaskDefinition
    live: bool
    queue: str
    """In which its jobs are enqueued."""
    workers: int
    """Live workers that have it."""
    queues: tuple[str, ...]
    """Those in which live workers have it; with several, a part of its jobs may wait in the one
    that fewer workers read."""


class Registration(NamedTuple):
    """A task as one worker has registered it."""

    definition: TaskDefinition
    queue: str
    started_ms: int = 0


class ConsumerRow(NamedTuple):
    """A consumer of the default queue; `seen`, `slots` and `queues` are the fields of its
    registration, empty without one."""

    name: str
    idle_ms: int
    seen: str
    slots: str
    queues: str = ""


class FleetSummary(NamedTuple):
    """All live workers; foreign ones are counted, their slots are not known."""

    workers: int
    slots: int
    most_slots: int
    """Of one worker; 0 without a live worker."""
    heartbeat_age_ms: int | None
    """Since the last heartbeat of any of them."""


class WorkerRegistry:
    def __init__(
        self,
        connection: Connection,
        settings: StreamsSettings,
        definitions: Iterable[TaskDefinition] = (),
    ) -> None:
        """`definitions` describe the contract's tasks while no worker is registered."""
        self._connection = connection
        self.keys = StreamsKeys(settings.key_prefix)
        known = {task.name: task for task in definitions}
        self._declared = {
            name: known.get(name, TaskDefinition(name))
            for name in (*contract.SOURCE_TASKS, *settings.tasks)
        }
        self._known: Mapping[str, str] = {}
        """Task → queue."""
        self._queues: frozenset[str] = frozenset()
        self._schemas: dict[str, tuple[str, ...]] = {}
        self._live: frozenset[str] = frozenset()
        self._foreign_ms = settings.foreign_idle_s * 1000
        self._refreshed_at_s = float("-inf")
        self._refreshing = asyncio.Lock()
        self._forgotten: Mapping[str, str] = {}
        """The tasks that were known before the server was emptied."""
        self._forgotten_until_s = float("-inf")
        self._register_again_s = 2 * settings.heartbeat_s

    # Tasks

    def has(self, task: str) -> bool:
        """Whether the task is known without a call to the server."""
        if task in self._declared:
            return True
        return task in self._known and _now_s() - self._refreshed_at_s < _FRESH_S

    def queue_of(self, task: str) -> str:
        """J-53: the queue in which jobs of a known task are enqueued, as last read: that of its
        newest live worker, else of its last one."""
        return DEFAULT_QUEUE if task in self._declared else self._known.get(task, DEFAULT_QUEUE)

    def is_in_default(self, task: str) -> bool:
        """Whether its jobs are always enqueued in the default queue."""
        return task in self._declared

    async def has_queue(self, queue: str) -> bool:
        """Whether there is such a queue; reads the registrations if needed."""
        if queue != DEFAULT_QUEUE and (queue not in self._queues or self.is_stale):
            await self.refresh()
        return queue == DEFAULT_QUEUE or queue in self._queues

    async def unknown_among(self, tasks: Iterable[str]) -> set[str]:
        """Those of `tasks` that no worker has or had; reads the registrations if needed.
        BackendUnavailable if their workers have yet to register again on an emptied server."""
        missing = {task for task in tasks if not self.has(task)}
        if missing:
            await self.refresh()
        unknown = {task for task in missing if not self.has(task)}
        if _now_s() < self._forgotten_until_s and not unknown.isdisjoint(self._forgotten):
            raise BackendUnavailable(
                "the job server was emptied, and the workers register again within seconds; retry"
            )
        return unknown

    @property
    def is_stale(self) -> bool:
        """Whether the cached tasks are older than a moment."""
        return _now_s() - self._refreshed_at_s >= _FRESH_S

    async def refresh(self) -> None:
        """Read the registrations, unless another call has just done so."""
        requested_at_s = _now_s()
        async with self._refreshing:
            # A refresh that ended while this call waited for the lock is recent enough.
            if self._refreshed_at_s < requested_at_s:
                await asyncio.sleep(self._refreshed_at_s + _MIN_REFRESH_S - requested_at_s)
                consumers = await self._consumers()
                live, remembered = await self.live_tasks(consumers), await self.remembered()
                newest = {task: found[0] for task, found in live.items()}
                if self._known and not remembered:
                    self._forgotten = self._known
                    self._forgotten_until_s = _now_s() + self._register_again_s
                self._known = {
                    task: found.queue for task, found in {**remembered, **newest}.items()
                }
                self._queues = frozenset((*self._known.values(), *await self.queue_names()))
                self._schemas = _schemas(live, remembered)
                self._live = frozenset(live)
                if any(
                    not _is_ours(name) and idle < self._foreign_ms
                    for name, idle in consumers.items()
                ):
                    # The contract's tasks may be a foreign worker's, whose schemas are not known.
                    self._live |= frozenset(self._declared)
                    for task in self._declared:
                        self._schemas.pop(task, None)
                self._refreshed_at_s = _now_s()

    async def is_served(self, task: str) -> bool:
        """Whether a live worker has the task; reads the registrations unless that was a moment
        ago and it had."""
        if task not in self._live or self.is_stale:
            await self.refresh()
        return task in self._live

    def schemas(self, task: str) -> Sequence[str]:
        """The schemas of its payload that workers have registered, as last read; none if some
        worker accepts any payload."""
        return self._schemas.get(task, ())

    @property
    def known_names(self) -> list[str]:
        """The tasks that are known without a call to the server."""
        return sorted({*self._declared, *self._known})

    async def tasks(self) -> list[RegisteredTask]:
        """All tasks: those of the contract and the settings first, then the others by name."""
        registered = await self.live_tasks(await self._consumers())
        live = {
            name: reduce(_merged, (each.definition for each in found))
            for name, found in registered.items()
        }
        remembered = await self.remembered()

        def task(name: str, definition: TaskDefinition, queue: str) -> RegisteredTask:
            found = registered.get(name, [])
            return RegisteredTask(definition, bool(found), queue, len(found), tuple(_queues(found)))

        declared = [
            task(name, _merged(live.get(name), definition), DEFAULT_QUEUE)
            for name, definition in self._declared.items()
        ]
        newest = {task: found[0] for task, found in registered.items()}
        known = {**remembered, **newest}
        others = sorted(known.keys() - self._declared.keys())
        return declared + [
            task(name, live.get(name, known[name].definition), known[name].queue) for name in others
        ]

    async def task_queues(self) -> dict[str, list[str]]:
        """Each task of the live workers with the queues in which they have it, that of its newest
        worker first. Several are a mistake: its jobs wait in the first only (J-53)."""
        registered = await self.live_tasks(await self._consumers())
        return {task: _queues(found) for task, found in registered.items()}

    async def queue_names(self) -> list[str]:
        """The names of all queues, the default one first."""
        names = sorted(cast("Iterable[str]", await self._call("SMEMBERS", self.keys.queues) or ()))
        return [DEFAULT_QUEUE, *(name for name in names if contract.QUEUE_NAME.fullmatch(name))]

    async def live_tasks(self, consumers: Iterable[str]) -> dict[str, list[Registration]]:
        """Each live task as its workers have registered it, the newest worker first."""
        calls = [self._connection.call("HGETALL", key) for key in self._worker_keys(consumers)]
        live: dict[str, list[Registration]] = {}
        for reply in await collect(calls):
            fields = cast("dict[str, str]", reply)
            started_ms = number(fields.get(WorkerField.STARTED_TS)) or 0
            for field, text in fields.items():
                if field.startswith(TASK_FIELD):
                    name = readable(field.removeprefix(TASK_FIELD))
                    live.setdefault(name, []).append(_read_task(name, text, started_ms))
        for found in live.values():
            found.sort(key=lambda each: each.started_ms, reverse=True)
        return live

    async def remembered(self) -> dict[str, Registration]:
        """The tasks of workers that live or have lived."""
        reply = cast("dict[str, str]", await self._call("HGETALL", self.keys.tasks) or {})
        found = {readable(task): text for task, text in reply.items()}
        return {task: _read_task(task, text) for task, text in found.items()}

    # Workers

    async def workers(self) -> list[RegisteredWorker]:
        """All workers, ours and foreign ones."""
        names = await self.queue_names()
        consumers: dict[str, int] = {}
        for of_queue in await self.consumers_of(names[:_MAX_QUEUES]):
            for consumer, idle_ms in of_queue.items():
                consumers[consumer] = min(idle_ms, consumers.get(consumer, idle_ms))
        found = await self.worker_info(consumers)
        # A consumer's name outlives its worker: one of ours without a registration and without a
        # running job is gone.
        return [worker for worker in found if not worker.ours or worker.host or worker.running]

    async def missing_requirements(self) -> list[tuple[MissingRequirement, ...]]:
        """The missing requirements of each live worker of ours."""
        return await self.missing_of(await self._consumers())

    async def missing_of(self, consumers: Iterable[str]) -> list[tuple[MissingRequirement, ...]]:
        """The missing requirements of each of these that lives and is ours."""
        fields = (WorkerField.SEEN_TS, WorkerField.LACKS)
        ours = self._worker_keys(consumers)
        calls = [self._connection.call("HMGET", key, *fields) for key in ours]
        rows = cast("list[tuple[str | None, str | None]]", await collect(calls))
        return [read_missing_requirements(missing or "") for seen, missing in rows if seen]

    async def summary(self) -> "FleetSummary":
        """How many workers live, without their jobs."""
        return self.summarized(*await self.consumer_rows(await self._consumers()))

    async def read_by(self) -> Counter[str]:
        """How many live workers read each queue, as `readers` counts them."""
        return self.readers((await self.consumer_rows(await self._consumers()))[1])

    async def consumer_rows(self, consumers: Mapping[str, int]) -> tuple[int, list[ConsumerRow]]:
        """The server's time, and these consumers of the default queue."""
        fields = (WorkerField.SEEN_TS, WorkerField.SLOTS, WorkerField.QUEUES)
        time_call = self._connection.call("TIME")
        ours = self._worker_keys(consumers)
        calls = [self._connection.call("HMGET", key, *fields) for key in ours]
        time, *rows = await collect([time_call, *calls])
        registered = iter(cast("list[tuple[str | None, ...]]", rows))
        found: list[ConsumerRow] = []
        for name, idle_ms in consumers.items():
            seen, slots, queues = next(registered) if _is_ours(name) else (None, None, None)
            found.append(ConsumerRow(name, idle_ms, seen or "", slots or "", queues or ""))
        return server_ms(time), found

    def summarized(self, now_ms: int, consumers: Iterable[ConsumerRow]) -> "FleetSummary":
        """The live ones of these consumers."""
        ages: list[int] = []
        slots: list[int] = []
        for consumer in consumers:
            seen_ms = number(consumer.seen)
            if not _is_ours(consumer.name):
                if consumer.idle_ms < self._foreign_ms:
                    ages.append(consumer.idle_ms)
            elif seen_ms is not None:
                ages.append(max(0, now_ms - seen_ms))
                slots.append(number(consumer.slots) or 0)
        return FleetSummary(len(ages), sum(slots), max(slots, default=0), min(ages, default=None))

    def readers(self, consumers: Iterable[ConsumerRow]) -> Counter[str]:
        """How many live workers read each queue. Foreign ones are found in the default queue."""
        read: Counter[str] = Counter()
        for consumer in consumers:
            if _is_ours(consumer.name):
                read.update(consumer.queues.split() if consumer.seen else ())
            elif consumer.idle_ms < self._foreign_ms:
                read[DEFAULT_QUEUE] += 1
        return read

    async def _consumers(self) -> dict[str, int]:
        """Of the default queue. Our workers are all in its group, whatever they read."""
        (found,) = await self.consumers_of([DEFAULT_QUEUE])
        return found

    async def consumers_of(self, queues: Sequence[str]) -> list[dict[str, int]]:
        """For each queue: consumer name → milliseconds since its last call; in one round trip."""
        streams = [self.keys.named_queue(queue) for queue in queues]
        calls = [
            self._connection.call("XINFO", "CONSUMERS", each, contract.GROUP) for each in streams
        ]
        replies = await collect(calls, none_if_refused=True)
        return [
            {
                cast(str, row["name"]): cast(int, row["idle"])
                for row in cast("list[dict[str, str | int]]", reply or [])
            }
            for reply in replies
        ]

    def _worker_keys(self, consumers: Iterable[str]) -> list[Arg]:
        """The keys of our workers' registrations."""
        return [self.keys.worker(name) for name in consumers if _is_ours(name)]

    async def _call(self, *command: Arg) -> Reply:
        """The reply; None for a key that is missing, of another type or without the group."""
        (reply,) = await collect([self._connection.call(*command)], none_if_refused=True)
        return reply

    async def worker_info(self, consumers: Mapping[str, int]) -> list[RegisteredWorker]:
        """The registrations and running jobs of these consumers, in their order."""
        time_call = self._connection.call("TIME")
        calls = [
            self._connection.run(_WORKER_INFO, (self.keys.queue,), (name, _MAX_RUNNING))
            for name in consumers
        ]
        time, *answers = await collect([time_call, *calls])
        now_ms = server_ms(time)
        return [
            _read_worker(name, idle_ms, now_ms, answer)
            for (name, idle_ms), answer in zip(consumers.items(), answers, strict=True)
        ]


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _is_ours(consumer: str) -> bool:
    return consumer.startswith(contract.CONSUMER_PREFIX)


def _queues(registrations: Iterable[Registration]) -> list[str]:
    """Their queues, each once, in this order."""
    return list(dict.fromkeys(each.queue for each in registrations))


def _read_worker(name: str, idle_ms: int, now_ms: int, answer: Reply) -> RegisteredWorker:
    flat, running = cast("tuple[list[str], list[str]]", answer)
    fields = pairs(flat)
    seen_ms = number(fields.get(WorkerField.SEEN_TS))
    return RegisteredWorker(
        name=readable(name),
        ours=_is_ours(name),
        host=readable(fields.get(WorkerField.HOST, "")),
        pid=number(fields.get(WorkerField.PID)),
        version=readable(fields.get(WorkerField.VERSION, "")),
        slots=number(fields.get(WorkerField.SLOTS)),
        tasks=tuple(
            sorted(
                readable(field.removeprefix(TASK_FIELD))
                for field in fields
                if field.startswith(TASK_FIELD)
            )
        ),
        serves=read_served_queues(fields.get(WorkerField.SERVES, "")),
        started_ms=number(fields.get(WorkerField.STARTED_TS)),
        heartbeat_age_ms=idle_ms if seen_ms is None else max(0, now_ms - seen_ms),
        running=tuple(
            RunningJob(*map(readable, running[at : at + 3]), since_ms=number(running[at + 3]) or 0)
            for at in range(0, len(running), 4)
        ),
        missing_requirements=read_missing_requirements(fields.get(WorkerField.LACKS, "")),
        queues=tuple(readable(fields.get(WorkerField.QUEUES, "")).split()),
    )


class _TaskText(msgspec.Struct):
    schema: msgspec.Raw = msgspec.Raw(b"null")
    example: msgspec.Raw = msgspec.Raw(b"null")
    queue: str = DEFAULT_QUEUE


_decode_task: Final = bounded(msgspec.json.Decoder(_TaskText).decode)


def _read_task(name: str, text: str, started_ms: int = 0) -> Registration:
    try:
        task = _decode_task(text)
    except (msgspec.DecodeError, ValueError):
        return Registration(TaskDefinition(name), DEFAULT_QUEUE, started_ms)
    schema, example = bytes(task.schema).decode(), bytes(task.example).decode()
    definition = TaskDefinition(
        name, "" if schema == "null" else schema, "" if example == "null" else example
    )
    queue = task.queue if contract.QUEUE_NAME.fullmatch(task.queue) else DEFAULT_QUEUE
    return Registration(definition, queue, started_ms)


def _schemas(
    live: Mapping[str, Sequence[Registration]], remembered: Mapping[str, Registration]
) -> dict[str, tuple[str, ...]]:
    """The different schemas of each task; without tasks that some worker has without a schema."""
    found = {task: {each.definition.schema_json} for task, each in remembered.items()}
    for task, registrations in live.items():
        found.setdefault(task, set()).update(each.definition.schema_json for each in registrations)
    return {task: tuple(texts) for task, texts in found.items() if "" not in texts}


def _merged(first: TaskDefinition | None, second: TaskDefinition | None) -> TaskDefinition:
    """The schema and the example of `first`, and those of `second` where `first` has none."""
    assert first is not None or second is not None
    if first is None or second is None:
        return cast(TaskDefinition, first or second)
    return TaskDefinition(
        first.name,
        first.schema_json or second.schema_json,
        first.example_json or second.example_json,
    )
