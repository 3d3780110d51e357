"""The bucket: objects, conditional writes that cannot be fooled, rules for old ones, a probe.

store.py        get, head, put, create, replace, delete, list, page, presign, range
conditional.py  a write that decides, until it is certain who won; trail.py tells by reading
answers.py      what a bucket may well answer; errors.py what nobody expects, faults.py reads it
probe.py        does this store keep the promises that we stand on?
lifecycle.py    rules by which the store removes old objects; sweep.py does it without them
versions.py     all versions of an object, unfinished uploads
signed.py       calls that obstore has not, signing.py their signature, xml.py their answers
config.py       where the bucket is; settings.py reads it from the settings

Here are the bucket and its words; `probe`, `sweep` and `lifecycle` are imported from their modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobwire.objects.answers import (
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
]


def __getattr__(name: str) -> object:
    # Late: whoever reads only the settings needs no library, and may not have it.
    if name == "Bucket":
        from jobwire.objects.store import Bucket

        return Bucket
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
