"""`jobwire watch`: follow a job from its first event to its last."""

import click

from jobwire.cli import completion, options, output
from jobwire.cli.exits import Exit
from jobwire.cli.program import RETRY_S, with_client


@click.command()
@click.argument("job_id", metavar="ID", shell_complete=completion.job_id)
@options.timeout
@options.no_progress
@options.common
def command(job_id: str, timeout: float | None) -> int:
    """Follow a job; its earlier events are printed first.

    \b
    Examples:
      jobwire watch 3f2a8b1c
      jobwire watch 3f2a8b1c --json --timeout 60
    """
    from jobwire.cli.follow import follow
    from jobwire.cli.job_ids import resolve
    from jobwire.client import AsyncClient

    async def watch(client: AsyncClient) -> Exit:
        job = await client.get(await resolve(client, job_id))
        client.patience_s = RETRY_S
        return await follow(client, job, timeout_s=timeout)

    try:
        return with_client(watch)
    except KeyboardInterrupt:
        output.info("\nThe job continues.")
        raise
