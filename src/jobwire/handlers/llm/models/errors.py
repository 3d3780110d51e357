"""What can go wrong with a model, and whether it is worth another try. Pure.

Drivers raise a Trouble; `wait_s` decides on a try within the job, and `signal` says what becomes of
the job when there is none.
"""

from enum import Enum
from typing import Final

from jobwire.job.errors import Fail, HandlerSignal, Retry

_WAITS_S: Final = (0.5, 2.0)
"""Before the second and the third try."""
_LONGEST_WAIT_S: Final = 15.0
"""A server that wants us to wait longer is asked by a later attempt: the worker has other work."""


NOT_NAMED: Final = ("no model is named", "set llm.model (OPENAI_MODEL)")
"""What is wrong with a server alone, and what to do."""


class Again(Enum):
    """Whether the same question may be answered later."""

    NEVER = "never"
    ONCE = "once"
    """The answer broke off: one more try."""
    SOON = "soon"
    """The server is not well, or told us to wait: two more tries."""


class ModelError(Exception):
    """A model did not answer as it should."""

    def __init__(
        self,
        code: str,
        wrong: str,
        again: Again = Again.NEVER,
        after_s: float | None = None,
        *,
        cure: str = "",
    ) -> None:
        super().__init__(wrong)
        self.code = code
        self.wrong = wrong
        self.again = again
        self.after_s = after_s
        """How long the server asked us to wait."""
        self.cure = cure
        """What to do about it, where we know."""

    @property
    def message(self) -> str:
        """One line for people."""
        return f"{self.wrong}; {self.cure}" if self.cure else self.wrong

    def signal(self) -> HandlerSignal:
        """What to raise when the job's tries are spent."""
        if self.again is Again.NEVER:
            return Fail(self.code, self.message)
        return Retry(self.after_s, self.message, self.code)


class NoModel(ModelError):
    """There is no model to ask; says what is wrong, and what to do about it."""

    def __init__(self, wrong: str, cure: str) -> None:
        super().__init__("model_not_found", wrong, cure=cure)


class ModelRefused(ModelError):
    """The server will not take the request as it is written; it may take a plainer one."""


def wait_s(trouble: ModelError, made: int, left_s: float, chance: float) -> float | None:
    """Seconds to wait before another try; None if there is none. `made` is how many more tries
    there were already, `left_s` the time that is left for the answer."""
    allowed = {Again.NEVER: 0, Again.ONCE: 1, Again.SOON: len(_WAITS_S)}[trouble.again]
    if made >= allowed:
        return None
    # Half of it left to chance, so that jobs that failed together do not come back together.
    wait = _WAITS_S[made] * (0.5 + 0.5 * chance)
    if trouble.after_s is not None:
        wait = max(wait, trouble.after_s)
    return wait if wait <= min(_LONGEST_WAIT_S, left_s) else None
