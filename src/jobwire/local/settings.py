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
    """Start a worker; off: workers are started separately."""
    reload: bool = False
    """For development: restart the worker when a Python file changes."""
    valkey_port: int = 0
    """Port of the embedded Valkey; 0: any free port at the first start, kept from then on."""
    drain: timedelta = timedelta(seconds=8)
    """How long running jobs may continue after Ctrl-C; at most 8s."""

    def check(self) -> Iterator[tuple[str, str]]:
        """Yield each error: the field, and what is wrong with it."""
        if not 0 <= self.valkey_port <= 65_535:
            yield "valkey_port", f"must lie between 0 and 65535, is {self.valkey_port}"
        # The whole shutdown takes at most 10 s, and servers stop after the jobs.
        if self.drain > timedelta(seconds=8):
            yield "drain", "must not be longer than 8s"
