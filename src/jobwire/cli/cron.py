"""`jobwire cron`: the cron entries of the fleet."""

import time

import click

from jobwire.cli import options, output, sanitize
from jobwire.cli.program import with_client


@click.group()
def command() -> None:
    """Show the cron entries of the workers.

    \b
    Examples:
      jobwire cron list
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
        state = "" if entry.live else "no live worker has it"
        schedule = sanitize.line(f"{entry.schedule} {entry.tz}")
        rows.append((sanitize.line(entry.name), schedule, last, following, state))
    output.table(rows)
