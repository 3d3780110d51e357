"""Start errors of local servers; each message is one line with what to do.

LocalError             a local server cannot run
  ProgramMissing       its program is not installed
  PortInUse            another program listens on the requested port
  DataDirUnwritable    its data directory is not writable
  DataDirHeld          another process holds its data directory (`pid`)
  StartFailed          it exited during its start; the message has the end of its log
"""

from __future__ import annotations

from pathlib import Path


class LocalError(Exception):
    """A local server cannot run."""


class ProgramMissing(LocalError):
    """The server's program is not installed."""


class PortInUse(LocalError):
    """Another program listens on the requested port."""

    def __init__(
        self, port: int, *, holder: str = "", free: int | None = None, setting: str = ""
    ) -> None:
        place = f"{setting}: port {port}" if setting else f"port {port}"
        other = f"port, such as {free}" if free else "port"
        super().__init__(
            f"{place} on 127.0.0.1 is in use by {holder or 'another program'}; "
            f"stop it or choose another {other}"
        )
        self.port = port


class DataDirUnwritable(LocalError):
    """The data directory is not writable."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"cannot write to the data directory {path} ({reason}); "
            "correct its owner or rights, or choose another directory"
        )
        self.path = path


class DataDirHeld(LocalError):
    """Another process holds the data directory."""

    def __init__(self, path: Path, pid: int | None, *, at: str = "") -> None:
        holder = f"process {pid}" if pid else "another process"
        holder += f" ({at})" if at else ""
        super().__init__(
            f"the data directory {path} is in use by {holder}; stop it or choose another directory"
        )
        self.path = path
        self.pid = pid


class StartFailed(LocalError):
    """The server exited during its start; a program of ours gives its exit code."""

    def __init__(self, message: str, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code
