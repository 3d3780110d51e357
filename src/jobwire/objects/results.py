"""Expected results of bucket operations: values, to be matched exhaustively.

get, range     Found or bytes | Missing
create         Created | Exists
replace        Replaced | Changed | Missing
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    """What `put` was given, besides the writers' history; names in lower case."""


@dataclass(frozen=True, slots=True)
class Missing:
    """There is no such object."""

    key: str


@dataclass(frozen=True, slots=True)
class Created:
    """This caller created the object."""

    version: Version


@dataclass(frozen=True, slots=True)
class Exists:
    """The object already exists; `found` is its current state."""

    found: Found


@dataclass(frozen=True, slots=True)
class Replaced:
    """This caller replaced the version that it had seen.

    If another writer has replaced it since, `version` no longer exists and the next `replace`
    returns `Changed`.
    """

    version: Version


@dataclass(frozen=True, slots=True)
class Changed:
    """Another writer wrote first; `found` is the current state, to merge with."""

    found: Found


@dataclass(frozen=True, slots=True)
class Entry:
    """One object of a list."""

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
