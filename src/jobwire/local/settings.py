"""The section `up` of the settings: what `jobwire up` brings along."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class UpSettings:
    """How `jobwire up` behaves."""

    embedded: bool = True
    """Start the servers that were not given; off: use only those that were."""
    app: str = ""
    """Handlers of your own, as `module:app`, beside the six tasks."""
    drain: timedelta = timedelta(seconds=8)
    """How long held work may go on after Ctrl-C; at most 8s."""

    def check(self) -> Iterator[tuple[str, str]]:
        """Yield each fault: the field, and what is wrong with it."""
        # All has to be over within 10 s, and the servers go after the work.
        if self.drain > timedelta(seconds=8):
            yield "drain", "must not be longer than 8s"
