"""Error messages and exit codes of the exceptions that end a command."""

import re
import traceback
from typing import Final, cast

import click

from jobwire import user_frames
from jobwire.cli import sanitize
from jobwire.cli.exits import CliExit, Exit
from jobwire.job.errors import BackendUnavailable
from jobwire.local import LocalError, PortInUse, ProgramMissing, StartFailed
from jobwire.objects import ObjectsError, StoreRefused
from jobwire.private_files import Untrusted, UnusableFile
from jobwire.redaction import redact
from jobwire.settings import SettingsError
from jobwire.valkey.errors import AuthFailed, ConfigError, Unsupported, ValkeyError

# The extra that has a library which the light install does not have.
_EXTRAS: Final = {
    "aiosqlite": "images",
    "alembic": "images",
    "cryptography": "embedded",
    "httptools": "server",
    "jsonschema_rs": "server",
    "jwt": "images",
    "numpy": "images",
    "obstore": "objects",
    "onnxruntime": "images",
    "opentelemetry": "otel",
    "prometheus_client": "metrics",
    "psycopg": "images",
    "pyvips": "images",
    "sqlalchemy": "images",
    "xllamacpp": "llm",
}

_UNDECODED: Final = re.compile("[\udc80-\udcff]")
"""Bytes of the command line that are not UTF-8, as Python has them."""


def explain(error: Exception, *, debug: bool) -> int:
    """Print one line per fault and return the exit code."""
    if debug:
        click.echo(redact("".join(traceback.format_exception(error))), err=True, nl=False)
    lines, code = lines_and_code(error)
    for line in lines:
        click.echo(f"jobwire: {sanitize.line(redact(line))}", err=True)
    return code


def lines_and_code(error: Exception) -> tuple[list[str], Exit]:
    """Return one line per fault, and the exit code."""
    match error:
        case ExceptionGroup():  # what runs beside the rest wraps the failure of the rest
            found = [lines_and_code(each) for each in error.exceptions]
            return [line for lines, _ in found for line in lines], found[0][1]
        case CliExit():
            return [error.line], error.code
        case SettingsError():
            return list(error.faults), Exit.USAGE
        case StartFailed() if error.exit_code is not None:  # of the program that was started
            return [str(error)], Exit(error.exit_code)
        case StartFailed() | ProgramMissing():
            return [str(error)], Exit.UNREACHABLE
        case PortInUse():
            return [str(error)], Exit.PORT_TAKEN
        case LocalError() | ConfigError() | UnusableFile():
            return [str(error)], Exit.USAGE
        case Unsupported() | AuthFailed():  # it answers: another start does not help
            return [f"Valkey: {error}"], Exit.UNREACHABLE
        case ValkeyError():
            line = f"Valkey: {error}. Is it running? To start everything here: jobwire up"
            return [line], Exit.UNREACHABLE
        case BackendUnavailable():
            line = f"Valkey: {error} ({error.detail}). Is it running and writable?"
            return [line], Exit.UNREACHABLE
        case StoreRefused():
            return [str(error)], Exit.USAGE
        case ObjectsError():
            return [str(error)], Exit.UNREACHABLE
        case Untrusted():
            line = (
                f"{error.filename} is not used: {error.strerror}; remove it, or correct its owner"
            )
            return [line], Exit.USAGE
        case ModuleNotFoundError() if error.name in _EXTRAS or _users_line(error) is None:
            name, fix = missing_library(error)
            return [f"{name} is not installed; run: {fix}"], Exit.USAGE
        case _ if (place := _users_line(error)) is not None:
            text = " ".join(f"{type(error).__name__}: {error}".split())
            return [f"{place}: {text} (for the traceback: jobwire --debug …)"], Exit.USAGE
        case UnicodeEncodeError() if _UNDECODED.search(error.object):
            return [f"the argument {error.object[:100]!a} is not UTF-8"], Exit.USAGE
        case ImportError():  # a library of a version that does not fit; its text names it
            return [str(error)], Exit.USAGE
        case _:
            text = " ".join(f"{type(error).__name__}: {error}".split())
            line = f"an internal error of jobwire: {text} (for the traceback: jobwire --debug …)"
            return [line], Exit.BROKEN


def missing_library(error: ModuleNotFoundError) -> tuple[str, str]:
    """The library that an import has not found, and the command that installs it."""
    name = (error.name or "a library").partition(".")[0]
    return name, f"pip install 'jobwire[{_EXTRAS.get(name, 'all')}]'"


def _users_line(error: BaseException) -> str | None:
    """The last line of the user's own code that the exception has passed: an App's lifespan, for
    example. None if it has passed none."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return next(filter(None, map(_users_line, group.exceptions)), None)
    frame = user_frames.last(error.__traceback__)
    # The program's own start, as in `.venv/bin/jobwire`, is not code of the user.
    if frame is None or frame.tb_frame.f_globals.get("__name__") == "__main__":
        return None
    return f"{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}"
