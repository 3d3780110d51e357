"""`jobwire cron`: the cron entries of the fleet."""

import time

import click

from jobwire.cli import options, output, sanitize
from jobwire.cli.program import with_client


@click.group()
def command() -> None:
    """Show, run and pause the cron entries of the workers.

    \b
    Examples:
      jobwire cron list
      jobwire cron run cleanup
      jobwire cron list --json | jq .next_ts
    """


@command.command("list")
@options.common
def list_entries() -> None:
    """List the cron entries of all workers with their last and next runs.

    \b
    Examples:
      jobwire cron list
      jobwire cron list --json
    """
    from jobwire.cli.formatting import duration

    entries = with_client(lambda client: client.crons())
    if output.wants_json():
        for entry in entries:
            output.json_line(entry)
        return
    if not entries:
        output.info('No cron entries. Register one in an App: @app.cron("*/5 * * * *")')
        return
    now_ms = time.time() * 1000
    rows = [("name", "schedule", "last run", "next run", "")]
    for entry in entries:
        last = f"{duration(now_ms - entry.last_ts)} ago" if entry.last_ts else "none yet"
        following = f"in {duration(entry.next_ts - now_ms)}" if entry.next_ts else ""
        state = "paused" if entry.paused else "" if entry.live else "no live worker has it"
        schedule = sanitize.line(f"{entry.schedule} {entry.tz}")
        rows.append((sanitize.line(entry.name), schedule, last, following, state))
    output.table(rows)


@command.command("run")
@click.argument("name")
@options.common
def run(name: str) -> None:
    """Run a cron entry now, besides its due times.

    \b
    Examples:
      jobwire cron run cleanup
    """
    job = with_client(lambda client: client.run_cron(name))
    output.new_job(job, f"Follow it: {output.program()} watch {sanitize.line(job.job_id)}")


@command.command("pause")
@click.argument("name")
@options.common
def pause(name: str) -> None:
    """Let the due times of a cron entry pass without a job, in the whole fleet.

    \b
    Examples:
      jobwire cron pause cleanup
    """
    answer = with_client(lambda client: client.pause_cron(name))
    output.result(answer, f"{sanitize.line(name)}: paused")


@command.command("resume")
@click.argument("name")
@options.common
def resume(name: str) -> None:
    """Let a paused cron entry run again, from its next due time on.

    \b
    Examples:
      jobwire cron resume cleanup
    """
    answer = with_client(lambda client: client.resume_cron(name))
    output.result(answer, f"{sanitize.line(name)}: not paused")
