"""`jobwire retry`: create new jobs like failed or canceled ones."""

from collections.abc import Awaitable
from typing import TYPE_CHECKING

import click

from jobwire.cli import bulk, completion, options, output, sanitize
from jobwire.cli.exits import CliExit, Exit
from jobwire.cli.program import each, with_client

if TYPE_CHECKING:
    from jobwire.client import BulkAnswer


@click.command()
@click.argument("job_ids", metavar="[ID...]", nargs=-1, shell_complete=completion.job_id)
@bulk.selects("With --task: only those that failed in this time, such as 2h.")
@click.option("--code", metavar="CODE", help="With --task: only those with this error code.")
@click.option("--keep-steps", is_flag=True, help="Keep recorded steps, signals and done children.")
@options.yes
@options.common
def command(
    job_ids: tuple[str, ...],
    task: str | None,
    since: str | None,
    dry_run: bool,
    code: str | None,
    keep_steps: bool,
    yes: bool,
) -> int:
    """Create new jobs like failed or canceled ones; the old jobs do not change.

    With --task, those of all failed jobs of a task, each once; asks for confirmation.

    \b
    Examples:
      jobwire retry 3f2a8b1c
      jobwire watch $(jobwire retry 3f2a8b1c --quiet)
      jobwire retry --task render --code timeout --since 2h --dry-run
    """
    from jobwire.cli.job_ids import resolve
    from jobwire.client import AsyncClient

    async def retry_all(client: AsyncClient) -> Exit:
        async def retry(given: str) -> None:
            job_id = await resolve(client, given)
            job = await client.retry(job_id, keep_steps=keep_steps)
            note = f"{sanitize.line(job_id)} is retried as {sanitize.line(job.job_id)}"
            output.new_job(job, note)

        return await each(job_ids, retry)

    if task and keep_steps:
        raise CliExit("--keep-steps takes ids of jobs, not --task", Exit.USAGE)

    async def retry_many(client: AsyncClient) -> Exit:
        def call(dry: bool, since_ms: int | None, cursor: str | None) -> "Awaitable[BulkAnswer]":
            return client.retry_many(
                task or "", code=code, since_ms=since_ms, dry_run=dry, cursor=cursor
            )

        return await bulk.change(call, "Retry", "retried", since=since, dry_run=dry_run, yes=yes)

    return with_client(
        retry_many if bulk.is_bulk(job_ids, task, code, since, dry_run) else retry_all
    )
