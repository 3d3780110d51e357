"""The sections `images` and `streams` of the settings.

`streams` is the section of the messaging plan, with its names; every key is also read from
`STREAMS_<KEY>`. Keys that the plan's later version dropped are accepted and ignored.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class ImagesSettings:
    """The database of image records."""

    HIDDEN: ClassVar = True

    database_url: str = field(default="", repr=False, metadata={"env": "DATABASE_URL"})
    """PostgreSQL or SQLite; empty: SQLite in the data dir."""


@dataclass(frozen=True, slots=True)
class ImageStreamsSettings:
    """The streams of image results."""

    HIDDEN: ClassVar = True
    ENV_PREFIX: ClassVar = "STREAMS_"
    # Of the plan's earlier version, whose gateway read a stream as group `gateway-workers`.
    IGNORED: ClassVar = {"process_stream": None, "consumer_group": frozenset({"gateway-workers"})}

    result_stream: str = "image:result"
    """The stream that carries results."""
    consumer_group: str = "api-workers"
    """The group that reads results."""
    consumer_count: int = 1
    """How many consumers read results."""
    upload_guard_key_prefix: str = "image:upload:"
    """Prefix of the key that admits an upload once."""
    upload_guard_ttl: timedelta = timedelta(hours=1)
    """How long that key lives."""
    block_timeout: timedelta = timedelta(seconds=5)
    """How long one read waits for results."""

    def check(self) -> Iterator[tuple[str, str]]:
        """Yield each fault: field and message."""
        for name in ("result_stream", "consumer_group", "upload_guard_key_prefix"):
            if not getattr(self, name):
                yield name, "is empty"
        if self.consumer_count < 1:
            yield "consumer_count", "must be at least 1"
        for name in ("upload_guard_ttl", "block_timeout"):
            if not getattr(self, name):
                yield name, "must be greater than 0"
