"""Error messages and exit codes of the exceptions that end a command."""

import traceback

import click

from jobwire.cli import sanitize
from jobwire.cli.exits import Exit
from jobwire.job.errors import BackendUnavailable
from jobwire.local import LocalError, ProgramMissing, StartFailed
from jobwire.objects import ObjectsError, StoreRefused
from jobwire.private_files import Untrusted
from jobwire.redaction import redact
from jobwire.settings import SettingsError
from jobwire.valkey.errors import ConfigError, ValkeyError


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
        case SettingsError():
            return list(error.faults), Exit.USAGE
        case StartFailed() | ProgramMissing():
            return [str(error)], Exit.UNREACHABLE
        case LocalError() | ConfigError():
            return [str(error)], Exit.USAGE
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
        case ModuleNotFoundError():
            line = f"{error.name} is not installed; run: pip install 'jobwire[all]'"
            return [line], Exit.USAGE
        case ImportError():  # a library of a version that does not fit; its text names it
            return [str(error)], Exit.USAGE
        case _:
            text = " ".join(f"{type(error).__name__}: {error}".split())
            line = f"an internal error of jobwire: {text} (for the traceback: jobwire --debug …)"
            return [line], Exit.BROKEN
