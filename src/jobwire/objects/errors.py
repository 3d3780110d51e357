"""Exceptions of bucket operations; each message is one line with what to do.

ObjectsError         the operation failed
  ConfigError        settings are wrong; names each field
  Unavailable        no reply, or one that asks for a retry: retryable
  AccessDenied       the keys are wrong, or miss a permission
  BucketMissing      the server has no such bucket
  StoreRefused       the store lacks a required behaviour
  AnswerLost         a write's reply was lost, and its result cannot be determined by reading
  TooLarge           an object is larger than the read limit; nothing of it was read
  Unexpected         a reply that does not fit the protocol

Expected results (exists, changed, missing) are values: `results.py`.
"""

from __future__ import annotations

from collections.abc import Sequence


class ObjectsError(Exception):
    """The operation failed."""

    retryable: bool = False


class ConfigError(ObjectsError):
    """Settings are wrong; `faults` has each field and its problem."""

    def __init__(self, faults: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{field}: {problem}" for field, problem in faults))
        self.faults = tuple(faults)


class Unavailable(ObjectsError):
    """The store did not reply, or asked for a retry."""

    retryable = True


class AccessDenied(ObjectsError):
    """The keys are wrong, or miss a permission."""


class BucketMissing(ObjectsError):
    """The server has no such bucket."""


class StoreRefused(ObjectsError):
    """The store lacks a required behaviour; `promise` names it."""

    def __init__(self, where: str, promise: str, seen: str) -> None:
        super().__init__(
            f"{where} cannot be used: it does not implement '{promise}': {seen}; "
            "choose a store with conditional writes"
        )
        self.promise = promise


class AnswerLost(ObjectsError):
    """The result of a conditional write is unknown and cannot be determined by reading."""


class TooLarge(ObjectsError):
    """The object is larger than the reader's limit; `size` is what the store reports."""

    def __init__(self, key: str, size: int, max_bytes: int) -> None:
        super().__init__(
            f"the object {key} has {size} bytes, more than the limit of {max_bytes}; "
            "it was not read: remove it, or read it with a higher limit"
        )
        self.size = size


class Unexpected(ObjectsError):
    """A reply that does not fit the protocol."""
