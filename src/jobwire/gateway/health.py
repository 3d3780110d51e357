"""/livez, /readyz and /version.

Each feature adds checks of its parts. A supervisor (`jobwire up`) adds the state of its processes,
so that /readyz reports `restarting` instead of `down`. A feature may also report remote health:
requirements that workers miss. These are listed as `degraded`; the gateway stays ready.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from jobwire.api import gateway as api
from jobwire.api.problems import NOT_READY
from jobwire.gateway.cached_value import CachedValue
from jobwire.gateway.problems import Problem, retry_after
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.route import Route, reply, serve
from jobwire.log import component

_log = component("gateway.health")
State = Literal["ready", "degraded", "starting", "restarting", "down"]
_SERVING: Final = ("ready", "degraded")
"""States in which requests are served; with `degraded` some of them fail."""
_TIMEOUT_S: Final = 2.0
# /readyz is public: checks run at most this often, however many requests arrive.
_FRESH_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class HealthStatus:
    """The state of one part; `note` is what is wrong, `fix` what to do about it."""

    state: State
    note: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """The check of one part."""

    name: str
    run: Callable[[], Awaitable[HealthStatus]]
    quiet: bool = False
    """Listed only while it is not ready: a limit, not a part of its own."""


Supervised = Callable[[], Mapping[str, HealthStatus]]
RemoteHealth = Callable[[], Awaitable[Mapping[str, HealthStatus]]]
"""The parts of other processes that are not ready; empty if all are."""


async def _run_check(check: Check) -> api.PartHealth:
    began_s = time.perf_counter()
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            health = await check.run()
    except TimeoutError:
        health = HealthStatus("down", f"no answer within {_TIMEOUT_S:g} s", "see its log")
    except Exception:  # noqa: BLE001 - a fault in one check must not hide the other parts
        _log.exception(
            "health check failed part=%(part)s; the part is reported as down", {"part": check.name}
        )
        health = HealthStatus("down", "its check failed", "see the log of the gateway")
    latency_ms = round((time.perf_counter() - began_s) * 1000, 3)
    return api.PartHealth(check.name, health.state, latency_ms, health.note, health.fix)


async def _read_remote(read: RemoteHealth) -> Mapping[str, HealthStatus]:
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            return await read()
    except Exception:  # noqa: BLE001 - the backend that it is read from has a check of its own
        _log.debug("remote health could not be read; it is omitted", exc_info=True)
        return {}


def _merged(
    checked: Sequence[api.PartHealth],
    supervised: Mapping[str, HealthStatus],
    remote: Sequence[Mapping[str, HealthStatus]],
) -> list[api.PartHealth]:
    """The checked parts; where a part is not ready, the state that its supervisor reports; then the
    parts that only other processes report."""
    parts = {part.name: part for part in checked}
    for name, health in supervised.items():
        own = parts.get(name)
        if own is None or (own.state != "ready" and health.state != "ready"):
            parts[name] = api.PartHealth(name, health.state, None, health.note, health.fix)
    for statuses in remote:
        for name, health in statuses.items():
            parts.setdefault(
                name, api.PartHealth(name, health.state, None, health.note, health.fix)
            )
    return list(parts.values())


async def _event_loop() -> HealthStatus:
    """The gateway's own check: its latency is that of the event loop."""
    await asyncio.sleep(0)
    return HealthStatus("ready")


def routes(
    version: str,
    checks: Sequence[Check],
    supervised: Supervised | None = None,
    remote: Sequence[RemoteHealth] = (),
) -> list[Route]:
    """The three public routes."""
    all_checks = [Check("gateway", _event_loop), *checks]
    cached: CachedValue[list[api.PartHealth]] = CachedValue(_FRESH_S)
    alive = reply(api.Alive("alive"))
    this = reply(api.VersionInfo("jobwire", version))

    async def read_parts() -> list[api.PartHealth]:
        checking = asyncio.gather(*map(_run_check, all_checks))
        remotes = asyncio.gather(*map(_read_remote, remote))
        checked = [
            part
            for check, part in zip(all_checks, await checking, strict=True)
            if not check.quiet or part.state != "ready"
        ]
        return _merged(checked, supervised() if supervised else {}, await remotes)

    async def livez(_request: HttpRequest) -> Reply:
        return alive

    async def readyz(_request: HttpRequest) -> api.Ready:
        parts = await cached.get(read_parts)
        not_ready = [part for part in parts if part.state not in _SERVING]
        if not_ready:
            raise Problem(
                NOT_READY,
                ", ".join(f"{part.name} is {part.state}" for part in not_ready),
                headers=retry_after(1),
                more={"parts": parts},
            )
        all_ready = all(part.state == "ready" for part in parts)
        return api.Ready("ready" if all_ready else "degraded", version, parts)

    async def read_version(_request: HttpRequest) -> Reply:
        return this

    return [
        serve(api.LIVEZ, livez),
        serve(api.READYZ, readyz),
        serve(api.VERSION, read_version),
    ]
