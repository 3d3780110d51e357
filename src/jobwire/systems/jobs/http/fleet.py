"""Tasks and the load over HTTP (J-10, G-28), and what workers miss (J-51)."""

from collections import Counter as Counted
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Raw

from jobwire.api import fleet as api
from jobwire.gateway.health import HealthStatus
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.route import Route, serve
from jobwire.job.messages import MissingRequirement
from jobwire.systems.jobs.any_shards import AnyReader, check_complete
from jobwire.systems.jobs.registry import WorkerRegistry

_MOST_PARTS: Final = 20
DEFAULT_SLOTS: Final = 10
"""Of a worker, as in its settings."""


def routes(registry: WorkerRegistry, reader: AnyReader) -> list[Route]:
    """The routes."""

    async def list_tasks(_request: HttpRequest) -> api.Tasks:
        listed = [
            api.TaskInfo(
                name=info.name,
                live=live,
                queue=queue,
                workers=workers,
                queues=list(queues),
                schema=_raw(info.schema_json),
                example=_raw(info.example_json),
            )
            for info, live, queue, workers, queues in await registry.tasks()
        ]
        return api.Tasks(listed)

    async def read_scale(_request: HttpRequest, query: api.ScaleFilter) -> api.Scale:
        found = await reader.depth(await registry.queue_names())
        check_complete(*found.incomplete)
        of_one = query.slots or (await registry.summary()).most_slots or DEFAULT_SLOTS
        waiting = found.waiting + found.due_soon
        return api.Scale(
            waiting=waiting,
            running=found.running,
            slots=of_one,
            oldest_waiting_s=(found.oldest_waiting_ms or 0) / 1000,
            load=(waiting + found.running) / of_one,
        )

    return [
        serve(api.TASKS, list_tasks),
        serve(api.SCALE, read_scale),
    ]


async def missing_requirements(registry: WorkerRegistry) -> Mapping[str, HealthStatus]:
    """What live workers miss, for /readyz (J-51): jobs that need it fail, all others run."""
    return requirements_health(await registry.missing_requirements())


def requirements_health(workers: Sequence[Sequence[MissingRequirement]]) -> dict[str, HealthStatus]:
    """Each missing part once, with the number of workers that miss it. Pure."""
    first: dict[str, MissingRequirement] = {}
    count: Counted[str] = Counted()
    for requirements in workers:
        count.update({missing.part for missing in requirements})
        for missing in requirements:
            first.setdefault(missing.part, missing)
    return {
        part: HealthStatus(
            "degraded", f"{missing.wrong} ({count[part]} of {len(workers)} workers)", missing.fix
        )
        for part, missing in list(first.items())[:_MOST_PARTS]
    }


def _raw(text: str) -> Raw:
    return Raw(text.encode() or b"null")
