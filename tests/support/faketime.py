"""A server whose wall clock a test can set: libfaketime, where the machine has it.

Used by tests of clock jumps. Only the server's wall clock is changed; its monotonic clock and every
other program keep theirs. Debian: `apt-get install libfaketime`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from jobwire.local.valkey import bundled_program

_LIBRARIES: Final = Path("/usr/lib")


class ServerClock:
    """How far the server's clock is off; `program` is the server to start."""

    def __init__(self, folder: Path, library: Path) -> None:
        self._offset = folder / "clock"
        self._seconds = 0
        self.jump(0)
        self.program = folder / "valkey-server"
        self.program.write_text(
            "#!/bin/sh\n"
            f"export FAKETIME_TIMESTAMP_FILE={self._offset} FAKETIME_NO_CACHE=1\n"
            "export FAKETIME_DONT_FAKE_MONOTONIC=1 FAKETIME_DONT_RESET=1\n"
            f'LD_PRELOAD={library} exec {bundled_program()} "$@"\n'
        )
        self.program.chmod(0o700)

    def jump(self, seconds: int) -> None:
        """Set the clock forward, or back."""
        self._seconds += seconds
        whole = self._offset.with_suffix(".new")
        whole.write_text(f"{self._seconds:+d}\n")
        whole.replace(self._offset)


def server_clock(folder: Path) -> ServerClock | None:
    """None where the library is missing."""
    found = sorted(_LIBRARIES.glob("*/faketime/libfaketime.so.1"))
    return ServerClock(folder, found[0]) if found else None
