"""`jobwire retry`: create new jobs like failed or canceled ones."""

import click

from jobwire.cli import completion, options, output, sanitize
from jobwire.cli.exits import Exit
from jobwire.cli.program import each, with_client


@click.command()
@click.argument(
    "job_ids", metavar="ID...", nargs=-1, required=True, shell_complete=completion.job_id
)
@options.common
def command(job_ids: tuple[str, ...]) -> int:
    """Create new jobs like failed or canceled ones; the old jobs do not change.

    \b
    Examples:
      jobwire retry 3f2a8b1c
      jobwire watch $(jobwire retry 3f2a8b1c --quiet)
    """
    from jobwire.cli.job_ids import resolve
    from jobwire.client import AsyncClient

    async def retry_all(client: AsyncClient) -> Exit:
        async def retry(given: str) -> None:
            job_id = await resolve(client, given)
            job = await client.retry(job_id)
            note = f"{sanitize.line(job_id)} is retried as {sanitize.line(job.job_id)}"
            output.new_job(job, note)

        return await each(job_ids, retry)

    return with_client(retry_all)
