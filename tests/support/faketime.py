"""A server whose wall clock a test can set: libfaketime, where the machine has it.

Only the server's wall clock changes, as when an operator or a time service sets it; its monotonic
clock and every other program keep theirs. Debian: `apt-get install faketime`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from jobwire.local.valkey import bundled_program
from tests.support.program import write_program

_LIBRARIES: Final = Path("/usr/lib")


class ServerClock:
    """`LocalValkey(…, program=clock.program)` runs by this clock."""

    def __init__(self, folder: Path, library: Path) -> None:
        self._file = folder / "clock"
        self._offset_s = 0
        self.set(0)
        self.program = folder / "valkey-server"
        variables = {
            "FAKETIME_TIMESTAMP_FILE": self._file,
            "FAKETIME_NO_CACHE": 1,
            "FAKETIME_DONT_FAKE_MONOTONIC": 1,
            "FAKETIME_DONT_RESET": 1,
            "LD_PRELOAD": library,
        }
        given = (f"{name}={value}" for name, value in variables.items())
        write_program(self.program, "env", *given, bundled_program())

    def set(self, offset_s: int) -> None:
        """Let the server's clock differ from the machine's by `offset_s`."""
        self._offset_s = offset_s
        written = self._file.with_suffix(".new")
        written.write_text(f"{offset_s:+d}s\n")
        written.replace(self._file)

    def jump(self, seconds: int) -> None:
        """Set the clock forward, or back."""
        self.set(self._offset_s + seconds)


def server_clock(folder: Path) -> ServerClock | None:
    """None where the library is missing."""
    found = sorted(_LIBRARIES.glob("*/faketime/libfaketimeMT.so.1"))
    return ServerClock(folder, found[0]) if found else None
