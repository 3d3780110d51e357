"""Runs a command with a client of the gateway, and converts client errors to exit codes.

The gateway is found by JOBWIRE_URL and JOBWIRE_API_KEY, else by the endpoints file of `jobwire up`.
The first request fails fast; later ones are retried for RETRY_S.
"""

import os
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeVar

import click

from jobwire.cli import options, sanitize
from jobwire.cli.exits import CliExit, Exit

if TYPE_CHECKING:
    from jobwire.client import AsyncClient, AsyncQueue, ClientError

T = TypeVar("T")
_KEY_HINTS: Final = {
    401: "; give a valid one by JOBWIRE_API_KEY, made by: jobwire key NAME",
    403: "; JOBWIRE_API_KEY needs a key with that scope, made by: jobwire key NAME --scope SCOPE",
}
_LISTS: Final = {"cron_not_found": "cron list", "queue_not_found": "queue ls"}
"""The command that lists what there is, by the code of a problem."""
_COMPLETION_S: Final = 2.0
FIRST_RETRY_S = 1.0
RETRY_S = 30.0


def with_client(act: "Callable[[AsyncClient], Awaitable[T]]") -> T:
    """Run `act` with a client; a ClientError becomes a CliExit."""
    import asyncio

    from jobwire.client import AsyncClient, ClientError

    async def run() -> T:
        async with AsyncClient(data_dir=_data_dir()) as client:
            client.patience_s = FIRST_RETRY_S
            return await act(client)

    try:
        return asyncio.run(run())
    except ClientError as error:
        raise cli_exit(error) from error


def with_queue(queue: str, act: "Callable[[AsyncQueue], Awaitable[T]]") -> T:
    """Run `act` with a BullMQ queue."""
    return with_client(lambda client: act(client.queue(queue)))


def completed(context: click.Context, act: "Callable[[AsyncClient], Awaitable[T]]") -> T | None:
    """The same for shell completion: None on any failure, since the shell shows no errors."""
    import asyncio

    async def bounded(client: "AsyncClient") -> T:
        client.patience_s = 0
        async with asyncio.timeout(_COMPLETION_S):
            return await act(client)

    try:
        with context.scope(cleanup=False):
            return with_client(bounded)
    except Exception:  # noqa: BLE001 - see above
        return None


async def each(job_ids: Iterable[str], act: Callable[[str], Awaitable[None]]) -> Exit:
    """Run `act` for every job. A refusal prints a line with the job's id, and the next job follows;
    the exit code is that of the first refusal."""
    from jobwire.client import ApiError

    code = Exit.OK
    for job_id in job_ids:
        try:
            await act(job_id)
        except (ApiError, CliExit) as error:
            refusal = cli_exit(error) if isinstance(error, ApiError) else error
            click.echo(f"jobwire: {sanitize.line(job_id)}: {refusal.line}", err=True)
            code = code or refusal.code
    return code


def _data_dir() -> str | None:
    given = options.given_data_dir()
    if given is None and not os.environ.get("JOBWIRE_URL"):
        return str(options.running_settings().settings.data_dir)  # slow: loads the settings
    return given


def cli_exit(error: "ClientError") -> CliExit:
    """Convert a client error to its line and exit code."""
    from jobwire.client import (
        ApiError,
        BadAnswer,
        NoSuchImage,
        NoSuchJob,
        QueueFull,
        RateLimited,
        TimedOut,
        Unavailable,
        Unreachable,
    )
    from jobwire.client.target import BadAddress

    message = sanitize.line(error.message)
    match error:
        case BadAddress():
            return CliExit(message, Exit.USAGE)
        case TimedOut():
            return CliExit(message, Exit.TIMED_OUT)
        case NoSuchJob() | NoSuchImage():
            return CliExit(message, Exit.NOT_FOUND)
        case ApiError(code=code) if code in _LISTS:
            what = message.partition(";")[0]  # behind it: the route with the list
            return CliExit(f"{what}; see jobwire {_LISTS[code]} ({code})", Exit.NOT_FOUND)
        case QueueFull() | RateLimited():
            later = f"; try again in {error.retry_after_s:g} s" if error.retry_after_s else ""
            return CliExit(f"{message}{later}", Exit.FULL)
        case Unreachable():
            hint = ". Is it running? To start everything: jobwire up"
            known = "jobwire up" in message
            return CliExit(message if known else f"{message}{hint}", Exit.UNREACHABLE)
        case Unavailable() | BadAnswer():
            return CliExit(message, Exit.UNREACHABLE)
        case ApiError():
            hint = "" if error.code == "other_user" else _KEY_HINTS.get(error.status, "")
            if error.code == "not_found":  # the path is made of what was given
                hint = "; is an id or a name empty, or the program older than this command?"
            if error.code == "unauthorized":  # the gateway's own words are about headers
                message = "the program needs an API key"
            return CliExit(f"{message} ({sanitize.line(error.code)}){hint}", Exit.REFUSED)
        case _:
            return CliExit(message, Exit.JOB_FAILED)
