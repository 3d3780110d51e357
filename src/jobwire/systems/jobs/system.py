"""The system `jobs`: the Streams wire, with the six tasks."""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from jobwire.settings import Settings
from jobwire.systems.jobs.settings import DISK, StreamsSettings
from jobwire.systems.system import Backend, KeyPrefix, System, lazy

if TYPE_CHECKING:
    from jobwire.valkey import Config


def jobs_settings(settings: Settings) -> StreamsSettings:
    """The wire's settings, with the lease of the section `worker`."""
    return replace(settings.jobs, lease_s=settings.worker.lease.total_seconds())


def valkey_config(settings: Settings) -> list[str]:
    """The embedded server meets the level of durability."""
    return ["appendfsync always"] if settings.jobs.durability == DISK else []


def shard_servers(settings: Settings) -> "dict[int, Config]":
    """The server of each shard; empty without shards."""
    shards, config = settings.jobs.shards, settings.valkey.config()
    urls = {number: replace(settings.valkey, url=url) for number, url in shards.urls.items()}
    if urls:
        return {number: own.config() for number, own in urls.items()}
    prefix = settings.jobs.key_prefix
    return {number: config.for_keys(shards.prefix(number, prefix)) for number in shards.numbers}


def _key_prefix(settings: Settings) -> KeyPrefix:
    shards, prefix = settings.jobs.shards, settings.jobs.key_prefix
    if shards.numbers and not shards.urls:
        prefix = shards.prefix(0, prefix)
    return KeyPrefix("jobs.key_prefix", prefix, "{jobs}:")


SYSTEM: Final = System(
    name="jobs",
    # None of the six tasks stores objects.
    needs=frozenset({Backend.VALKEY}),
    key_prefix=_key_prefix,
    feature=lazy("jobwire.systems.jobs.feature:jobs_feature"),
    tasks=lazy("jobwire.systems.jobs.worker:six_tasks"),
    engines=lazy("jobwire.systems.jobs.worker:jobs_engines"),
    schema=lazy("jobwire.systems.jobs.schema_documents:schema"),
    shards=shard_servers,
    doctor_checks=lazy("jobwire.systems.jobs.doctor:examine"),
    valkey_config=valkey_config,
    example='jobwire submit chat "Why is the sky blue?" --follow',
)
