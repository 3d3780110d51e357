"""`jobwire cancel`: cancel jobs."""

import click

from jobwire.cli import completion, options, output, sanitize
from jobwire.cli.exits import Exit
from jobwire.cli.program import each, with_client

_OUTCOMES = {
    "canceled": "canceled",
    "canceling": "its worker was asked to stop",
    "cancel_requested": "requested; its worker is foreign and may ignore it",
}


@click.command()
@click.argument(
    "job_ids", metavar="ID...", nargs=-1, required=True, shell_complete=completion.job_id
)
@options.yes
@options.common
def command(job_ids: tuple[str, ...], yes: bool) -> int:
    """Cancel jobs; asks for confirmation if there are several.

    \b
    Examples:
      jobwire cancel 3f2a8b1c
      jobwire cancel --yes $(jobwire list --status queued --json | jq -r .job_id)
    """
    from jobwire.cli.job_ids import resolve
    from jobwire.client import AsyncClient

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
