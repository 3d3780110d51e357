"""`jobwire job`: one job as it stands."""

import click

from jobwire.cli import options, out


@click.command()
@click.argument("job_id", metavar="ID")
@options.as_json
@options.data_dir
@click.pass_context
def command(context: click.Context, job_id: str, as_json: bool, data_dir: str | None) -> None:
    """Everything about a job.

    \b
    Examples:
      jobwire job 3f2a8b1c-…
      jobwire job 3f2a8b1c-… | jq .result
    """

    from jobwire.cli import plain
    from jobwire.cli.follow import json_line
    from jobwire.cli.program import talk
    from jobwire.cli.words import LOOKS, ending, progress

    job = talk(context, data_dir, lambda client: client.get(job_id))
    if out.wants_json(as_json):
        json_line(job)
        return
    look = LOOKS[job.status]
    rows = [
        ("job", plain.line(job.job_id)),
        ("task", plain.line(job.task)),
        ("state", out.coloured(f"{look.shape} {look.word}", look.colour)),
        ("progress", progress(job)),
        ("ended", ending(job) if job.ended else ""),
        ("worker", plain.line(job.worker or "")),
        ("run again of", plain.line(job.retry_of or "")),
    ]
    out.columns([row for row in rows if row[1]])
    for name, value in (("payload", job.payload), ("result", job.result), ("error", job.error)):
        if value is not None:
            click.echo(f"\n{name}\n{plain.pretty(value)}")
