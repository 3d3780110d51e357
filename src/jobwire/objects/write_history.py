"""Who wrote an object, newest first: what tells a winner from a loser when an answer is lost.

Every conditional write carries a fresh nonce, its writer, and hands on the writers before it, in
the object's user metadata. A writer whose answer was lost reads the object and finds itself at
the head of the trail (it won), further down (it won and was overtaken), or nowhere although the
version it stood on is there (it lost). Pure; used by `conditional.py` alone.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from enum import Enum, auto
from hashlib import sha256
from typing import Final

TRAIL_FIELD: Final = "jobwire-writers"
# Sixteen writers of sixteen digits stay far below the 2 KB that S3 allows.
_KEPT: Final = 16
_BEGINNING: Final = "new"


@dataclass(frozen=True, slots=True)
class Version:
    """One state of one object: what `replace` wants to see unchanged.

    `trail` is empty for what was written without a condition, by us or by anybody else.
    """

    e_tag: str
    trail: tuple[str, ...] = ()

    @property
    def parent_id(self) -> str:
        """How a later trail names this version."""
        if self.trail:
            return self.trail[0]
        return "tag" + sha256(self.e_tag.encode()).hexdigest()[:16]


# An ETag that no object has: the next `replace` on it finds the object changed.
OVERTAKEN_ETAG: Final = '"overtaken"'


class Verdict(Enum):
    """What reading an object after an unclear write shows."""

    WON = auto()
    OVERTAKEN = auto()  # won, and somebody has replaced it since
    LOST = auto()
    GONE = auto()  # there is nothing to replace
    AGAIN = auto()  # nothing happened, or not yet: the same write may be sent again
    UNCLEAR = auto()


def new_writer() -> str:
    """A nonce for one write, and for all its repetitions."""
    return secrets.token_hex(8)


def extended(writer: str, seen: Version | None) -> tuple[str, ...]:
    """The trail of a write on `seen`, or of a creation."""
    before = (_BEGINNING,) if seen is None else (seen.trail or (seen.parent_id,))
    return (writer, *before)[:_KEPT]


def to_field(trail: tuple[str, ...]) -> str:
    """The trail as a header's value."""
    return ".".join(trail)


def from_field(value: str | None) -> tuple[str, ...]:
    """The trail back from a header's value."""
    return tuple(value.split(".")) if value else ()


def judge(*, writer: str, seen: Version | None, found: Version | None, doubt: bool) -> Verdict:
    """Decide what became of a write that was refused or not answered.

    `seen` is None for a creation, `found` is None if the object is missing. `doubt` says that
    some sending of this write had no answer; without it a plain refusal may be believed.
    """
    if found is None:
        return Verdict.AGAIN if seen is None else Verdict.GONE
    if writer in found.trail:
        return Verdict.WON if found.trail[0] == writer else Verdict.OVERTAKEN
    if found == seen:
        return Verdict.AGAIN
    # Whoever wrote after us has us in its trail, above what we stood on.
    foothold = _BEGINNING if seen is None else seen.parent_id
    if doubt and foothold not in found.trail:
        return Verdict.UNCLEAR
    return Verdict.LOST
