"""`jobwire cancel`: cancel jobs."""

import sys

import click

from jobwire.cli import completion, options, output

_OUTCOMES = {
    "canceled": "canceled",
    "canceling": "its worker was asked to stop",
    "cancel_requested": "requested; its worker is foreign and may ignore it",
}


@click.command()
@click.argument(
    "job_ids", metavar="ID...", nargs=-1, required=True, shell_complete=completion.job_id
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@options.quiet
@options.as_json
@options.data_dir
@click.pass_context
def command(
    context: click.Context,
    job_ids: tuple[str, ...],
    yes: bool,
    as_json: bool,
    data_dir: str | None,
) -> int:
    """Cancel jobs; asks for confirmation if there are several.

    \b
    Examples:
      jobwire cancel 3f2a8b1c
      jobwire cancel --yes $(jobwire list --status queued --json | jq -r .job_id)
    """
    from jobwire.cli import sanitize
    from jobwire.cli.exits import CliExit, Exit
    from jobwire.cli.follow import json_line
    from jobwire.cli.job_ids import resolve
    from jobwire.cli.program import each, with_client
    from jobwire.client import AsyncClient

    if len(job_ids) > 1 and not yes:
        if not sys.stdin.isatty():
            raise CliExit(
                f"{len(job_ids)} jobs, and no terminal to confirm on; add --yes", Exit.USAGE
            )
        click.confirm(f"Cancel {len(job_ids)} jobs?", abort=True, err=True)

    async def cancel_all(client: AsyncClient) -> Exit:
        async def cancel(given: str) -> None:
            job_id = await resolve(client, given)
            answer = await client.cancel(job_id)
            if output.wants_json(as_json):
                json_line(answer)
            else:
                click.echo(f"{sanitize.line(job_id)}  {_OUTCOMES[answer.outcome]}")

        return await each(job_ids, cancel)

    return with_client(context, data_dir, cancel_all)
