"""Errors of model calls and how often to retry them. Pure.

Drivers raise ModelError. `wait_s` decides on a retry within the attempt of the job; `signal` is the
outcome of the job when no retry is left.
"""

from enum import IntEnum
from typing import Final

from jobwire.job.errors import Fail, HandlerSignal, Retry

_BACKOFF_S: Final = (0.5, 2.0)
"""Before the first and the second retry."""
_MAX_WAIT_S: Final = 15.0
"""A longer `Retry-After` is left to a later attempt of the job, which frees the worker's slot."""

NOT_NAMED: Final = ("no model is named", "set llm.model (OPENAI_MODEL)")
"""The problem and the fix for a server without a model name."""


class RetryLimit(IntEnum):
    """How often the same request may be retried within one attempt of the job."""

    NEVER = 0
    ONCE = 1
    """The answer was cut off."""
    TWICE = 2
    """The server is unavailable or limits the rate."""


class ModelError(Exception):
    """A model call failed."""

    def __init__(
        self,
        code: str,
        wrong: str,
        retry_limit: RetryLimit = RetryLimit.NEVER,
        after_s: float | None = None,
        *,
        fix: str = "",
    ) -> None:
        super().__init__(wrong)
        self.code = code
        self.wrong = wrong
        self.retry_limit = retry_limit
        self.after_s = after_s
        """The server's `Retry-After`."""
        self.fix = fix
        """What to do about it; empty if unknown."""

    @property
    def message(self) -> str:
        """The problem and its fix in one line."""
        return f"{self.wrong}; {self.fix}" if self.fix else self.wrong

    def signal(self) -> HandlerSignal:
        """What the handler raises when no retry is left."""
        if self.retry_limit is RetryLimit.NEVER:
            return Fail(self.code, self.message)
        return Retry(self.after_s, self.message, self.code)


class NoModel(ModelError):
    """No model is available."""

    def __init__(self, wrong: str, fix: str) -> None:
        super().__init__("model_not_found", wrong, fix=fix)


class ModelRefused(ModelError):
    """The server rejected the request; it may accept one without extensions."""


def wait_s(error: ModelError, retries: int, left_s: float, random_fraction: float) -> float | None:
    """Seconds to wait before the next retry; None if there is none. `retries` counts those made so
    far; `left_s` is the time left for the answer."""
    if retries >= error.retry_limit:
        return None
    # Jitter, so that jobs that failed together are not retried together.
    wait = _BACKOFF_S[retries] * (0.5 + 0.5 * random_fraction)
    if error.after_s is not None:
        wait = max(wait, error.after_s)
    return wait if wait <= min(_MAX_WAIT_S, left_s) else None
