"""What went wrong on the way, whichever library met it: a status, S3's own code, a reason.

`store.py` reads it from obstore's exceptions, `signed.py` from HTTP answers; both raise the error
it stands for. obstore tells the status and the code only inside its message, hence the patterns;
tests on real servers keep them honest.
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
_LATER: Final = (408, 429)
_NOT_IMPLEMENTED: Final = 501


@dataclass(frozen=True, slots=True)
class Fault:
    """`status` 0 means that there was no answer at all."""

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
        """The object is not there; its bucket is."""
        return self.status == 404 and self.code != "NoSuchBucket"

    @property
    def refused(self) -> bool:
        """The store kept a condition: the write did not happen."""
        return self.status in _REFUSED or self.missing

    @property
    def unanswered(self) -> bool:
        """Nobody knows whether it happened."""
        return (
            self.status == 0
            or (self.status >= 500 and self.status != _NOT_IMPLEMENTED)
            or self.status in _LATER
        )

    def error(self, config: BucketConfig, doing: str) -> ObjectsError:
        """The error that this fault stands for, in one line."""
        told = " ".join(filter(None, (str(self.status or ""), self.code))) or self.reason
        if self.code == "NoSuchBucket":
            return BucketMissing(
                f"there is no bucket {config.bucket} at {config.endpoint}; "
                "create it, or correct the name"
            )
        if self.unanswered:
            return Unavailable(f"{config.where} did not answer ({told}) to {doing}")
        if self.status in (401, 403):
            return AccessDenied(
                f"{config.where} refused the access key {config.access_key} ({told}) "
                f"for {doing}; correct the keys or their rights"
            )
        return Unexpected(f"{config.where} answered {told} to {doing}")


def code_in(text: str) -> str:
    """S3's own code inside an error document, or nothing."""
    code = _CODE.search(text)
    return code[1] if code else ""
