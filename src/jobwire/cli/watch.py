"""`jobwire watch`: follow a job from its first event to its last."""

import click

from jobwire.cli import completion, options, output


@click.command()
@click.argument("job_id", metavar="ID", shell_complete=completion.job_id)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Stop following after S seconds; the job continues.",
)
@options.no_progress
@options.quiet
@options.as_json
@options.data_dir
@click.pass_context
def command(
    context: click.Context, job_id: str, timeout: float | None, as_json: bool, data_dir: str | None
) -> int:
    """Follow a job; its earlier events are printed first.

    \b
    Examples:
      jobwire watch 3f2a8b1c
      jobwire watch 3f2a8b1c --json --timeout 60
    """
    from jobwire.cli.exits import Exit
    from jobwire.cli.follow import follow
    from jobwire.cli.job_ids import resolve
    from jobwire.cli.program import RETRY_S, with_client
    from jobwire.client import AsyncClient

    async def watch(client: AsyncClient) -> Exit:
        job = await client.get(await resolve(client, job_id))
        client.patience_s = RETRY_S
        return await follow(client, job, as_json=output.wants_json(as_json), timeout_s=timeout)

    try:
        return with_client(context, data_dir, watch)
    except KeyboardInterrupt:
        output.info("\nThe job continues.")
        raise
