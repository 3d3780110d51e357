"""The bucket: objects, conditional writes, lifecycle rules, a probe of the store.

store.py        get, head, put, create, replace, delete, list, page, presign, range
conditional.py  repeats a conditional write until its result is certain; write_history.py decides
results.py      expected results; errors.py exceptions, faults.py maps failures to them
probe.py        checks that the store implements conditional writes
lifecycle.py    rules by which the store removes old objects; sweep.py removes them without rules
versions.py     all versions of an object, unfinished uploads
signed.py       calls that obstore does not have, signing.py their signature, xml.py their replies
config.py       where the bucket is; settings.py reads it from the settings

`probe`, `sweep` and `lifecycle` are imported from their modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobwire.objects.config import BucketConfig
from jobwire.objects.errors import (
    AccessDenied,
    AnswerLost,
    BucketMissing,
    ConfigError,
    ObjectsError,
    StoreRefused,
    TooLarge,
    Unavailable,
    Unexpected,
)
from jobwire.objects.keys import is_valid_key
from jobwire.objects.results import (
    Changed,
    Created,
    Entry,
    Exists,
    Found,
    Level,
    Missing,
    Page,
    Replaced,
)
from jobwire.objects.write_history import Version

if TYPE_CHECKING:
    from jobwire.objects.store import Bucket

__all__ = [
    "AccessDenied",
    "AnswerLost",
    "Bucket",
    "BucketConfig",
    "BucketMissing",
    "Changed",
    "ConfigError",
    "Created",
    "Entry",
    "Exists",
    "Found",
    "Level",
    "Missing",
    "ObjectsError",
    "Page",
    "Replaced",
    "StoreRefused",
    "TooLarge",
    "Unavailable",
    "Unexpected",
    "Version",
    "is_valid_key",
]


def __getattr__(name: str) -> object:
    # Lazy: reading the settings must not need the library.
    if name == "Bucket":
        from jobwire.objects.store import Bucket

        return Bucket
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
