"""The section `objects` of the settings: the bucket, its address and its keys."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from jobwire.objects.config import BucketConfig
from jobwire.objects.errors import ConfigError

ROLE_KEYS: Final = {
    "AWS_ACCESS_KEY_ID": "access_key",
    "AWS_SECRET_ACCESS_KEY": "secret_key",
    "AWS_SESSION_TOKEN": "session_token",
}
"""Keys of a cloud's role in the environment; they count, all or none, where no others are set."""


@dataclass(frozen=True, slots=True)
class ObjectsSettings:
    """An S3 bucket; without an endpoint, `jobwire up` starts a local server."""

    endpoint: str = field(default="", metadata={"env": "MINIO_ENDPOINT"})
    """URL of the S3 server; without a scheme it means http://."""
    bucket: str = field(default="jobwire", metadata={"env": "S3_BUCKET"})
    """Name of the bucket."""
    access_key: str = field(default="", metadata={"env": "MINIO_ACCESS_KEY_ID"})
    """Access key."""
    secret_key: str = field(default="", repr=False, metadata={"env": "MINIO_SECRET_ACCESS_KEY"})
    """Secret key."""
    session_token: str = field(default="", repr=False)
    """Session token that belongs to temporary keys."""
    region: str = "us-east-1"
    """Region."""
    public_endpoint: str = ""
    """The server's address in signed URLs; else `endpoint`."""

    @property
    def endpoint_url(self) -> str:
        """The endpoint with its scheme; empty if there is none."""
        return _with_scheme(self.endpoint)

    def config(self) -> BucketConfig:
        """The settings as `BucketConfig`; ConfigError if a value is wrong or missing."""
        return BucketConfig(
            endpoint=self.endpoint_url,
            bucket=self.bucket,
            access_key=self.access_key,
            secret_key=self.secret_key,
            session_token=self.session_token,
            region=self.region,
            public_endpoint=_with_scheme(self.public_endpoint),
        )

    def check(self) -> Iterator[tuple[str, str]]:
        """Yield each error: the field, and what is wrong with it."""
        try:
            self.config()
        except ConfigError as error:
            # Without an endpoint the local server supplies endpoint and keys.
            own = {"endpoint", "access_key", "secret_key"} if not self.endpoint else set[str]()
            yield from (fault for fault in error.faults if fault[0] not in own)


def _with_scheme(endpoint: str) -> str:
    return f"http://{endpoint}" if endpoint and "://" not in endpoint else endpoint
