"""A small system: named counters in Valkey, with routes, health, metrics, schema and a check.

    jobwire up --only jobs,examples.counters:SYSTEM
    curl -X POST localhost:8080/v1/counters/visits

docs/extending.md goes through it.
"""

import contextlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import replace

import msgspec
from prometheus_client import Counter

from jobwire.api.operation import Operation
from jobwire.api.problems import UNAVAILABLE, ProblemKind
from jobwire.doctor import Finding
from jobwire.gateway.feature import Feature
from jobwire.gateway.health import Check, HealthStatus
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.route import Route, serve
from jobwire.job.errors import BackendUnavailable
from jobwire.settings import Loaded
from jobwire.systems.backends import known_valkey
from jobwire.systems.system import Backend, GatewayContext, SchemaDocument, System
from jobwire.valkey import Arg, Connection, ServerError, ValkeyError

KEY = "counters"


class Count(msgspec.Struct):
    """One counter."""

    name: str
    value: int


BAD_NAME = ProblemKind("bad_counter_name", 422, "a name has 1 to 40 letters from a to z")
READ = Operation(
    "GET",
    "/v1/counters/{name}",
    "read",
    "Read a counter",
    tag="counters",
    answer=Count,
    example={"name": "visits", "value": 7},
    problems=(UNAVAILABLE,),
)
INCREMENT = replace(
    READ,
    method="POST",
    access="submit",
    summary="Increment a counter",
    problems=(BAD_NAME, UNAVAILABLE),
)


class Counters:
    """The counters of one server; BackendUnavailable becomes a 503."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def _call(self, command: str, *arguments: Arg) -> int:
        try:
            return int(str(await self._connection.call(command, KEY, *arguments) or 0))
        except ValkeyError as error:
            raise BackendUnavailable(str(error)) from error

    async def value(self, name: str) -> int:
        return await self._call("HGET", name)

    async def increment(self, name: str) -> int:
        return await self._call("HINCRBY", name, 1)

    async def health(self) -> HealthStatus:
        try:
            await self._connection.call("HLEN", KEY)
        except ServerError:
            return HealthStatus("down", f"the key {KEY} has another type", f"DEL {KEY}")
        except ValkeyError as error:
            return HealthStatus("down", str(error), "is the server running?")
        return HealthStatus("ready")


def _routes(counters: Counters, reads: Counter) -> Sequence[Route]:
    """An endpoint is a function of the request and the path's parameters; it returns the answer."""

    async def show(_request: HttpRequest, name: str) -> Count:
        reads.inc()
        return Count(name, await counters.value(name))

    async def increment(_request: HttpRequest, name: str) -> Count:
        if not re.fullmatch("[a-z]{1,40}", name):
            raise Problem(BAD_NAME)
        return Count(name, await counters.increment(name))

    return [serve(READ, show), serve(INCREMENT, increment)]


@contextlib.asynccontextmanager
async def _feature(context: GatewayContext) -> AsyncGenerator[Feature]:
    """What the gateway serves while the block is open."""
    counters = Counters(context.backends.valkey)
    reads = Counter("jobwire_counters_reads", "Counters that were read.", registry=None)
    yield Feature(
        name="counters",
        routes=_routes(counters, reads),
        checks=[Check("counters", counters.health)],
        collectors=[reads],
    )


async def _doctor_checks(loaded: Loaded) -> AsyncIterator[Finding]:
    if (known := known_valkey(loaded)) is None:
        return
    with contextlib.suppress(ValkeyError):  # an unreachable server is a finding of its own
        async with Connection.open(known.config, name="jobwire-doctor") as connection:
            yield Finding("counters", "ok", f"{await connection.call('HLEN', KEY)} counters")


def _schema() -> SchemaDocument:
    _, definitions = msgspec.json.schema_components([Count])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": definitions}


SYSTEM = System(
    name="counters",
    needs=frozenset({Backend.VALKEY}),
    feature=_feature,
    doctor_checks=_doctor_checks,
    schema=_schema,
    example="curl -X POST localhost:8080/v1/counters/visits",
)
