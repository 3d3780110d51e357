"""An object's write history, newest writer first: decides which write won when a reply was lost.

Every conditional write has a fresh nonce, its writer, and stores it with the previous writers in
the object's user metadata. A writer whose reply was lost reads the object and finds its nonce at
the head of the history (it won), further down (it won and was replaced since), or not at all
although the parent version is there (it lost). Pure; used by `conditional.py`.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from enum import Enum, auto
from hashlib import sha256
from typing import Final

HISTORY_FIELD: Final = "jobwire-writers"
# Sixteen writers of sixteen digits are far below the 2 KB that S3 allows.
_MAX_WRITERS: Final = 16
_NEW_OBJECT: Final = "new"


@dataclass(frozen=True, slots=True)
class Version:
    """One state of one object: the condition of `replace`.

    `history` is empty for an object that was written without a condition.
    """

    e_tag: str
    history: tuple[str, ...] = ()

    @property
    def parent_id(self) -> str:
        """This version's id in the history of later versions."""
        if self.history:
            return self.history[0]
        return "tag" + sha256(self.e_tag.encode()).hexdigest()[:16]


# An ETag that no object has: the next `replace` with it returns `Changed`.
OVERTAKEN_ETAG: Final = '"overtaken"'


class Verdict(Enum):
    """The outcome of a write of unknown result, after reading the object."""

    WON = auto()
    OVERTAKEN = auto()  # won, and replaced by another writer since
    LOST = auto()
    GONE = auto()  # the object to replace does not exist
    RETRY = auto()  # not written, or not yet: the same write may be repeated
    UNCLEAR = auto()


def new_writer() -> str:
    """A nonce for one write and its repetitions."""
    return secrets.token_hex(8)


def appended(writer: str, seen: Version | None) -> tuple[str, ...]:
    """The history of a replacement of `seen`, or of a new object."""
    before = (_NEW_OBJECT,) if seen is None else (seen.history or (seen.parent_id,))
    return (writer, *before)[:_MAX_WRITERS]


def to_field(history: tuple[str, ...]) -> str:
    """The history as a header value."""
    return ".".join(history)


def from_field(value: str | None) -> tuple[str, ...]:
    """The history from a header value."""
    return tuple(value.split(".")) if value else ()


def judge(*, writer: str, seen: Version | None, found: Version | None, uncertain: bool) -> Verdict:
    """Decide the outcome of a write that was refused or not answered.

    `seen` is None for a new object, `found` is None if the object is missing. `uncertain`: some
    attempt of this write had no reply; otherwise a refusal is definite.
    """
    if found is None:
        return Verdict.RETRY if seen is None else Verdict.GONE
    if writer in found.history:
        return Verdict.WON if found.history[0] == writer else Verdict.OVERTAKEN
    if found == seen:
        return Verdict.RETRY
    # A writer after this one has it in its history, before the parent version.
    parent_id = _NEW_OBJECT if seen is None else seen.parent_id
    if uncertain and parent_id not in found.history:
        return Verdict.UNCLEAR
    return Verdict.LOST
