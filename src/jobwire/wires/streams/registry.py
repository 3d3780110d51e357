"""Who is there, and what they can do (J-10, O-11).

The gateway has one. Everything is read from the server when asked for; all that is kept is which
tasks live workers have, for a moment, so that submitting need not ask each time.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

import msgspec

from jobwire.job.messages import MissingRequirement, TaskDefinition
from jobwire.valkey import Connection, Reply, ServerError, ValkeyError
from jobwire.wires.streams import contract
from jobwire.wires.streams.codec import number, read_missing_requirements, readable
from jobwire.wires.streams.contract import CARD_TASK, StreamsKeys, WorkerField
from jobwire.wires.streams.replies import backend_unavailable, collect, server_ms, wire_text
from jobwire.wires.streams.scripts import script
from jobwire.wires.streams.settings import StreamsSettings

_WORKER_INFO: Final = script("worker_info")
_MOST_HELD: Final = 200
"""Jobs of one worker that are shown."""
_FRESH_S: Final = 5.0
"""How long a task that a worker had is taken to be there still."""
_AGAIN_S: Final = 0.1
"""However many ask for tasks that nobody has: the workers are not asked more often than this."""


class RunningJob(NamedTuple):
    """What a slot of a worker runs."""

    job_id: str
    task: str
    tenant: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class RegisteredWorker:
    """One worker; of one that is not ours only the name and what it holds are known."""

    name: str
    ours: bool
    host: str
    pid: int | None
    version: str
    slots: int | None
    tasks: tuple[str, ...]
    started_ms: int | None
    silent_ms: int
    """Since its last heartbeat; of a foreign one: since it last asked for anything."""
    holding: tuple[RunningJob, ...]
    missing_requirements: tuple[MissingRequirement, ...]


class RegisteredTask(NamedTuple):
    """A task that can be asked for."""

    definition: TaskDefinition
    live: bool


class WorkerRegistry:
    def __init__(
        self,
        connection: Connection,
        settings: StreamsSettings,
        cards: Iterable[TaskDefinition] = (),
    ) -> None:
        """`cards` are what is known of the contract's own tasks while no worker is there."""
        self._connection = connection
        self._keys = StreamsKeys(settings.key_prefix)
        known = {card.name: card for card in cards}
        self._declared = {
            name: known.get(name, TaskDefinition(name))
            for name in (*contract.SOURCE_TASKS, *settings.tasks)
        }
        self._live: frozenset[str] = frozenset()
        self._looked_at_s = float("-inf")
        self._looking = asyncio.Lock()

    # Tasks

    def has(self, task: str) -> bool:
        """Whether the task is known without asking anybody."""
        if task in self._declared:
            return True
        return task in self._live and _now_s() - self._looked_at_s < _FRESH_S

    async def unknown_among(self, tasks: Iterable[str]) -> set[str]:
        """Those of `tasks` that nobody has, after a look at the workers if one is needed."""
        missing = {task for task in tasks if not self.has(task)}
        if missing:
            await self._look()
        return {task for task in missing if not self.has(task)}

    async def _look(self) -> None:
        asked_at_s = _now_s()
        async with self._looking:
            # Whoever waited here for another's look has its answer.
            if self._looked_at_s < asked_at_s:
                await asyncio.sleep(self._looked_at_s + _AGAIN_S - asked_at_s)
                workers = await self._worker_info(await self._consumers())
                self._live = frozenset(task for worker in workers for task in worker.tasks)
                self._looked_at_s = _now_s()

    async def tasks(self) -> list[RegisteredTask]:
        """All that can be asked for: the contract's and the settings' first, by name the rest."""
        ours = [name for name in await self._consumers() if _is_ours(name)]
        calls = [self._connection.call("HGETALL", self._keys.worker(name)) for name in ours]
        live: dict[str, TaskDefinition] = {}
        for card in await collect(calls):
            for field, said in cast("dict[str, str]", card).items():
                if field.startswith(CARD_TASK):
                    name = readable(field.removeprefix(CARD_TASK))
                    live[name] = _better(_read_card(name, said), live.get(name))
        seen = [
            RegisteredTask(_better(live.get(name), card), name in live)
            for name, card in self._declared.items()
        ]
        more = sorted(live.keys() - self._declared.keys())
        return seen + [RegisteredTask(live[name], True) for name in more]

    # Workers

    async def workers(self) -> list[RegisteredWorker]:
        """Everybody in the group, ours and others."""
        found = await self._worker_info(await self._consumers())
        # A consumer's name outlives its worker: one of ours without a card that holds nothing is
        # only a name.
        return [worker for worker in found if not worker.ours or worker.host or worker.holding]

    async def missing_requirements(self) -> list[tuple[MissingRequirement, ...]]:
        """What each live worker of ours lacks: nothing, mostly."""
        ours = [name for name in await self._consumers() if _is_ours(name)]
        fields = (WorkerField.SEEN_TS, WorkerField.LACKS)
        calls = [self._connection.call("HMGET", self._keys.worker(name), *fields) for name in ours]
        rows = cast("list[tuple[str | None, str | None]]", await collect(calls))
        return [read_missing_requirements(lacks or "") for seen, lacks in rows if seen]

    async def _consumers(self) -> dict[str, int]:
        """Name → milliseconds since it was last heard of."""
        try:
            reply = await self._connection.call(
                "XINFO", "CONSUMERS", self._keys.queue, contract.GROUP
            )
        except ServerError:
            return {}  # no queue yet, or no group
        except ValkeyError as error:
            raise backend_unavailable(error) from error
        rows = cast("list[dict[str, str | int]]", reply)
        return {cast(str, row["name"]): cast(int, row["idle"]) for row in rows}

    async def _worker_info(self, consumers: Mapping[str, int]) -> list[RegisteredWorker]:
        time_asked = self._connection.call("TIME")
        visits = [
            self._connection.run(_WORKER_INFO, (self._keys.queue,), (wire_text(name), _MOST_HELD))
            for name in consumers
        ]
        time, *answers = await collect([time_asked, *visits])
        now_ms = server_ms(time)
        return [
            _read_worker(name, idle_ms, now_ms, answer)
            for (name, idle_ms), answer in zip(consumers.items(), answers, strict=True)
        ]


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _is_ours(consumer: str) -> bool:
    return consumer.startswith(contract.CONSUMER_PREFIX)


