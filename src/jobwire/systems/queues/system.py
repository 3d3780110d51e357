"""The system `queues`: queues of the BullMQ wire, served by the worker beside its other jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from jobwire.systems.system import Backend, KeyPrefix, System, lazy

if TYPE_CHECKING:
    from jobwire.objects.lifecycle import Rule
    from jobwire.settings import Settings


def _lifecycle_rules() -> Sequence[Rule]:
    from jobwire.systems.queues.video import LIFECYCLE

    return LIFECYCLE


_TAGGED: Final = "{bull}"


def _key_prefix(settings: Settings) -> KeyPrefix:
    queues = settings.queues
    return KeyPrefix("queues.prefix", queues.prefix, _TAGGED, queues.url)


SYSTEM: Final = System(
    name="queues",
    needs=frozenset({Backend.VALKEY}),
    key_prefix=_key_prefix,
    uses=frozenset({Backend.BUCKET}),
    feature=lazy("jobwire.systems.queues.feature:queues_feature"),
    tasks=lazy("jobwire.systems.queues.worker:video_task"),
    engines=lazy("jobwire.systems.queues.worker:queues_engines"),
    lifecycle_rules=_lifecycle_rules,
    doctor_checks=lazy("jobwire.systems.queues.doctor:examine"),
    schema=lazy("jobwire.systems.queues.schema:wire_schema"),
)
