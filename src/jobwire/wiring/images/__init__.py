"""The system `images`: the API with its records, and the upload gateway with its photo pipeline.

    SYSTEM    both, in one gateway under `jobwire up`
    API       `jobwire images api`           UPLOADS   `jobwire images gateway`

Run apart, they share only Valkey, the bucket and the public key of the tokens.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from jobwire.wiring.systems import Backend, GatewayContext, SchemaDocument, System

if TYPE_CHECKING:
    from jobwire.doctor import Finding
    from jobwire.gateway.feature import Feature
    from jobwire.settings import Loaded, Settings

_LIBRARIES: Final = ("aiosqlite", "alembic", "jwt", "numpy", "pyvips", "sqlalchemy")


def missing_libraries() -> list[str]:
    """The libraries of the extra `images` that are not installed."""
    return [name for name in _LIBRARIES if find_spec(name) is None]


@contextlib.asynccontextmanager
async def _feature(context: GatewayContext) -> AsyncGenerator[Feature]:
    """Both sides as one feature; without their libraries only the reason, in /readyz."""
    if missing := missing_libraries():
        yield _not_installed(missing)
        return
    async with _uploads(context) as uploads, _api(context) as api:
        yield merged("images", uploads, api)


@contextlib.asynccontextmanager
async def _api(context: GatewayContext, *, apart: bool = False) -> AsyncGenerator[Feature]:
    from jobwire.wiring.images.api import images_api, upload_address

    async with images_api(
        context.settings,
        context.backends.valkey,
        context.backends.bucket,
        context.backends.database_url,
        context.streams,
        upload_address(context.settings, apart=apart),
    ) as feature:
        yield feature


@contextlib.asynccontextmanager
async def _uploads(context: GatewayContext, *, eager: bool = False) -> AsyncGenerator[Feature]:
    from jobwire.wiring.images.uploads import image_uploads

    async with image_uploads(
        context.settings,
        context.backends.valkey,
        context.backends.bucket,
        context.streams,
        eager=eager,
    ) as feature:
        yield feature


def merged(name: str, *features: Feature) -> Feature:
    """Several features as one."""
    from jobwire.gateway.feature import Feature

    (scrape,) = [each.scrape for each in features if each.scrape] or [None]
    (view,) = [each.view for each in features if each.view] or [None]
    return Feature(
        name=name,
        hot=[route for each in features for route in each.hot],
        routers=[router for each in features for router in each.routers],
        checks=[check for each in features for check in each.checks],
        collectors=[collector for each in features for collector in each.collectors],
        scrape=scrape,
        view=view,
    )


def _not_installed(missing: list[str]) -> Feature:
    from jobwire.gateway.feature import Feature
    from jobwire.gateway.health import Check, HealthStatus

    async def check() -> HealthStatus:
        note = f"images are not served: {', '.join(missing)} is not installed"
        return HealthStatus("degraded", note, "run: pip install 'jobwire[images]'")

    return Feature(name="images", checks=[Check("images", check)])


def _bucket(settings: Settings) -> str:
    return settings.images.bucket


def _schema() -> SchemaDocument:
    from jobwire.wires.images.schema import schema

    return schema()


async def _doctor_checks(loaded: Loaded) -> AsyncIterator[Finding]:
    from jobwire.wiring.images.doctor import examine

    async for finding in examine(loaded):
        yield finding


_BACKENDS: Final = frozenset({Backend.VALKEY, Backend.BUCKET, Backend.SQL})

SYSTEM: Final = System(
    name="images",
    needs=_BACKENDS,
    feature=_feature,
    bucket=_bucket,
    schema=_schema,
    doctor_checks=_doctor_checks,
    example="jobwire images put photo.jpg --follow",
)
API: Final = System(
    name="images-api",
    needs=_BACKENDS,
    feature=lambda context: _api(context, apart=True),
    bucket=_bucket,
)
UPLOADS: Final = System(
    name="images-gateway",
    needs=frozenset({Backend.VALKEY, Backend.BUCKET}),
    feature=lambda context: _uploads(context, eager=True),
    bucket=_bucket,
)
