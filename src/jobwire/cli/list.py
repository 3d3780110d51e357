"""`jobwire list`: list jobs, newest first."""

import time

import click

from jobwire.cli import completion, options, output

_STATES = ("queued", "running", "done", "error", "canceled")


@click.command()
@click.option("--status", type=click.Choice(_STATES), help="Only jobs in this state.")
@click.option(
    "--task", metavar="NAME", shell_complete=completion.task, help="Only jobs of this task."
)
@click.option(
    "--limit",
    type=click.IntRange(1, 200),
    default=20,
    show_default=True,
    help="Maximum number of jobs.",
)
@click.option("--cursor", metavar="CURSOR", help="Continue after the last list.")
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
    """List jobs, newest first.

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
            style = STATUS_STYLE[line.status]
            detail = sanitize.line(line.failure.code) if line.status == "error" else progress(line)
            age = duration(now_ms - line.created_ts)
            shown = f"{style.shape} {style.word}"
            rows.append((shown, sanitize.line(line.task), sanitize.line(line.job_id), age, detail))
        _show(rows)
    else:
        output.info("No jobs. Try: jobwire submit chat hello --follow")
    if page.cursor:
        output.info(
            f"Scanned {page.scanned}. Next page: jobwire list --cursor {sanitize.line(page.cursor)}"
        )


def _show(rows: list[tuple[str, str, str, str, str]]) -> None:
    """Print one line per job, or two if the whole id does not fit on one."""
    widest = sum(max(map(len, column)) + 2 for column in list(zip(*rows, strict=True))[:4])
    if widest <= output.width():
        output.columns(rows)
        return
    for state, task, job_id, age, detail in rows[1:]:
        click.echo(f"{state}  {task}  {age}  {detail}".rstrip())
        click.echo(f"  {job_id}")
