"""`jobwire shards`: the shards of jobs, their servers and their load."""

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from jobwire.cli import options, output, sanitize
from jobwire.cli.exits import CliExit, Exit

if TYPE_CHECKING:
    from jobwire.systems.jobs.shard_overview import ShardOverview


@click.command()
@options.data_dir
@options.as_json
def command() -> None:
    """Show the shards of jobs: their servers, jobs, memory and load.

    On a Cluster it prints the commands that spread them evenly over the nodes. Nothing is changed.

    \b
    Examples:
      jobwire shards
      jobwire shards --json
    """
    from jobwire.job.errors import BackendUnavailable
    from jobwire.systems.jobs.shard_overview import read_shards
    from jobwire.valkey import ValkeyError

    settings = options.settings().settings
    if not settings.jobs.shards.numbers:
        raise CliExit("there are no shards: jobs.shards is not set; see docs/growth.md", Exit.USAGE)
    try:
        found = asyncio.run(read_shards(settings))
    except (BackendUnavailable, ValkeyError) as error:
        detail = sanitize.line(str(error))
        raise CliExit(f"the shards cannot be read: {detail}", Exit.UNREACHABLE) from error
    _show(found)


def _show(found: "ShardOverview") -> None:
    if output.wants_json():
        for row in found.rows:
            output.json_line(asdict(row))
        for number in found.silent:
            output.json_line({"number": number, "error": "no answer"})
        return
    head = ("shard", "server", "slot", "waiting", "delayed", "running", "stored", "jobs/min")
    rows: list[tuple[str, ...]] = [(*head, "memory", "")]
    for row in found.rows:
        counts = (row.waiting, row.delayed, row.running, row.stored, row.per_minute)
        slot = "" if row.slot is None else str(row.slot)
        memory = f"{row.memory / 2**20:.1f} MiB"
        closed = "" if row.gets_jobs else "gets no new jobs"
        name = f"{row.number} {row.prefix}"
        rows.append((name, row.server, slot, *map(str, counts), memory, closed))
    rows += [(str(number), "no answer", *[""] * 8) for number in found.silent]
    output.columns(rows)
    for report in found.waits_for:
        reads = ",".join(map(str, report.reads))
        output.info(f"The shards change when {sanitize.line(report.process)} knows them: {reads}")
    if found.moves:
        output.info("To spread the shards evenly over the nodes:")
    for move in found.moves:
        click.echo(move.command)
