"""The web page in a gateway, and what only its operator may read: settings and backends.

/               the page (O-4), static files of `jobwire.page`
/v1/settings    every setting, its value and its source; secrets are masked (admin)
/v1/backends    what the servers report about themselves, judged as by `jobwire doctor` (admin)
"""

import time
from collections.abc import Sequence
from importlib.resources import files
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from fastapi import APIRouter, Response
from msgspec import Meta, Struct

from jobwire.doctor.finding import Finding, Verdict
from jobwire.gateway import static_files
from jobwire.gateway.cached_value import CachedValue
from jobwire.gateway.feature import Feature
from jobwire.gateway.router import documented, json_response, new_router
from jobwire.gateway.routes import Doc, HotRoute
from jobwire.settings import Loaded
from jobwire.wiring.backends import Backends

_FRESH_S: Final = 5.0
"""How long findings are reused, however many pages are open."""
_CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src {connect}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""No inline code, nothing from elsewhere; pictures that the page has fetched are `blob:`."""


class SettingBody(Struct, frozen=True):
    """One setting."""

    name: str
    value: Annotated[Any, Meta(description="secrets are masked")]
    origin: Annotated[str, Meta(description="where the value comes from; `default` if not set")]


class SettingsBody(Struct, frozen=True):
    """All settings of this gateway."""

    settings: list[SettingBody]


class FindingBody(Struct, frozen=True):
    """One checked property of a backend."""

    check: str
    verdict: Verdict
    found: str
    why: str
    fix: str


class BackendsBody(Struct, frozen=True):
    """What was found; `checked_ts` is when."""

    checked_ts: int
    findings: list[FindingBody]


SETTINGS: Final = Doc(
    summary="Every setting, its value and its source",
    tag="fleet",
    description="As `jobwire config`: secrets are masked.",
    answer=SettingsBody,
    example=SettingsBody([SettingBody("worker.slots", 8, "JOBWIRE_WORKER_SLOTS")]),
)
BACKENDS: Final = Doc(
    summary="What the servers report about themselves, and what to do",
    tag="fleet",
    description="As `jobwire doctor`, for what the gateway can read over its own connection.",
    answer=BackendsBody,
    example=BackendsBody(
        1767225600000, [FindingBody("valkey eviction", "ok", "never evicts", "", "")]
    ),
)


def page_routes(prefix: str = "/", upload_url: str = "") -> list[HotRoute]:
    """The page's files; `upload_url` is where an upload gateway on another host takes photos."""
    parts = urlsplit(upload_url)
    connect = f"'self' {parts.scheme}://{parts.netloc}" if parts.netloc else "'self'"
    csp = _CSP.format(connect=connect)
    return static_files.routes(prefix, files("jobwire.page") / "static", csp=csp)


def page_feature(loaded: Loaded, backends: Backends) -> Feature:
    """The page and its two routes of its own."""
    return Feature(
        name="page",
        hot=page_routes(upload_url=loaded.settings.images.upload_url),
        routers=[_router(loaded, backends)],
    )


def _router(loaded: Loaded, backends: Backends) -> APIRouter:
    routes = new_router("fleet")
    settings = SettingsBody([SettingBody(*each) for each in loaded.shown()])
    found: CachedValue[BackendsBody] = CachedValue(_FRESH_S)

    async def examine() -> BackendsBody:
        findings = [
            FindingBody(each.check, each.verdict, each.found, each.why, each.fix)
            for each in await _examine(backends)
        ]
        return BackendsBody(int(time.time() * 1000), findings)

    @routes.get("/v1/settings", openapi_extra=documented("admin", SETTINGS))
    async def read_settings() -> Response:
        return json_response(settings)

    @routes.get("/v1/backends", openapi_extra=documented("admin", BACKENDS))
    async def read_backends() -> Response:
        return json_response(await found.get(examine))

    return routes


async def _examine(backends: Backends) -> Sequence[Finding]:
    connection = backends.valkey
    if connection is None:
        return []
    from jobwire.doctor.valkey import judge
    from jobwire.valkey import HealthChecker, ValkeyError

    try:
        health = await HealthChecker(connection).summary()
    except ValkeyError as error:
        why, fix = "jobs cannot be submitted or read", "is it running? see its log"
        return [Finding("valkey", "unreachable", str(error), why, fix)]
    return list(judge(connection.config, health))
