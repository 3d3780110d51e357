"""Is it alive, is it ready, which version: /livez, /readyz, /version.

Each room hands in checks; a check asks one part and never raises. Whoever supervises the parts
hands in what it knows of them, so that /readyz can say "starting again" instead of "gone". And a
room may know of things that are lacking elsewhere, as workers tell it: they are named too, but they
are no reason to send nobody here.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from jobwire.gateway.problems import NOT_READY, Problem, retry_after
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.routes import Doc, HotRoute
from jobwire.log import component

_log = component("gateway.health")
State = Literal["ready", "degraded", "starting", "restarting", "down"]
_SERVING: Final = ("ready", "degraded")
"""With these it takes requests: `degraded` means that some of them will fail."""
_PATIENCE_S: Final = 2.0
# /readyz is open to all: however often it is asked, the parts are not asked more often than this.
_FRESH_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class HealthStatus:
    """How one part is; `note` says what is wrong, `cure` what to do about it."""

    state: State
    note: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """How to ask one part."""

    name: str
    ask: Callable[[], Awaitable[HealthStatus]]


class PartHealth(msgspec.Struct, frozen=True, omit_defaults=True):
    """One part, as /readyz shows it."""

    name: str
    state: State
    latency_ms: float | None = None
    note: str = ""
    what_to_do: str = ""


class Ready(msgspec.Struct, frozen=True):
    """Every part is ready, or can at least do some of its work."""

    status: Literal["ready", "degraded"]
    version: str
    parts: list[PartHealth]


class Alive(msgspec.Struct, frozen=True):
    """The process answers."""

    status: Literal["alive"]


class VersionInfo(msgspec.Struct, frozen=True):
    """Which program this is."""

    name: Literal["jobwire"]
    version: str


Supervised = Callable[[], Mapping[str, HealthStatus]]
RemoteHealth = Callable[[], Awaitable[Mapping[str, HealthStatus]]]
"""What a room knows of parts that are not well elsewhere; nothing where all are."""


class Readiness:
    """Asks every part, all at the same time, and remembers the answer for a moment."""

    def __init__(
        self, checks: Sequence[Check], supervised: Supervised, told: Sequence[RemoteHealth]
    ) -> None:
        self._checks = checks
        self._told = told
        self._supervised = supervised
        self._asking = asyncio.Lock()
        self._parts: list[PartHealth] = []
        self._asked_at_s = float("-inf")

    async def parts(self) -> list[PartHealth]:
        async with self._asking:
            if time.monotonic() - self._asked_at_s > _FRESH_S:
                answers = asyncio.gather(*map(_ask, self._checks))
                told = asyncio.gather(*map(_listen, self._told))
                own = _merged(await answers, self._supervised())
                self._parts = _and_told(own, await told)
                self._asked_at_s = time.monotonic()
            return self._parts


async def _ask(check: Check) -> PartHealth:
    began_s = time.perf_counter()
    try:
        async with asyncio.timeout(_PATIENCE_S):
            health = await check.ask()
    except TimeoutError:
        health = HealthStatus("down", f"no answer within {_PATIENCE_S:g} s", "see its log")
    except Exception:  # noqa: BLE001 - a room's code: its fault is its own part's
        _log.exception("the check of %s broke", check.name)
        health = HealthStatus("down", "its check broke", "see the log of the gateway")
    latency_ms = round((time.perf_counter() - began_s) * 1000, 3)
    return PartHealth(check.name, health.state, latency_ms, health.note, health.fix)


async def _listen(told: RemoteHealth) -> Mapping[str, HealthStatus]:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            return await told()
    except Exception:  # noqa: BLE001 - what it knows stands on parts that have checks of their own
        _log.debug("what is lacking elsewhere could not be asked", exc_info=True)
        return {}


def _and_told(
    own: Sequence[PartHealth], told: Sequence[Mapping[str, HealthStatus]]
) -> list[PartHealth]:
    """What others tell comes last, and changes nothing about parts that answer for themselves."""
    parts = {part.name: part for part in own}
    for each in told:
        for name, health in each.items():
            parts.setdefault(name, PartHealth(name, health.state, None, health.note, health.fix))
    return list(parts.values())


def _merged(
    answers: Sequence[PartHealth], supervised: Mapping[str, HealthStatus]
) -> list[PartHealth]:
    """What the parts say of themselves, and what their supervisor knows better."""
    merged = {part.name: part for part in answers}
    for name, health in supervised.items():
        own = merged.get(name)
        if own is None or (own.state != "ready" and health.state != "ready"):
            merged[name] = PartHealth(name, health.state, None, health.note, health.fix)
    return list(merged.values())


def _nobody_supervises() -> Mapping[str, HealthStatus]:
    return {}


async def _event_loop() -> HealthStatus:
    """The gateway's own check: its latency is how long a turn of the event loop takes."""
    await asyncio.sleep(0)
    return HealthStatus("ready")


def routes(
    version: str,
    checks: Sequence[Check],
    supervised: Supervised | None = None,
    told: Sequence[RemoteHealth] = (),
) -> list[HotRoute]:
    """The three routes, open to all."""
    own = Check("gateway", _event_loop)
    readiness = Readiness([own, *checks], supervised or _nobody_supervises, told)
    alive = Reply(msgspec.json.encode(Alive("alive")))
    versioned = Reply(msgspec.json.encode(VersionInfo("jobwire", version)))

    async def livez(_: HttpRequest) -> Reply:
        return alive

    async def readyz(_: HttpRequest) -> Reply:
        parts = await readiness.parts()
        if all(part.state in _SERVING for part in parts):
            is_whole = all(part.state == "ready" for part in parts)
            ready = Ready("ready" if is_whole else "degraded", version, parts)
            return Reply(msgspec.json.encode(ready))
        waiting = ", ".join(
            f"{part.name} is {part.state}" for part in parts if part.state not in _SERVING
        )
        raise Problem(
            NOT_READY,
            waiting,
            headers=retry_after(1),
            more={"parts": [msgspec.to_builtins(part) for part in parts]},
        )

    async def version_(_: HttpRequest) -> Reply:
        return versioned

    example = PartHealth("valkey", "ready", 0.4)
    return [
        HotRoute(
            "GET",
            "/livez",
            "public",
            livez,
            Doc(
                summary="Is the process alive?",
                tag="health",
                answer=Alive,
                example=_plain(Alive("alive")),
            ),
        ),
        HotRoute(
            "GET",
            "/readyz",
            "public",
            readyz,
            Doc(
                summary="Is every part ready? If not, each says what to do. `degraded` serves.",
                tag="health",
                answer=Ready,
                example=_plain(Ready("ready", version, [example])),
                problems=(NOT_READY,),
            ),
        ),
        HotRoute(
            "GET",
            "/version",
            "public",
            version_,
            Doc(
                summary="Which program and version is this?",
                tag="health",
                answer=VersionInfo,
                example=_plain(VersionInfo("jobwire", version)),
            ),
        ),
    ]


def _plain(value: msgspec.Struct) -> object:
    return msgspec.to_builtins(value)
