"""`jobwire job`: show one job."""

import time

import click

from jobwire.cli import completion, options, output, sanitize
from jobwire.cli.program import with_client


@click.command()
@click.argument("job_id", metavar="ID", shell_complete=completion.job_id)
@options.as_json
@options.data_dir
def command(job_id: str) -> None:
    """Show everything about a job.

    \b
    Examples:
      jobwire job 3f2a8b1c
      jobwire job 3f2a8b1c | jq .result
    """
    from jobwire.cli.formatting import (
        duration,
        ending,
        progress,
        step_time,
        style_of,
        traceback,
        waits_for,
    )
    from jobwire.cli.job_ids import resolve
    from jobwire.client import AsyncClient, Job

    async def get(client: AsyncClient) -> Job:
        return await client.get(await resolve(client, job_id))

    job = with_client(get)
    if output.wants_json():
        output.json_line(job)
        return
    style = style_of(job.status)
    rows = [
        ("job", sanitize.line(job.job_id)),
        ("task", sanitize.line(job.task)),
        ("queue", sanitize.line(job.queue)),
        ("state", output.coloured(f"{style.shape} {style.word}", style.colour)),
        ("submitted", f"{duration(max(0, time.time() * 1000 - job.created_ts))} ago"),
        ("progress", progress(job)),
        ("ended", ending(job) if job.ended else ""),
        ("worker", sanitize.line(job.worker or "")),
        ("retry of", sanitize.line(job.retry_of or "")),
        ("on failure", sanitize.line(job.on_failure or "")),
        ("failure of", sanitize.line(job.failure_of or "")),
        ("parent", sanitize.line(job.parent.job_id if job.parent else "")),
        ("waits for", sanitize.line(waits_for(job))),
    ]
    output.columns([row for row in rows if row[1]])
    if job.steps:
        click.echo("\nsteps")
        output.columns([(sanitize.line(each.name), step_time(each)) for each in job.steps])
    if job.children:
        click.echo(f"\nchildren: {job.children.done} of {job.children.total} done")
        rows = [(each.job_id, each.name, each.status or "open") for each in job.children.first]
        output.columns([tuple(map(sanitize.line, row)) for row in rows])
    for name, value in (("payload", job.payload), ("result", job.result), ("error", job.error)):
        if value is not None:
            click.echo(f"\n{name}\n{sanitize.pretty(value)}")
    if trace := traceback(job):
        click.echo(f"\n{trace}")
