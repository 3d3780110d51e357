"""The servers of the product: connecting to Valkey, and the bucket of the settings.

A program that cannot connect at its start retries for START_TIMEOUT_S; once started it survives any
outage.
"""

from typing import Final, NamedTuple

from jobwire import endpoints
from jobwire.objects import BucketConfig
from jobwire.settings import Loaded, Settings
from jobwire.valkey import Config, Connection
from jobwire.wires.predictions.contract import LIFECYCLE
from jobwire.wires.streams.contract import StreamsKeys

START_TIMEOUT_S: Final = 30.0
LIFECYCLE_RULES: Final = LIFECYCLE
"""The rules that expire old objects of the bucket."""


def queue_key(settings: Settings) -> str:
    """Return the key of the job queue."""
    return StreamsKeys(settings.jobs.key_prefix).queue


async def connect(config: Config, name: str) -> Connection:
    """Connect, and retry while the server does not respond; raises ValkeyError at the timeout."""
    return await Connection.open(config, name=name, connect_timeout_s=START_TIMEOUT_S)


class KnownBucket(NamedTuple):
    """A bucket, and the fix if it is not reachable."""

    config: BucketConfig
    fix: str


def known_bucket(loaded: Loaded) -> KnownBucket | None:
    """Return the bucket of the settings, else that of the endpoints file, else None."""
    settings = loaded.settings
    if settings.objects.endpoint:
        fix = "start it, or correct objects.endpoint and its keys"
        return KnownBucket(settings.objects.config(), fix)
    running = endpoints.read(settings.data_dir)
    if running is None or running.s3 is None:
        return None
    values = {name: getattr(running.s3, name) for name in running.s3.__struct_fields__}
    return KnownBucket(BucketConfig(**values), "start everything here: jobwire up")
