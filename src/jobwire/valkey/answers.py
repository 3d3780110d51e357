"""What a handler of a consumer may answer, besides returning nothing and raising."""

from dataclasses import dataclass

from jobwire.valkey.checks import check_duration


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """`return DeadLetter("unknown image")`: the entry goes to the dead-letter stream now."""

    reason: str


@dataclass(frozen=True, slots=True)
class NotNow:
    """`return NotNow("the database is away")`: call the handler again in `retry_after_s`.

    The consumer keeps the entry and its slot; the time until then counts as no delivery, however
    often it is repeated.
    """

    reason: str = ""
    retry_after_s: float = 1.0

    def __post_init__(self) -> None:
        check_duration("retry_after_s", self.retry_after_s)


Answer = DeadLetter | NotNow | None
