"""The system `predictions`: the photo bot. It needs a bucket and no Valkey (P-28)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Final

from jobwire.wiring.systems import Backend, GatewayContext, System

if TYPE_CHECKING:
    from jobwire.gateway.feature import Feature
    from jobwire.objects.lifecycle import Rule


@contextlib.asynccontextmanager
async def _feature(_: GatewayContext) -> AsyncGenerator[Feature]:
    from jobwire.gateway.feature import Feature

    yield Feature(name="predictions")


def _lifecycle_rules() -> Sequence[Rule]:
    from jobwire.wires.predictions.contract import LIFECYCLE

    return LIFECYCLE


SYSTEM: Final = System(
    name="predictions",
    needs=frozenset({Backend.BUCKET}),
    feature=_feature,
    bucket=lambda settings: settings.predictions.bucket,
    lifecycle_rules=_lifecycle_rules,
)