def _read_worker(name: str, idle_ms: int, now_ms: int, answer: Reply) -> RegisteredWorker:
    flat, held = cast("tuple[list[str], list[str]]", answer)
    card = _pairs(flat)
    seen_ms = number(card.get(WorkerField.SEEN_TS))
    return RegisteredWorker(
        name=readable(name),
        ours=_is_ours(name),
        host=readable(card.get(WorkerField.HOST, "")),
        pid=number(card.get(WorkerField.PID)),
        version=readable(card.get(WorkerField.VERSION, "")),
        slots=number(card.get(WorkerField.SLOTS)),
        tasks=tuple(
            sorted(
                readable(field[len(CARD_TASK) :]) for field in card if field.startswith(CARD_TASK)
            )
        ),
        started_ms=number(card.get(WorkerField.STARTED_TS)),
        silent_ms=idle_ms if seen_ms is None else max(0, now_ms - seen_ms),
        holding=tuple(
            RunningJob(*map(readable, held[at : at + 3]), since_ms=number(held[at + 3]) or 0)
            for at in range(0, len(held), 4)
        ),
        missing_requirements=read_missing_requirements(card.get(WorkerField.LACKS, "")),
    )


class _CardTask(msgspec.Struct):
    schema: msgspec.Raw = msgspec.Raw(b"null")
    example: msgspec.Raw = msgspec.Raw(b"null")


def _read_card(name: str, said: str) -> TaskDefinition:
    try:
        task = msgspec.json.decode(said, type=_CardTask)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return TaskDefinition(name)
    schema, example = bytes(task.schema).decode(), bytes(task.example).decode()
    return TaskDefinition(
        name, "" if schema == "null" else schema, "" if example == "null" else example
    )


def _better(one: TaskDefinition | None, other: TaskDefinition | None) -> TaskDefinition:
    """What `one` says, and what `other` says where it says nothing."""
    assert one is not None or other is not None
    if one is None or other is None:
        return cast(TaskDefinition, one or other)
    return TaskDefinition(
        one.name, one.schema_json or other.schema_json, one.example_json or other.example_json
    )


def _pairs(flat: Sequence[str]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
