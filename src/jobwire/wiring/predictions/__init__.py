"""The system `predictions`: the photo bot. It needs a bucket and no Valkey (P-28)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Final

from jobwire.wiring.systems import Backend, GatewayContext, SchemaDocument, System

if TYPE_CHECKING:
    from jobwire.doctor import Finding
    from jobwire.gateway.feature import Feature
    from jobwire.objects.lifecycle import Rule
    from jobwire.settings import Loaded


def _feature(context: GatewayContext) -> contextlib.AbstractAsyncContextManager[Feature]:
    from jobwire.wiring.predictions.feature import predictions_feature

    return predictions_feature(context.settings.predictions, context.backends.bucket)


def _lifecycle_rules() -> Sequence[Rule]:
    from jobwire.wires.predictions.contract import LIFECYCLE

    return LIFECYCLE


def _schema() -> SchemaDocument:
    from jobwire.wires.predictions.schema import task_schema

    return task_schema()


def _doctor_checks(loaded: Loaded) -> AsyncIterator[Finding]:
    from jobwire.wiring.predictions.checks import examine

    return examine(loaded.settings.predictions)


SYSTEM: Final = System(
    name="predictions",
    needs=frozenset({Backend.BUCKET}),
    feature=_feature,
    bucket=lambda settings: settings.predictions.bucket,
    lifecycle_rules=_lifecycle_rules,
    doctor_checks=_doctor_checks,
    schema=_schema,
    example="jobwire bot demo",
)
