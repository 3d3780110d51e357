"""The web page in a gateway, and what only its operator may read: settings and backends.

/               the page (O-4), static files of `jobwire.page`
/v1/settings    every setting, its value and its source; secrets are masked (admin)
/v1/backends    what the servers report about themselves, judged as by `jobwire doctor` (admin)
"""

import time
from collections.abc import Sequence
from typing import Final

from msgspec import structs

from jobwire.api import gateway as api
from jobwire.doctor.finding import Finding
from jobwire.gateway.cached_value import CachedValue
from jobwire.gateway.feature import Feature
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.route import Route, serve
from jobwire.gateway.settings import ALL_TENANTS
from jobwire.page.files import page_routes
from jobwire.settings import Loaded
from jobwire.systems.backends import Backends

_FRESH_S: Final = 5.0
"""How long findings are reused, however many pages are open."""


def page_feature(loaded: Loaded, backends: Backends) -> Feature:
    """The page and its two routes of its own."""
    return Feature(
        name="page",
        routes=[
            *page_routes(upload_url=loaded.settings.images.upload_url),
            *_operator_routes(loaded, backends),
        ],
    )


def _operator_routes(loaded: Loaded, backends: Backends) -> list[Route]:
    shown = [api.Setting(*each) for each in loaded.shown()]
    found: CachedValue[api.BackendFindings] = CachedValue(_FRESH_S)

    async def examine() -> api.BackendFindings:
        findings = [
            api.BackendFinding(each.check, each.verdict, each.found, each.why, each.fix)
            for each in await _examine(backends)
        ]
        return api.BackendFindings(int(time.time() * 1000), findings)

    async def read_settings(request: HttpRequest) -> api.SettingList:
        tenant = request.principal.tenant
        if tenant == ALL_TENANTS or not loaded.settings.gateway.has_keys:
            return api.SettingList(shown)
        return api.SettingList([_for_tenant(each, tenant) for each in shown])

    async def read_backends(_request: HttpRequest) -> api.BackendFindings:
        return await found.get(examine)

    return [serve(api.SETTINGS, read_settings), serve(api.BACKENDS, read_backends)]


def _for_tenant(setting: api.Setting, tenant: str) -> api.Setting:
    """Without what names other tenants: their keys and their queues."""
    own: list[object]
    if setting.name == "gateway.keys":
        own = [key for key in setting.value if key["tenant"] == tenant]
    elif setting.name == "queues.tenants":
        own = [each for each in setting.value if each.rpartition("=")[2] == tenant]
    else:
        return setting
    return structs.replace(setting, value=own)


async def _examine(backends: Backends) -> Sequence[Finding]:
    connection = backends.valkey
    if connection is None:
        return []
    from jobwire.doctor.valkey import judge, writes
    from jobwire.valkey import HealthChecker, ValkeyError

    try:
        checker = HealthChecker(connection)
        health = await checker.summary()
        written = await writes(checker, backends.settings.jobs.write_probe)
    except ValkeyError as error:
        why, fix = "jobs cannot be submitted or read", "is it running? see its log"
        return [Finding("valkey", "unreachable", str(error), why, fix)]
    return [*judge(connection.config, health), written]
