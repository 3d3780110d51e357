"""The states of the parts of `jobwire up`, from the supervisor to the gateway's /readyz.

A small file in the data dir, replaced at every change: a gateway that restarts has the states at
once.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from jobwire.gateway.health import HealthStatus
from jobwire.local.supervisor import State, SupervisedPart
from jobwire.private_files import write_private

FILE: Final = "parts.json"
_FIX: Final = "wait: it restarts automatically; if it keeps restarting, see its log"


class _PartState(msgspec.Struct, frozen=True):
    name: str
    state: State
    note: str

    def health(self) -> HealthStatus:
        match self.state:
            case "ready":
                return HealthStatus("ready")
            case "starting" | "stopped":  # the parts start one after the other
                return HealthStatus("starting", self.note)
            case "restarting":
                return HealthStatus("restarting", self.note, _FIX)


def write_parts(path: Path, parts: Sequence[SupervisedPart]) -> None:
    """Write the states (supervisor)."""
    states = [_PartState(part.name, part.state, part.note) for part in parts]
    write_private(path, msgspec.json.encode(states))


def parts_reader(path: Path) -> Callable[[], Mapping[str, HealthStatus]]:
    """Return a function that reads the states (gateway)."""

    def read() -> Mapping[str, HealthStatus]:
        try:
            parts = msgspec.json.decode(path.read_bytes(), type=list[_PartState])
        except (OSError, msgspec.DecodeError):
            return {}
        return {part.name: part.health() for part in parts}

    return read
