"""The system `images`: the API with its records, and the upload gateway with its photo pipeline.

    SYSTEM    both, in one gateway under `jobwire up`
    API       `jobwire images api`           UPLOADS   `jobwire images gateway`

Run apart, they share only Valkey, the bucket and the public key of the tokens.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from jobwire.settings import Settings
from jobwire.systems.system import Backend, GatewayContext, KeyPrefix, System, lazy

if TYPE_CHECKING:
    from jobwire.gateway.feature import Feature

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
    from jobwire.systems.images.feature import images_api
    from jobwire.systems.images.upload_gateway import image_uploads

    async with image_uploads(context) as uploads, images_api(context) as api:
        yield replace(
            api,
            routes=[*uploads.routes, *api.routes],
            checks=[*uploads.checks, *api.checks],
            collectors=[*uploads.collectors, *api.collectors],
        )


def _not_installed(missing: list[str]) -> Feature:
    from jobwire.gateway.feature import Feature
    from jobwire.gateway.health import Check, HealthStatus

    async def check() -> HealthStatus:
        note = f"images are not served: {', '.join(missing)} is not installed"
        return HealthStatus("degraded", note, "run: pip install 'jobwire[images]'")

    return Feature(name="images", checks=[Check("images", check)])


def _key_prefix(settings: Settings) -> KeyPrefix:
    return KeyPrefix("images.key_prefix", settings.images.key_prefix, "{images}:")


def _bucket(settings: Settings) -> str:
    return settings.images.bucket


_BACKENDS: Final = frozenset({Backend.VALKEY, Backend.BUCKET, Backend.SQL})

SYSTEM: Final = System(
    name="images",
    needs=_BACKENDS,
    feature=_feature,
    key_prefix=_key_prefix,
    bucket=_bucket,
    schema=lazy("jobwire.systems.images.schema:schema"),
    doctor_checks=lazy("jobwire.systems.images.doctor:examine"),
    example="jobwire images put photo.jpg --follow",
)
API: Final = System(
    name="images-api",
    needs=_BACKENDS,
    feature=partial(lazy("jobwire.systems.images.feature:images_api"), separate=True),
    key_prefix=_key_prefix,
    bucket=_bucket,
)
UPLOADS: Final = System(
    name="images-gateway",
    needs=frozenset({Backend.VALKEY, Backend.BUCKET}),
    feature=partial(lazy("jobwire.systems.images.upload_gateway:image_uploads"), eager=True),
    key_prefix=_key_prefix,
    bucket=_bucket,
)
