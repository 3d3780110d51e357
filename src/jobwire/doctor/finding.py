"""What a check says."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "note", "fault", "unreachable"]
"""`note` works, but could be better; `fault` will hurt; `unreachable` could not be looked at."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    check: str
    verdict: Verdict
    found: str
    why: str = ""
    fix: str = ""
