"""The result of a check."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "note", "fault", "unreachable"]
"""`note`: works, can be improved; `fault`: must be fixed; `unreachable`: could not be checked."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One checked property."""

    check: str
    verdict: Verdict
    found: str
    why: str = ""
    fix: str = ""
