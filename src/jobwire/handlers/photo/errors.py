"""Why a photo has no result: the error codes of the image wire, and the pool's own refusal."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from jobwire.handlers.photo.results import Step
from jobwire.job.errors import JobwireError


class ErrorCode(StrEnum):
    """What failed, for programs (I-6)."""

    VALIDATION_FAILED = "VALIDATION_FAILED"
    DECODE_FAILED = "DECODE_FAILED"
    DETECTION_FAILED = "DETECTION_FAILED"
    ENCODE_FAILED = "ENCODE_FAILED"
    TIMEOUT = "TIMEOUT"
    INTERNAL = "INTERNAL"


class PhotoError(JobwireError):
    """One photo failed.

    `message` names the remedy, without paths or library texts; `detail` is for our log.
    """

    status = 422

    def __init__(self, code: ErrorCode, message: str, *, detail: str = "") -> None:
        super().__init__(message, code=code, detail=detail)
        self.error_code: Final = code


class PoolFull(JobwireError):
    """As many photos wait as may wait. Nothing was done; try again later."""

    code = "busy"
    status = 503
    retryable = True


class SetupError(JobwireError):
    """The pipeline cannot run on this machine: what is missing, and what to install or change."""

    code = "misconfigured"


FAILURES: Final[Mapping[Step, tuple[ErrorCode, str]]] = {
    Step.VALIDATE: (ErrorCode.VALIDATION_FAILED, "the file cannot be read; upload it again"),
    Step.DECODE: (
        ErrorCode.DECODE_FAILED,
        "the photo is damaged, cut off or too costly to decode; save it again and upload that",
    ),
    Step.DETECT: (
        ErrorCode.DETECTION_FAILED,
        "detection failed, so the photo is not published; try again later",
    ),
    Step.HIDE: (
        ErrorCode.DETECTION_FAILED,
        "hiding the detected areas failed, so the photo is not published; try again later",
    ),
    Step.ENCODE: (ErrorCode.ENCODE_FAILED, "the photo cannot be encoded; try again later"),
}
"""Code and message of a failed step."""
