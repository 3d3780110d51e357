"""The section `up` of the settings: how `jobwire up` starts."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class UpSettings:
    """How `jobwire up` behaves."""

    embedded: bool = True
    """Start local servers where no address is set; off: use only servers that are set."""
    app: str = ""
    """Your own handlers, as `module:app`, in addition to the six tasks."""
    worker: bool = True
    """Start a worker; off: workers are started apart."""
    drain: timedelta = timedelta(seconds=8)
    """How long running jobs may continue after Ctrl-C; at most 8s."""

    def check(self) -> Iterator[tuple[str, str]]:
        """Yield each error: the field, and what is wrong with it."""
        # The whole shutdown takes at most 10 s, and servers stop after the jobs.
        if self.drain > timedelta(seconds=8):
            yield "drain", "must not be longer than 8s"
