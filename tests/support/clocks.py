"""A real server whose clock a test can set: libfaketime in front of the program.

Only the wall clock jumps, as when an operator or a time service sets it; the monotonic clock does
not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from jobwire.local.valkey import (
    _bundled_program as bundled_program,  # pyright: ignore[reportPrivateUsage] - which it would run
)

_LIBRARIES: Final = "/usr/lib/*/faketime/libfaketimeMT.so.1"


class ServerClock:
    """`LocalValkey(…, program=clock.program)` runs by this clock."""

    def __init__(self, folder: Path, library: Path) -> None:
        self._offset = folder / "offset"
        self.set(0)
        self.program = folder / "server"
        self.program.write_text(
            "#!/bin/sh\n"
            f"export LD_PRELOAD='{library}' FAKETIME_TIMESTAMP_FILE='{self._offset}'\n"
            "export FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1\n"
            f"exec '{bundled_program()}' \"$@\"\n"
        )
        self.program.chmod(0o700)

    def set(self, offset_s: int) -> None:
        """Let the server's clock differ from ours by so much, from now on."""
        written = self._offset.with_suffix(".new")
        written.write_text(f"{offset_s:+d}s\n")
        written.replace(self._offset)


def server_clock(folder: Path) -> ServerClock | None:
    """A clock; None where libfaketime is not installed."""
    found = sorted(Path("/").glob(_LIBRARIES[1:]))
    return ServerClock(folder, found[0]) if found else None
