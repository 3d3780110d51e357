"""`jobwire retry`: create new jobs like failed or canceled ones."""

import click

from jobwire.cli import completion, options, output


@click.command()
@click.argument(
    "job_ids", metavar="ID...", nargs=-1, required=True, shell_complete=completion.job_id
)
@options.quiet
@options.as_json
@options.data_dir
@click.pass_context
def command(
    context: click.Context, job_ids: tuple[str, ...], as_json: bool, data_dir: str | None
) -> int:
    """Create new jobs like failed or canceled ones; the old jobs do not change.

    \b
    Examples:
      jobwire retry 3f2a8b1c
      jobwire watch $(jobwire retry 3f2a8b1c --quiet)
    """
    from jobwire.cli import sanitize
    from jobwire.cli.exits import Exit
    from jobwire.cli.follow import json_line
    from jobwire.cli.job_ids import resolve
    from jobwire.cli.program import each, with_client
    from jobwire.client import AsyncClient

    async def retry_all(client: AsyncClient) -> Exit:
        async def retry(given: str) -> None:
            job_id = await resolve(client, given)
            job = await client.retry(job_id)
            only_id = output.has_flag("quiet") and not as_json
            if output.wants_json(as_json) and not only_id:
                json_line(job)
            else:
                click.echo(sanitize.line(job.job_id))
                output.info(f"{sanitize.line(job_id)} is retried as {sanitize.line(job.job_id)}")

        return await each(job_ids, retry)

    return with_client(context, data_dir, retry_all)
