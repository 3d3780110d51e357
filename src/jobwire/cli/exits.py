"""Exit codes, and the exception that ends a command with one."""

from enum import IntEnum
from typing import Final


class Exit(IntEnum):
    """Why a command ended."""

    OK = 0
    JOB_FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_FOUND = 4
    REFUSED = 5
    TIMED_OUT = 6
    PORT_TAKEN = 7
    BROKEN = 70
    FULL = 75
    INTERRUPTED = 130


MEANINGS: Final = {
    Exit.OK: "success",
    Exit.JOB_FAILED: "the job failed, or doctor found a fault",
    Exit.USAGE: "the command or a setting is wrong",
    Exit.UNREACHABLE: "Valkey, the bucket or the gateway is not reachable",
    Exit.NOT_FOUND: "no such job, queue, image or cron entry",
    Exit.REFUSED: "refused: too large, or a duplicate with another body",
    Exit.TIMED_OUT: "timed out waiting",
    Exit.PORT_TAKEN: "another program listens on the port",
    Exit.BROKEN: "an internal error of jobwire",
    Exit.FULL: "queue full or rate limited, try later",
    Exit.INTERRUPTED: "interrupted",
}


class CliExit(Exception):
    """End the command with this code, after one line with the error and what to do."""

    def __init__(self, line: str, code: Exit) -> None:
        super().__init__(line)
        self.line = line
        self.code = code


def start_failure(error: Exception) -> tuple[str, int]:
    """The text and exit code of a start error, for the program that waits for readiness."""
    from jobwire.cli.failures import lines_and_code  # late: it knows every error

    lines, code = lines_and_code(error)
    return "; ".join(lines), code
