"""The system `queues`: queues of the BullMQ wire, served by the worker beside its other jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from jobwire.systems.system import Backend, System, lazy

if TYPE_CHECKING:
    from jobwire.objects.lifecycle import Rule


def _lifecycle_rules() -> Sequence[Rule]:
    from jobwire.systems.queues.video import LIFECYCLE

    return LIFECYCLE


SYSTEM: Final = System(
    name="queues",
    needs=frozenset({Backend.VALKEY}),
    uses=frozenset({Backend.BUCKET}),
    feature=lazy("jobwire.systems.queues.feature:queues_feature"),
    tasks=lazy("jobwire.systems.queues.worker:video_task"),
    engines=lazy("jobwire.systems.queues.worker:queues_engines"),
    lifecycle_rules=_lifecycle_rules,
    doctor_checks=lazy("jobwire.systems.queues.doctor:examine"),
    schema=lazy("jobwire.systems.queues.schema:wire_schema"),
)
