"""A failed request, independent of the library: HTTP status, S3 error code, reason.

`store.py` reads it from obstore's exceptions, `signed.py` from HTTP responses; both raise the
matching error. obstore has status and code only in its message text, hence the patterns; tests on
real servers check them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

from jobwire.objects.config import BucketConfig
from jobwire.objects.errors import (
    AccessDenied,
    BucketMissing,
    ObjectsError,
    Unavailable,
    Unexpected,
)

_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>\s*(\w+)\s*</Code>")
_CAUSE: Final = re.compile(r'message: "([^"]+)"|(TimedOut|operation timed out)')
_REFUSED: Final = (409, 412)
_RETRY_STATUS: Final = (408, 429)
_NOT_IMPLEMENTED: Final = 501


@dataclass(frozen=True, slots=True)
class Fault:
    """`status` 0 means that there was no response."""

    status: int
    code: str = ""
    reason: str = ""

    @classmethod
    def of(cls, error: Exception) -> Self:
        """Read a fault from an exception of obstore."""
        text = str(error)
        status = _STATUS.search(text)
        cause = _CAUSE.search(text)
        return cls(
            status=int(status[1]) if status else 0,
            code=code_in(text),
            reason=next(filter(None, cause.groups())) if cause else text.splitlines()[0],
        )

    @property
    def missing(self) -> bool:
        """The object does not exist; its bucket does."""
        return self.status == 404 and self.code != "NoSuchBucket"

    @property
    def refused(self) -> bool:
        """The write's condition failed: nothing was written."""
        return self.status in _REFUSED or self.missing

    @property
    def unanswered(self) -> bool:
        """Whether the request took effect is unknown."""
        return (
            self.status == 0
            or (self.status >= 500 and self.status != _NOT_IMPLEMENTED)
            or self.status in _RETRY_STATUS
        )

    def error(self, config: BucketConfig, operation: str) -> ObjectsError:
        """The exception for this fault."""
        details = " ".join(filter(None, (str(self.status or ""), self.code))) or self.reason
        if self.code == "NoSuchBucket":
            return BucketMissing(
                f"there is no bucket {config.bucket} at {config.endpoint}; "
                "create it, or correct the name"
            )
        if self.unanswered:
            return Unavailable(f"{config.where} did not answer ({details}) to {operation}")
        if self.status in (401, 403):
            return AccessDenied(
                f"{config.where} refused the access key {config.access_key} ({details}) "
                f"for {operation}; correct the keys or their rights"
            )
        return Unexpected(f"{config.where} answered {details} to {operation}")


def code_in(text: str) -> str:
    """The S3 error code inside an error document, or nothing."""
    code = _CODE.search(text)
    return code[1] if code else ""
