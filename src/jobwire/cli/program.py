"""The running program that the commands about jobs talk to, and what its refusals mean here.

It is found by JOBWIRE_URL and JOBWIRE_API_KEY, else by what `jobwire up` wrote into its data dir.
A program that is not there is told at once; one that goes away while it is being used is waited
for.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import click

from jobwire.cli import sanitize
from jobwire.cli.exits import CliExit, Exit
from jobwire.client import (
    ApiError,
    AsyncClient,
    BadAnswer,
    ClientError,
    NoSuchJob,
    QueueFull,
    RateLimited,
    TimedOut,
    Unavailable,
    Unreachable,
)
from jobwire.client.target import BadAddress

T = TypeVar("T")
FIRST_PATIENCE_S = 1.0
PATIENCE_S = 30.0


def with_client(
    context: click.Context, data_dir: str | None, say: Callable[[AsyncClient], Awaitable[T]]
) -> T:
    """Do something with a client; whatever goes wrong is one line and an exit code."""

    async def with_client() -> T:
        async with AsyncClient(data_dir=_data_dir(context, data_dir)) as client:
            client.patience_s = FIRST_PATIENCE_S
            return await say(client)

    try:
        return asyncio.run(with_client())
    except ClientError as error:
        raise stop(error) from error


async def each(job_ids: Iterable[str], act: Callable[[str], Awaitable[None]]) -> Exit:
    """Do something to every job. What is refused is told in a line with the job's id, and the
    others have their turn all the same; the exit code is that of the first refusal."""
    code = Exit.OK
    for job_id in job_ids:
        try:
            await act(job_id)
        except ApiError as error:
            stopped = stop(error)
            click.echo(f"jobwire: {sanitize.line(job_id)}: {stopped.line}", err=True)
            code = code or stopped.code
    return code


def _data_dir(context: click.Context, given: str | None) -> str | None:
    if given is None and not os.environ.get("JOBWIRE_URL"):
        from jobwire.cli import options  # reads settings, which takes a while

        return str(options.settings(context).settings.data_dir)
    return given


def stop(error: ClientError) -> CliExit:
    """The line and the exit code for what a client raised."""
    said = sanitize.line(error.message)
    match error:
        case BadAddress():
            return CliExit(said, Exit.USAGE)
        case TimedOut():
            return CliExit(said, Exit.TIMED_OUT)
        case NoSuchJob():
            return CliExit(said, Exit.NO_SUCH_JOB)
        case QueueFull() | RateLimited():
            later = f"; try again in {error.retry_after_s:g} s" if error.retry_after_s else ""
            return CliExit(f"{said}{later}", Exit.FULL)
        case Unreachable():
            cure = (
                "" if "jobwire up" in said else ". Is it running? To start everything: jobwire up"
            )
            return CliExit(f"{said}{cure}", Exit.UNREACHABLE)
        case Unavailable() | BadAnswer():
            return CliExit(said, Exit.UNREACHABLE)
        case ApiError():
            return CliExit(f"{said} ({sanitize.line(error.code)})", Exit.REFUSED)
        case _:
            return CliExit(said, Exit.JOB_FAILED)
