"""The section `objects` of the settings: which bucket, where, with whose keys."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class ObjectsSettings:
    """An S3 bucket; without an endpoint, `jobwire up` brings its own."""

    endpoint: str = field(default="", metadata={"env": "MINIO_ENDPOINT"})
    """URL of the S3 server; without a scheme it means http://."""
    bucket: str = field(default="jobwire", metadata={"env": "S3_BUCKET"})
    """Name of the bucket."""
    access_key: str = field(default="", metadata={"env": "MINIO_ACCESS_KEY_ID"})
    """Access key."""
    secret_key: str = field(default="", repr=False, metadata={"env": "MINIO_SECRET_ACCESS_KEY"})
    """Secret key."""
    region: str = "us-east-1"
    """Region."""

    @property
    def endpoint_url(self) -> str:
        """The endpoint with its scheme; empty if there is none."""
        if not self.endpoint or "://" in self.endpoint:
            return self.endpoint
        return f"http://{self.endpoint}"

    def check(self) -> Iterator[tuple[str, str]]:
        """Yield each fault: the field, and what is wrong with it."""
        if self.endpoint:
            parts = urlsplit(self.endpoint_url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                yield "endpoint", "must be a URL such as http://127.0.0.1:9000"
        if not self.bucket:
            yield "bucket", "is empty"
