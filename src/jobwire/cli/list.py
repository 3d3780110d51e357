"""`jobwire list`: list jobs, newest first."""

import time
from typing import Final

import click

from jobwire.cli import completion, options, output, sanitize
from jobwire.cli.program import with_client

# As people read them, and the two that have another name on the wire.
_STATES: Final = ("waiting", "running", "done", "failed", "canceled", "queued", "error")
_WIRE_STATES: Final = {"waiting": "queued", "failed": "error"}


@click.command()
@click.option("--status", type=click.Choice(_STATES), help="Only jobs in this state.")
@click.option(
    "--task", metavar="NAME", shell_complete=completion.task, help="Only jobs of this task."
)
@options.page("jobs")
@options.common
def command(status: str | None, task: str | None, limit: int, cursor: str | None) -> None:
    """List jobs, newest first.

    \b
    Examples:
      jobwire list --status failed
      jobwire list --json | jq -r .job_id
    """
    from jobwire.cli.formatting import duration, progress, style_of, waits_for

    state = _WIRE_STATES.get(status or "", status)
    page = with_client(
        lambda client: client.list(status=state, task=task, limit=limit, cursor=cursor)
    )
    if output.wants_json():
        for line in page.jobs:
            output.json_line(line)
    elif page.jobs:
        now_ms = time.time() * 1000
        rows = [("state", "task", "id", "age", "")]
        for line in page.jobs:
            style = style_of(line.status)
            detail = sanitize.line(line.failure.code) if line.status == "error" else progress(line)
            if waited := waits_for(line):
                detail = sanitize.line(f"waiting for {waited}")
            age = duration(now_ms - line.created_ts)
            shown = f"{style.shape} {style.word}"
            rows.append((shown, sanitize.line(line.task), sanitize.line(line.job_id), age, detail))
        _show(rows)
    elif not page.incomplete:
        output.info("No jobs. Try: jobwire submit chat hello --follow")
    if page.incomplete:
        output.info(f"incomplete: {output.silent(page.incomplete)}")
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
