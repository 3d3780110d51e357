"""What this machine may refuse us: each error is one line that says what to do.

LocalError             a server of ours cannot run on this machine
  ProgramMissing       its program is not installed
  PortInUse            somebody listens on the port that was asked for
  DataDirUnwritable    we may not write where its data belongs
  DataDirHeld          another process keeps its data there (`pid`)
  StartFailed          it started and gave up; the line holds its last words
"""

from __future__ import annotations

from pathlib import Path


class LocalError(Exception):
    """A server of ours cannot run on this machine."""


class ProgramMissing(LocalError):
    """The server's program is not installed."""


class PortInUse(LocalError):
    """Somebody listens on the port that was asked for."""

    def __init__(self, port: int, *, holder: str = "", free: int | None = None) -> None:
        other = f"port, such as {free}" if free else "port"
        super().__init__(
            f"port {port} on 127.0.0.1 is in use by {holder or 'another program'}; "
            f"stop it or choose another {other}"
        )
        self.port = port


class DataDirUnwritable(LocalError):
    """We may not write where the server's data belongs."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"cannot write to the data directory {path} ({reason}); "
            "correct its owner or rights, or choose another directory"
        )
        self.path = path


class DataDirHeld(LocalError):
    """Another process keeps its data there."""

    def __init__(self, path: Path, pid: int | None, *, at: str = "") -> None:
        holder = f"process {pid}" if pid else "another process"
        holder += f" ({at})" if at else ""
        super().__init__(
            f"the data directory {path} is held by {holder}; stop it or choose another directory"
        )
        self.path = path
        self.pid = pid


class StartFailed(LocalError):
    """The server started and gave up."""
