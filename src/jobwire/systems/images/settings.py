"""The sections `images` and `streams` of the settings.

`streams` is the section of the messaging plan, with its names; every key is also read from
`STREAMS_<KEY>`. Keys that the plan's later version dropped are accepted and ignored.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import ClassVar, Final, Literal

from jobwire.systems.images.contract import (
    GROUP,
    GUARD_TTL_S,
    RESULT_STREAM,
    RETIRED_GROUP,
    UPLOAD_PREFIX,
)

NO_DETECTION: Final = "none"
_MAX_UPLOAD_MB: Final = 50


@dataclass(frozen=True, slots=True)
class ImagesSettings:
    """Images: the API with its records, and the upload gateway with its photo pipeline."""

    database_url: str = field(default="", repr=False, metadata={"env": "DATABASE_URL"})
    """PostgreSQL or SQLite; empty: SQLite in the data dir."""
    bucket: str = ""
    """The bucket of the published images; empty: `objects.bucket`."""
    key_prefix: str = ""
    """In front of all keys of images; may carry a hash tag."""
    host: str = "127.0.0.1"
    """Address of the upload gateway as a separate program; uploads need no API key."""
    port: int = 8090
    """Port of the upload gateway as a separate program (`jobwire images gateway`)."""
    upload_url: str = ""
    """Public address of the upload gateway; empty: the address of the request to the API."""
    spool_dir: str = ""
    """Folder of accepted uploads; each upload gateway has its own. Empty: in the data dir."""
    spool_mb: int = 1024
    """Uploads that may wait in the spool, in MB; more get 503."""
    max_in_work: int = 256
    """Images that may be in progress or waiting; more get 503."""
    tenant_max_open: int = 0
    """Announced images of one tenant without a result; 0 means 10,000 if there are API keys of
    several tenants, else no limit. One of several tenants may use half of `max_in_work` and
    `spool_mb`."""
    max_upload_mb: int = 10
    """Largest upload, in MB of 1,048,576 bytes; at most 50."""
    token_life: timedelta = timedelta(minutes=15)
    """How long an upload token is valid."""
    token_private_key: str = field(default="", repr=False, metadata={"may_be_file": True})
    """Ed25519 key of the API, as PEM or as the path of a PEM file; empty: made in the data dir."""
    token_public_key: str = ""
    """The public key that belongs to it, for the upload gateway; empty: of the data dir."""
    url_life: timedelta = timedelta(hours=1)
    """How long the signed URL of a published image is valid."""
    keep: timedelta = timedelta(0)
    """Images that have ended are deleted that long after they were announced; 0: never."""
    purge_after: timedelta = timedelta(days=30)
    """How long the blank record of a deleted image stays."""
    spool_life: timedelta = timedelta(hours=24)
    """An accepted upload that has not ended after that time fails as EXPIRED; it is deleted."""
    review: Literal["never", "none_found", "doubtful"] = "never"
    """Which photos a person must approve before they are published; `none_found`: those in which
    nothing was found to hide; `doubtful`: those, and photos with a doubtful area or of which more
    than a third is hidden."""
    review_life: timedelta = timedelta(days=7)
    """A photo that nobody has approved or rejected after that time fails as EXPIRED."""
    detect: tuple[str, ...] = ("faces",)
    """What is hidden: detectors by name or as `package.module:factory`; `none` hides nothing."""
    sensitivity: Literal["balanced", "strict"] = "balanced"
    """How hard faces are looked for; `strict` finds more, for several times the CPU."""
    fill: Literal["surroundings", "grey"] = "surroundings"
    """What hidden areas are filled with."""
    long_side: int = 1920
    """Width and height of a published image are at most this."""
    quality: int = 80
    """Quality of the WebP file, 1 to 100."""
    max_megapixels: float = 64.0
    """Largest photo."""
    workers: int = 0
    """Processes that work on photos; 0: one per core."""
    pixel_budget_mb: int = 512
    """Decoded pixels of all photos in progress together."""

    @property
    def detectors(self) -> tuple[str, ...]:
        """The detectors; empty if nothing is hidden."""
        return () if self.detect == (NO_DETECTION,) else self.detect

    def check(self) -> Iterator[tuple[str, str]]:
        """Yield each fault: field and message."""
        if not 0 <= self.port <= 65535:
            yield "port", f"{self.port} is not a port; it must be 0-65535"
        for name in ("spool_mb", "max_in_work", "max_upload_mb", "long_side", "pixel_budget_mb"):
            if getattr(self, name) < 1:
                yield name, "must be at least 1"
        if self.max_upload_mb > _MAX_UPLOAD_MB:
            yield "max_upload_mb", f"must be at most {_MAX_UPLOAD_MB}"
        if self.tenant_max_open < 0:
            yield "tenant_max_open", "must not be negative"
        if self.spool_mb < self.max_upload_mb:
            yield "spool_mb", f"must be at least max_upload_mb ({self.max_upload_mb})"
        if not timedelta(seconds=1) <= self.token_life <= timedelta(seconds=GUARD_TTL_S):
            # The claim of an upload lives that long: an older token could be used twice.
            yield "token_life", f"must be 1 to {GUARD_TTL_S} seconds"
        if not timedelta(seconds=1) <= self.url_life <= timedelta(days=7):
            yield "url_life", "must be 1 second to 7 days"
        for name in ("keep", "purge_after"):
            if getattr(self, name) < timedelta(0):
                yield name, "must not be negative"
        if timedelta(0) < self.keep < self.spool_life:
            yield "keep", "must be 0, or at least spool_life"
        if self.review_life < timedelta(minutes=1):
            yield "review_life", "must be at least 1 minute"
        if self.spool_life < timedelta(minutes=1):
            yield "spool_life", "must be at least 1 minute"
        if not self.detect or (NO_DETECTION in self.detect and len(self.detect) > 1):
            yield "detect", f"must name detectors, or be {NO_DETECTION} alone"
        if self.upload_url and not self.upload_url.startswith(("http://", "https://")):
            yield "upload_url", "must begin with https:// or http://"
        if self.max_megapixels <= 0:
            yield "max_megapixels", "must be more than 0"


@dataclass(frozen=True, slots=True)
class ImageStreamsSettings:
    """The streams of image results."""

    ENV_PREFIX: ClassVar = "STREAMS_"
    # Of the plan's earlier version, whose gateway read a stream as group `gateway-workers`.
    IGNORED: ClassVar = {"process_stream": None, "consumer_group": frozenset({RETIRED_GROUP})}

    result_stream: str = RESULT_STREAM
    """The stream that carries results."""
    consumer_group: str = GROUP
    """The group that reads results."""
    consumer_count: int = 1
    """How many consumers read results."""
    upload_guard_key_prefix: str = UPLOAD_PREFIX
    """Prefix of the key that permits one upload."""
    upload_guard_ttl: timedelta = timedelta(seconds=GUARD_TTL_S)
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
