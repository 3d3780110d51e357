"""What a photo's way consists of and ends with: steps, hidden areas, the published file.

Known to both sides of the pool; nothing of it needs an image library.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

CONTENT_TYPE: Final = "image/webp"


class Step(StrEnum):
    """The steps, in order."""

    VALIDATE = "validate"
    DECODE = "decode"
    DETECT = "detect"
    HIDE = "hide"
    ENCODE = "encode"


ORDER: Final = tuple(Step)


Certainty = Literal["sure", "doubtful", "refuted"]
"""`doubtful`: a second look has not seen it well; `refuted`: it has seen nothing. In this order."""


@dataclass(frozen=True, slots=True)
class Area:
    """A rectangle of the published picture, and what was found there."""

    left: int
    top: int
    width: int
    height: int
    label: str
    score: float = 1.0
    certainty: Certainty = "sure"

    @property
    def right(self) -> int:
        return self.left + self.width

    @property
    def bottom(self) -> int:
        return self.top + self.height


@dataclass(frozen=True, slots=True, kw_only=True)
class Photo:
    """The published file: its true size and hash, and what was hidden."""

    file_size: int
    sha256: str
    width: int
    height: int
    original_width: int
    """Of the upload, upright."""
    original_height: int
    content_type: str = CONTENT_TYPE
    hidden: tuple[Area, ...] = ()
    """With their padding, in pixels of the published picture."""
    hidden_part: float = 0.0
    """The part of its pixels that they cover together."""
    is_doubtful: bool = False
    """Whether something was found that is not certain, hidden or not."""
