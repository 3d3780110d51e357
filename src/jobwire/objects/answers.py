"""What a bucket may well answer: values, to be matched exhaustively.

get, range     Found or bytes | Missing
create         Created | Exists
replace        Replaced | Changed | Missing
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from jobwire.objects.write_history import Version


@dataclass(frozen=True, slots=True)
class Found:
    """An object with its bytes."""

    key: str
    body: bytes
    content_type: str
    modified_at: datetime
    version: Version


@dataclass(frozen=True, slots=True)
class Missing:
    """There is no such object."""

    key: str


@dataclass(frozen=True, slots=True)
class Created:
    """The object is new and ours."""

    version: Version


@dataclass(frozen=True, slots=True)
class Exists:
    """Somebody else created the object before; `found` is what it is now."""

    found: Found


@dataclass(frozen=True, slots=True)
class Replaced:
    """Our bytes took the place of the version that we had seen.

    If somebody has replaced them in turn before we learned of it, `version` is one that no longer
    exists: the next `replace` answers `Changed`.
    """

    version: Version


@dataclass(frozen=True, slots=True)
class Changed:
    """Somebody else wrote first; `found` is what to merge with."""

    found: Found


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a list."""

    key: str
    size: int
    modified_at: datetime


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the tree of keys: the objects on it, and the prefixes below it."""

    entries: tuple[Entry, ...]
    prefixes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """Some objects of one level, in key order; `next_after` is None on the last page."""

    entries: tuple[Entry, ...]
    next_after: str | None
