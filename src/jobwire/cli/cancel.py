"""`jobwire cancel`: cancel jobs."""

from collections.abc import Awaitable
from typing import TYPE_CHECKING

import click

from jobwire.cli import bulk, completion, options, output, sanitize
from jobwire.cli.exits import Exit
from jobwire.cli.program import each, with_client

if TYPE_CHECKING:
    from jobwire.client import BulkAnswer

_OUTCOMES = {
    "canceled": "canceled",
    "canceling": "its worker was asked to stop",
    "cancel_requested": "requested; its worker is foreign and may ignore it",
}


@click.command()
@click.argument("job_ids", metavar="[ID...]", nargs=-1, shell_complete=completion.job_id)
@bulk.selects("With --task: only those that were submitted in this time, such as 2h.")
@click.option("--running", is_flag=True, help="With --task: those that run, not those that wait.")
@options.yes
@options.common
def command(
    job_ids: tuple[str, ...],
    task: str | None,
    since: str | None,
    dry_run: bool,
    running: bool,
    yes: bool,
) -> int:
    """Cancel jobs; asks for confirmation if there are several.

    With --task, all jobs of a task that wait.

    \b
    Examples:
      jobwire cancel 3f2a8b1c
      jobwire cancel --yes $(jobwire list --status queued --json | jq -r .job_id)
      jobwire cancel --task render --since 10m
    """
    from jobwire.cli.job_ids import resolve
    from jobwire.client import AsyncClient

    async def cancel_many(client: AsyncClient) -> Exit:
        def call(dry: bool, since_ms: int | None, cursor: str | None) -> "Awaitable[BulkAnswer]":
            return client.cancel_many(
                task or "", running=running, since_ms=since_ms, dry_run=dry, cursor=cursor
            )

        return await bulk.change(call, "Cancel", "canceled", since=since, dry_run=dry_run, yes=yes)

    if bulk.is_bulk(job_ids, task, since, running, dry_run):
        return with_client(cancel_many)
    count = len(job_ids)
    if count > 1 and not yes:
        refusal = f"{count} jobs, and no terminal to confirm on; add --yes"
        output.confirm(f"Cancel {count} jobs?", refusal)

    async def cancel_all(client: AsyncClient) -> Exit:
        async def cancel(given: str) -> None:
            job_id = await resolve(client, given)
            answer = await client.cancel(job_id)
            output.result(answer, f"{sanitize.line(job_id)}  {_OUTCOMES[answer.outcome]}")

        return await each(job_ids, cancel)

    return with_client(cancel_all)
