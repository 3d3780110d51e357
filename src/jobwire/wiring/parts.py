"""How the parts of `jobwire up` are, on the way from the supervisor to the gateway's /readyz.

A small file in the data dir, written as a whole at every change: the gateway may be started
again at any time and still knows at once what its supervisor knows.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from jobwire.gateway.health import HealthStatus
from jobwire.local.supervisor import State, SupervisedPart
from jobwire.private_files import write_private

FILE: Final = "parts.json"
_CURE: Final = "wait a moment: it is started again by itself; if that goes on, see its log"


class _Told(msgspec.Struct, frozen=True):
    name: str
    state: State
    note: str

    def health(self) -> HealthStatus:
        match self.state:
            case "ready":
                return HealthStatus("ready")
            case "starting" | "stopped":  # parts start one after the other: its turn comes
                return HealthStatus("starting", self.note)
            case "restarting":
                return HealthStatus("restarting", self.note, _CURE)


def write_parts(path: Path, parts: Sequence[SupervisedPart]) -> None:
    """The supervisor's side."""
    told = [_Told(part.name, part.state, part.note) for part in parts]
    write_private(path, msgspec.json.encode(told))


def parts_reader(path: Path) -> Callable[[], Mapping[str, HealthStatus]]:
    """The gateway's side: what the supervisor knows now."""

    def look() -> Mapping[str, HealthStatus]:
        try:
            parts = msgspec.json.decode(path.read_bytes(), type=list[_Told])
        except (OSError, msgspec.DecodeError):
            return {}
        return {part.name: part.health() for part in parts}

    return look
