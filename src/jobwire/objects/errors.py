"""What a bucket may do to us that nobody expects: each error is one line that says what to do.

ObjectsError         the bucket cannot do what was asked
  ConfigError        a setting is wrong; names the field of each
  Unavailable        no answer, or "later": worth another try
  AccessDenied       the keys are wrong, or lack a right
  BucketMissing      the server has no such bucket
  StoreRefused       the store breaks a promise that we stand on
  AnswerLost         a write's answer was lost, and reading cannot tell any more who won
  TooLarge           an object is larger than the reader's limit; nothing of it was read
  Unexpected         an answer that has no place in the protocol

What the world may well answer (exists, changed, missing) is no error but a value: `answers.py`.
"""

from __future__ import annotations

from collections.abc import Sequence


class ObjectsError(Exception):
    """The bucket cannot do what was asked."""

    retryable: bool = False


class ConfigError(ObjectsError):
    """Settings are wrong; `faults` has the field and what is wrong with it, for each."""

    def __init__(self, faults: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{field}: {words}" for field, words in faults))
        self.faults = tuple(faults)


class Unavailable(ObjectsError):
    """The store did not answer, or asked us to come later."""

    retryable = True


class AccessDenied(ObjectsError):
    """The keys are wrong, or lack a right."""


class BucketMissing(ObjectsError):
    """The server has no such bucket."""


class StoreRefused(ObjectsError):
    """The store breaks a promise; `promise` names it in a few words."""

    def __init__(self, where: str, promise: str, seen: str) -> None:
        super().__init__(
            f"{where} cannot be used: it breaks the promise '{promise}': {seen}; "
            "choose a store with conditional writes"
        )
        self.promise = promise


class AnswerLost(ObjectsError):
    """Whether a conditional write won is unknown and cannot be found out by reading."""


class TooLarge(ObjectsError):
    """The object is larger than the reader's limit; `size` is what the store reports."""

    def __init__(self, key: str, size: int, max_bytes: int) -> None:
        super().__init__(
            f"the object {key} has {size} bytes, more than the limit of {max_bytes}; "
            "it was not read: remove it, or read it with a higher limit"
        )
        self.size = size


class Unexpected(ObjectsError):
    """An answer that has no place in the protocol."""
