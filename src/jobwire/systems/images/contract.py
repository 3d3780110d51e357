"""The image wire as data: keys, fields, stages, codes, lifetimes (I-1 … I-6).

Everything in this package builds on it, and it is the only Python file that spells the wire's names
(a test checks this). It imports only the standard library.

What the published contract defines is marked *source*; the rest are our declared extras, which
readers of the published contract ignore.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

# ── keys ─────────────────────────────────────────────────────────────────────────────────────────

STATUS_PREFIX: Final = "image:status:"
UPLOAD_PREFIX: Final = "image:upload:"
RESULT_STREAM: Final = "image:result"
GROUP: Final = "api-workers"
"""*Source.* The consumer group of the API on the result stream."""
GUARD_VALUE: Final = "claimed"
"""*Source.* The value of every upload guard."""
RETIRED_GROUP: Final = "gateway-workers"
"""Of an earlier version of the messaging plan; accepted in settings and ignored."""


@dataclass(frozen=True, slots=True)
class ImageKeys:
    """Every key, below one prefix. With a hash tag in the prefix all of them share a slot."""

    prefix: str = ""
    result_stream: str = RESULT_STREAM
    upload_prefix: str = UPLOAD_PREFIX

    # source

    def status(self, image_id: str) -> str:
        """HASH: the progress of an image (I-1)."""
        return f"{self.prefix}{STATUS_PREFIX}{image_id}"

    def upload(self, image_id: str) -> str:
        """STRING: the one-time claim of an upload (I-2)."""
        return f"{self.prefix}{self.upload_prefix}{image_id}"

    @property
    def result(self) -> str:
        """STREAM: the results for the API (I-3)."""
        return f"{self.prefix}{self.result_stream}"

    # ours

    @property
    def dead(self) -> str:
        """STREAM: results that no record can take."""
        return f"{self.result}:dead"

    def owner(self, image_id: str) -> str:
        """STRING: which upload attempt has the claim, so that only that attempt releases it: the
        value of the claim itself is the same for all."""
        return f"{self.upload(image_id)}:owner"

    def canceled(self, image_id: str) -> str:
        """STRING: the image was deleted while it may be being processed; see `CancelState`."""
        return f"{self.prefix}image:canceled:{image_id}"

    def review(self, image_id: str) -> str:
        """HASH: a photo that a person must approve; see `ReviewField`."""
        return f"{self.prefix}image:review:{image_id}"

    def held_picture(self, image_id: str) -> str:
        """STRING: the held photo in Base64, for a moment after a reviewer asked for it."""
        return f"{self.review(image_id)}:picture"


def permanent(prefix: str = "") -> tuple[str, ...]:
    """Patterns (as in SCAN) of the keys that have no lifetime; every other key has one."""
    keys = ImageKeys(prefix)
    return (keys.result, keys.dead)


PERMANENT: Final = permanent()

STATUS_TTL_S: Final = 3600
"""*Source.* The lifetime of a status, set at every write."""
GUARD_TTL_S: Final = 3600
"""*Source.* The lifetime of an upload guard."""
RESULT_TRIM: Final = 1000
"""*Source.* About so many acknowledged results are kept."""
RESULT_LIMIT: Final = 100_000
"""Results that are kept at most, acknowledged or not."""


HELD_PICTURE_TTL_S: Final = 30


class ReviewField(StrEnum):
    """The fields of the key `review`."""

    HELD = "held"
    """Written by the upload gateway: the photo waits for a decision; why is a `HoldReason`."""
    MADE = "made"
    """Written by the upload gateway: the `areas` with which the picture was made."""
    DECISION = "decision"
    """Written by the API, like the following ones: a `ReviewDecision`."""
    AREAS = "areas"
    """JSON: what a reviewer has drawn, to be hidden before the photo is looked at again."""
    WANTED = "wanted"
    """A reviewer asks for the picture."""


class HoldReason(StrEnum):
    """Why a photo waits for a reviewer."""

    NONE_FOUND = "none_found"
    """Nothing was found to hide."""
    DOUBTFUL = "doubtful"
    """Something was found that may be none."""
    MOSTLY_HIDDEN = "mostly_hidden"
    """More than a third of the photo would be hidden."""


class ReviewDecision(StrEnum):
    """What a reviewer decided."""

    APPROVE = "approve"
    REJECT = "reject"


class CancelState(StrEnum):
    """The values of the key `canceled`."""

    REQUESTED = "requested"
    PUBLISHED = "published"


# ── status ───────────────────────────────────────────────────────────────────────────────────────


class StatusField(StrEnum):
    """*Source.* The fields of a status hash; `error` only if the image failed."""

    STAGE = "stage"
    PROGRESS = "progress"
    UPDATED_AT = "updated_at"
    ERROR = "error"


class Stage(StrEnum):
    """*Source.* The stages in order. The API writes `queued`, the upload gateway all others."""

    QUEUED = "queued"
    VALIDATING = "validating"
    DECODING = "decoding"
    PROCESSING = "processing"
    ENCODING = "encoding"
    UPLOADING = "uploading"
    DONE = "done"
    FAILED = "failed"


TERMINAL_STAGES: Final = frozenset({Stage.DONE, Stage.FAILED})
PROGRESS: Final[Mapping[Stage, int]] = {
    Stage.QUEUED: 0,
    Stage.VALIDATING: 5,
    Stage.DECODING: 15,
    Stage.PROCESSING: 30,
    Stage.ENCODING: 70,
    Stage.UPLOADING: 85,
    Stage.DONE: 100,
    Stage.FAILED: -1,
}
"""The progress that is written with a stage, in percent; -1 is failure."""

# ── results ──────────────────────────────────────────────────────────────────────────────────────


class ResultField(StrEnum):
    """*Source.* The fields of a result."""

    IMAGE_ID = "image_id"
    STATUS = "status"
    STORAGE_KEY = "storage_key"
    SHA256 = "sha256"
    ETAG = "etag"
    FILE_SIZE = "file_size"
    CONTENT_TYPE = "content_type"
    ORIGINAL_WIDTH = "original_width"
    ORIGINAL_HEIGHT = "original_height"
    PROCESSED_WIDTH = "processed_width"
    PROCESSED_HEIGHT = "processed_height"
    PROCESSED_AT = "processed_at"
    ERROR_CODE = "error_code"
    ERROR_MESSAGE = "error_message"
    FAILED_AT = "failed_at"


class ResultStatus(StrEnum):
    """*Source.* How an image ended."""

    PROCESSED = "processed"
    FAILED = "failed"


FAILURE_FIELDS: Final = (
    ResultField.IMAGE_ID,
    ResultField.STATUS,
    ResultField.ERROR_CODE,
    ResultField.ERROR_MESSAGE,
    ResultField.FAILED_AT,
)


class ResultExtra(StrEnum):
    """Ours, behind the fields of a success (I-38)."""

    HIDDEN_AREAS = "hidden_areas"
    """How many areas of the photo were hidden."""
    HIDDEN_PART = "hidden_part"
    """The part of its pixels that they cover, from 0 to 1."""


SUCCESS_FIELDS: Final = tuple(field for field in ResultField if field not in FAILURE_FIELDS[2:])


class ImageErrorCode(StrEnum):
    """Why an image failed (I-6)."""

    VALIDATION_FAILED = "VALIDATION_FAILED"
    DECODE_FAILED = "DECODE_FAILED"
    DETECTION_FAILED = "DETECTION_FAILED"
    ENCODE_FAILED = "ENCODE_FAILED"
    UPLOAD_FAILED = "UPLOAD_FAILED"
    TIMEOUT = "TIMEOUT"
    CANCELED = "CANCELED"
    EXPIRED = "EXPIRED"
    INTERNAL = "INTERNAL"

    @classmethod
    def read(cls, text: str) -> "ImageErrorCode":
        """The code; INTERNAL for one that the wire does not have."""
        return cls(text) if text in tuple(cls) else cls.INTERNAL


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessedImage:
    """The result of an image that is in the bucket now."""

    image_id: str
    storage_key: str
    sha256: str
    etag: str
    file_size: int
    content_type: str
    original_width: int
    original_height: int
    processed_width: int
    processed_height: int
    processed_at: str
    hidden_areas: int | None = None
    """None: the gateway of another program does not say; of `hidden_part` the same."""
    hidden_part: float | None = None

    def fields(self) -> dict[str, str]:
        """The entry of the result stream."""
        values = {name: str(getattr(self, name)) for name in SUCCESS_FIELDS if name != _STATUS}
        values[_STATUS] = ResultStatus.PROCESSED
        fields = {str(field): values[field] for field in SUCCESS_FIELDS}
        if self.hidden_areas is not None:
            fields[ResultExtra.HIDDEN_AREAS] = str(self.hidden_areas)
        if self.hidden_part is not None:
            fields[ResultExtra.HIDDEN_PART] = format_part(self.hidden_part)
        return fields


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedImage:
    """The result of an image that failed. `error_message` is for people: it says what to do."""

    image_id: str
    error_code: str
    """An `ImageErrorCode`, or a code of another gateway."""
    error_message: str
    failed_at: str

    def fields(self) -> dict[str, str]:
        """The entry of the result stream."""
        return {
            ResultField.IMAGE_ID: self.image_id,
            ResultField.STATUS: ResultStatus.FAILED,
            ResultField.ERROR_CODE: self.error_code,
            ResultField.ERROR_MESSAGE: self.error_message,
            ResultField.FAILED_AT: self.failed_at,
        }


ImageResult = ProcessedImage | FailedImage
INTERRUPTED: Final = "processing was interrupted; upload the photo again"
_STATUS: Final = ResultField.STATUS


def failed_now(image_id: str, code: ImageErrorCode, message: str) -> FailedImage:
    """The result of an image that has failed at this moment."""
    return FailedImage(
        image_id=image_id,
        error_code=code,
        error_message=message,
        failed_at=format_second(now_utc()),
    )


class BadResult(ValueError):
    """The fields of an entry are not a result; the text says in what way."""


def parse_result(fields: Mapping[str, str]) -> ImageResult:
    """Read an entry, also one of a foreign gateway; BadResult if it does not fit."""
    status = fields.get(_STATUS)
    names = SUCCESS_FIELDS if status == ResultStatus.PROCESSED else FAILURE_FIELDS
    if status not in tuple(ResultStatus):
        raise BadResult(f"status {status!r} is not one of {', '.join(ResultStatus)}")
    needed = [name for name in names if name != ResultField.ETAG]  # not every store has one
    if missing := [name for name in needed if not fields.get(name)]:
        raise BadResult(f"fields are missing: {', '.join(missing)}")
    values = {name.value: fields.get(name, "") for name in names if name != _STATUS}
    if status == ResultStatus.FAILED:
        return FailedImage(
            image_id=values["image_id"],
            error_code=values["error_code"][:LONGEST_CODE],
            error_message=values["error_message"],
            failed_at=_checked_time(values["failed_at"]),
        )
    return ProcessedImage(
        image_id=values["image_id"],
        storage_key=_checked_key(values["storage_key"]),
        sha256=values["sha256"],
        etag=values["etag"],
        file_size=_number(fields, ResultField.FILE_SIZE),
        content_type=values["content_type"],
        original_width=_number(fields, ResultField.ORIGINAL_WIDTH),
        original_height=_number(fields, ResultField.ORIGINAL_HEIGHT),
        processed_width=_number(fields, ResultField.PROCESSED_WIDTH),
        processed_height=_number(fields, ResultField.PROCESSED_HEIGHT),
        processed_at=_checked_time(values["processed_at"]),
        hidden_areas=_area_count(fields.get(ResultExtra.HIDDEN_AREAS, "")),
        hidden_part=parse_part(fields.get(ResultExtra.HIDDEN_PART, "")),
    )


def _number(fields: Mapping[str, str], name: ResultField) -> int:
    text = fields[name]
    if not _is_number(text):
        raise BadResult(f"{name} is not a number: {text[:40]!r}")
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16


def _area_count(text: str) -> int | None:
    """The field is not of the published contract: another program may mean something else by it."""
    return int(text) if _is_number(text) and int(text) <= MOST_AREAS else None


def _checked_key(text: str) -> str:
    if not STORAGE_KEY.fullmatch(text) or ".." in text or "//" in text:
        raise BadResult(f"storage_key is not a key below {STORAGE_PREFIX}: {text[:40]!r}")
    return text


def _checked_time(text: str) -> str:
    try:
        parse_time(text)
    except ValueError:
        raise BadResult(f"not an RFC 3339 time: {text[:40]!r}") from None
    return text


# ── values ───────────────────────────────────────────────────────────────────────────────────────

CONTENT_TYPES: Final = ("image/jpeg", "image/png", "image/webp", "image/avif", "image/heic")
"""What may be uploaded; HEIC where its decoder is installed."""
PUBLISHED_TYPE: Final = "image/webp"
ORIGINAL_SIZE: Final = "jobwire-original-size"
"""Metadata of the published object: the size of the upload in bytes."""
HIDDEN_AREAS: Final = "jobwire-hidden-areas"
"""Metadata of the published object: hidden areas by label, as `face=2`."""
HIDDEN_PART: Final = "jobwire-hidden-part"
"""Metadata of the published object: the part of its pixels that is hidden."""
NOTHING_HIDDEN: Final = "none"
MOST_AREAS: Final = 1_000_000
"""Hidden areas of a photo; a larger number is not one."""
MOSTLY_HIDDEN: Final = 1 / 3
"""A photo of which a larger part is hidden shows little of what it was."""
IMAGE_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
"""An image id is part of keys and of file names."""


STORAGE_PREFIX: Final = "images/"
"""Where published images are in the bucket, also those of other gateways."""
STORAGE_KEY: Final = re.compile(STORAGE_PREFIX + r"[A-Za-z0-9][A-Za-z0-9._/-]{0,240}")
_PART: Final = re.compile(r"0(\.[0-9]{1,9})?|1(\.0{1,9})?")
LONGEST_CODE: Final = 64
"""Characters of an error code; the rest of a longer one is cut off."""


def storage_key(image_id: str) -> str:
    """The key of the published image in the bucket, as our gateway chooses it."""
    return f"{STORAGE_PREFIX}{image_id}.webp"


def format_time(moment: datetime) -> str:
    """RFC 3339 in UTC, with microseconds: an event id must tell two changes apart."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def format_second(moment: datetime) -> str:
    """RFC 3339 in UTC, in whole seconds, as the published contract's examples of a result."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime:
    """A time of the wire, in UTC; ValueError if it is none."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"the time has no zone: {text!r}")
    return moment.astimezone(UTC)


def format_part(part: float) -> str:
    """A part of a picture, from 0 to 1. Something hidden is never 0."""
    return f"{max(part, 0.0001) if part > 0 else 0:.4f}"


def parse_part(text: str) -> float | None:
    """A part of a picture; None if the text is none."""
    return float(text) if _PART.fullmatch(text) else None


def now_utc() -> datetime:
    """The current time."""
    return datetime.now(UTC)
