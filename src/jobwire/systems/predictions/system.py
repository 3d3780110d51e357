"""The system `predictions`: the photo bot. It needs a bucket and no Valkey (P-28)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from jobwire.systems.system import Backend, System, lazy

if TYPE_CHECKING:
    from jobwire.objects.lifecycle import Rule


def _lifecycle_rules() -> Sequence[Rule]:
    from jobwire.systems.predictions.contract import LIFECYCLE

    return LIFECYCLE


SYSTEM: Final = System(
    name="predictions",
    needs=frozenset({Backend.BUCKET}),
    feature=lazy("jobwire.systems.predictions.feature:predictions_feature"),
    bucket=lambda settings: settings.predictions.bucket,
    lifecycle_rules=_lifecycle_rules,
    doctor_checks=lazy("jobwire.systems.predictions.doctor:examine"),
    schema=lazy("jobwire.systems.predictions.schema:task_schema"),
    example="jobwire bot demo",
)
