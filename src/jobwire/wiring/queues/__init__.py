"""The system `queues`: queues of the BullMQ wire, served by the worker beside its other jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from jobwire.wiring.systems import Backend, System, lazy

if TYPE_CHECKING:
    from jobwire.objects.lifecycle import Rule


def _lifecycle_rules() -> Sequence[Rule]:
    from jobwire.wiring.queues.video import LIFECYCLE

    return LIFECYCLE


SYSTEM: Final = System(
    name="queues",
    needs=frozenset({Backend.VALKEY}),
    uses=frozenset({Backend.BUCKET}),
    feature=lazy("jobwire.wiring.queues.feature:queues_feature"),
    tasks=lazy("jobwire.wiring.queues.worker:video_task"),
    engines=lazy("jobwire.wiring.queues.worker:queues_engines"),
    lifecycle_rules=_lifecycle_rules,
    doctor_checks=lazy("jobwire.wiring.queues.doctor:examine"),
    schema=lazy("jobwire.wires.bullmq.schema:wire_schema"),
)
