"""The system `jobs`: the Streams wire, with the six tasks."""

from dataclasses import replace
from typing import Final

from jobwire.settings import Settings
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.systems.system import Backend, System, lazy


def jobs_settings(settings: Settings) -> StreamsSettings:
    """The wire's settings, with the lease of the section `worker`."""
    return replace(settings.jobs, lease_s=settings.worker.lease.total_seconds())


SYSTEM: Final = System(
    name="jobs",
    # None of the six tasks stores objects.
    needs=frozenset({Backend.VALKEY}),
    feature=lazy("jobwire.systems.jobs.feature:jobs_feature"),
    tasks=lazy("jobwire.systems.jobs.worker:six_tasks"),
    engines=lazy("jobwire.systems.jobs.worker:jobs_engines"),
    schema=lazy("jobwire.systems.jobs.schema_documents:schema"),
    doctor_checks=lazy("jobwire.systems.jobs.doctor:examine"),
    example='jobwire submit chat "Why is the sky blue?" --follow',
)
