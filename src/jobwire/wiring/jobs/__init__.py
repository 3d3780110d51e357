"""The system `jobs`: the Streams wire, with the six tasks."""

from dataclasses import replace
from typing import Final

from jobwire.settings import Settings
from jobwire.wires.streams.settings import StreamsSettings
from jobwire.wiring.systems import Backend, System, lazy


def jobs_settings(settings: Settings) -> StreamsSettings:
    """The wire's settings, with the lease of the section `worker`."""
    return replace(settings.jobs, lease_s=settings.worker.lease.total_seconds())


SYSTEM: Final = System(
    name="jobs",
    # None of the six tasks stores objects.
    needs=frozenset({Backend.VALKEY}),
    feature=lazy("jobwire.wiring.jobs.feature:jobs_feature"),
    tasks=lazy("jobwire.wiring.jobs.worker:six_tasks"),
    engines=lazy("jobwire.wiring.jobs.worker:jobs_engines"),
    schema=lazy("jobwire.wiring.jobs.schema:schema"),
    doctor_checks=lazy("jobwire.wiring.jobs.doctor:examine"),
    example='jobwire submit chat "Why is the sky blue?" --follow',
)
