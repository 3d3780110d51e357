"""`jobwire list`: jobs, newest first."""

import time

import click

from jobwire.cli import options, output

_STATES = ("queued", "running", "done", "error", "canceled")


@click.command()
@click.option("--status", type=click.Choice(_STATES), help="Only jobs in this state.")
@click.option("--task", metavar="NAME", help="Only jobs of this task.")
@click.option(
    "--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="At most so many."
)
@click.option("--cursor", metavar="PLACE", help="Go on where the last list stopped.")
@options.quiet
@options.as_json
@options.data_dir
@click.pass_context
def command(
    context: click.Context,
    status: str | None,
    task: str | None,
    limit: int,
    cursor: str | None,
    as_json: bool,
    data_dir: str | None,
) -> None:
    """Jobs, newest first.

    \b
    Examples:
      jobwire list --status error
      jobwire list --json | jq -r .job_id
    """
    from jobwire.cli import sanitize
    from jobwire.cli.follow import json_line
    from jobwire.cli.formatting import STATUS_STYLE, duration, progress
    from jobwire.cli.program import with_client

    page = with_client(
        context,
        data_dir,
        lambda client: client.list(status=status, task=task, limit=limit, cursor=cursor),
    )
    if output.wants_json(as_json):
        for line in page.jobs:
            json_line(line)
    elif page.jobs:
        now_ms = time.time() * 1000
        rows = [("state", "task", "id", "age", "")]
        for line in page.jobs:
            look = STATUS_STYLE[line.status]
            said = sanitize.line(line.failure.code) if line.status == "error" else progress(line)
            age = duration(now_ms - line.created_ts)
            shown = f"{look.shape} {look.word}"
            rows.append((shown, sanitize.line(line.task), sanitize.line(line.job_id), age, said))
        _show(rows)
    else:
        output.say("No job. Try: jobwire submit chat hello --follow")
    if page.cursor:
        output.say(
            f"Looked at {page.scanned}. Further: jobwire list --cursor {sanitize.line(page.cursor)}"
        )


def _show(rows: list[tuple[str, str, str, str, str]]) -> None:
    """A line a job; two, where the screen is too narrow for an id that can be copied whole."""
    widest = sum(max(map(len, column)) + 2 for column in list(zip(*rows, strict=True))[:4])
    if widest <= output.width():
        output.columns(rows)
        return
    for state, task, job_id, age, said in rows[1:]:
        click.echo(f"{state}  {task}  {age}  {said}".rstrip())
        click.echo(f"  {job_id}")
