"""Tasks, cron entries and the load over HTTP (J-10, G-28), and what workers miss (J-51)."""

from collections import Counter as Counted
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from fastapi import APIRouter, Query, Response
from msgspec import Raw
from pydantic.json_schema import SkipJsonSchema

from jobwire.gateway.health import HealthStatus
from jobwire.gateway.parameters import matching
from jobwire.gateway.router import documented, json_response, new_router
from jobwire.job.messages import MissingRequirement
from jobwire.valkey import Connection
from jobwire.wires.streams.contract import StreamsKeys
from jobwire.wires.streams.cron_list import cron_list
from jobwire.wires.streams.depth import depth
from jobwire.wires.streams.http import docs
from jobwire.wires.streams.http.fleet_schemas import (
    CronBody,
    CronsBody,
    ScaleBody,
    TaskBody,
    TasksBody,
)
from jobwire.wires.streams.registry import WorkerRegistry

_MOST_PARTS: Final = 20
DEFAULT_SLOTS: Final = 10
"""Of a worker, as in its settings."""
_Slots = Annotated[
    int | SkipJsonSchema[None],
    matching(r"[1-9]\d{0,5}", "must be a number from 1 to 999999"),
    Query(
        description="of one worker; without it those of the largest live worker, or 10",
        json_schema_extra={"minimum": 1, "maximum": 999_999, "example": 10},
    ),
]


def router(registry: WorkerRegistry, connection: Connection, keys: StreamsKeys) -> APIRouter:
    """The routes."""
    routes = new_router("fleet")

    @routes.get("/v1/tasks", openapi_extra=documented("read", docs.TASKS))
    async def list_tasks() -> Response:
        listed = [
            TaskBody(info.name, live, queue, _raw(info.schema_json), _raw(info.example_json))
            for info, live, queue in await registry.tasks()
        ]
        return json_response(TasksBody(listed))

    @routes.get("/v1/crons", openapi_extra=documented("read", docs.CRONS))
    async def list_crons() -> Response:
        listed = [CronBody(*each) for each in await cron_list(connection, keys)]
        return json_response(CronsBody(listed))

    @routes.get("/v1/scale", openapi_extra=documented("read", docs.SCALE))
    async def read_scale(slots: _Slots = None) -> Response:
        found = await depth(connection, keys, await registry.queue_names())
        of_one = slots or (await registry.summary()).most_slots or DEFAULT_SLOTS
        waiting = found.waiting + found.due_soon
        body = ScaleBody(
            waiting=waiting,
            running=found.running,
            slots=of_one,
            oldest_waiting_s=(found.oldest_waiting_ms or 0) / 1000,
            load=(waiting + found.running) / of_one,
        )
        return json_response(body)

    return routes


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
