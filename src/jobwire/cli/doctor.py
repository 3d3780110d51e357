"""`jobwire doctor`: check the installation; each fault with its reason and its fix."""

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Final

import click

from jobwire.cli import options, output, sanitize
from jobwire.cli.exits import Exit

if TYPE_CHECKING:
    from jobwire.doctor import Finding
    from jobwire.settings import Loaded
    from jobwire.wiring.backends import KnownBucket

_START: Final = "start everything here: jobwire up"
_COLOURS: Final = {"ok": "green", "note": "yellow", "fault": "red", "unreachable": "red"}


@click.command()
@options.data_dir
@options.valkey
@options.as_json
@click.pass_context
def command(
    context: click.Context, data_dir: str | None, valkey: str | None, as_json: bool
) -> None:
    """Check this installation: each finding with its reason and its fix.

    \b
    Examples:
      jobwire doctor
      jobwire doctor --valkey valkey://me@db.example:6379/0 --valkey-password-file secret.txt
    """
    loaded = options.settings(
        context, data_dir=("--data-dir", data_dir), valkey__url=("--valkey", valkey)
    )
    verdicts: set[str] = set()
    for finding in _findings(loaded):
        verdicts.add(finding.verdict)
        _show(finding, as_json=output.wants_json(as_json))
    if "unreachable" in verdicts:
        context.exit(Exit.UNREACHABLE)
    if "fault" in verdicts:
        context.exit(Exit.JOB_FAILED)


def _findings(loaded: "Loaded") -> Iterator["Finding"]:
    """Run the checks of each module of `doctor`."""
    import asyncio

    from jobwire import endpoints
    from jobwire.doctor import Finding, machine, model, program, valkey
    from jobwire.private_files import Untrusted
    from jobwire.valkey import Config
    from jobwire.wiring.backends import known_bucket, queue_key

    settings = loaded.settings
    yield from machine.examine(settings.data_dir)
    try:
        found, running = endpoints.find(settings.data_dir), endpoints.read(settings.data_dir)
    except Untrusted as error:
        what = f"{error.filename} is not used: {error.strerror}"
        yield Finding("data directory", "fault", what, fix="remove it, or correct its owner")
        return
    yield from program.examine(found)
    # The servers of the settings, else those of the endpoints file.
    queue = queue_key(settings)
    if loaded.is_set("valkey.url") or loaded.is_set("valkey.address"):
        fix = "start it, or correct valkey.url"
        config = settings.valkey.config()
        yield from asyncio.run(_all(valkey.examine(config, queue=queue, fix=fix)))
    elif running:
        config = Config.from_url(running.valkey)
        yield from asyncio.run(_all(valkey.examine(config, queue=queue, fix=_START)))
    if (known := known_bucket(loaded)) is not None:
        yield from _bucket(known)
    yield from asyncio.run(_all(model.examine(settings.llm)))


def _bucket(known: "KnownBucket") -> Iterator["Finding"]:
    import asyncio

    from jobwire.doctor import Finding
    from jobwire.wiring.backends import LIFECYCLE_RULES

    try:
        from jobwire.doctor import bucket  # needs an extra that may be missing
    except ModuleNotFoundError as error:
        found = f"{known.config.where} was not checked: {error.name} is not installed"
        yield Finding("bucket", "note", found, fix="pip install 'jobwire[objects]'")
        return
    yield from asyncio.run(_all(bucket.examine(known.config, LIFECYCLE_RULES, fix=known.fix)))


async def _all(findings: AsyncIterator["Finding"]) -> list["Finding"]:
    return [finding async for finding in findings]


def _show(finding: "Finding", *, as_json: bool) -> None:
    if as_json:
        output.json_line(finding)
        return
    verdict = output.coloured(f"{finding.verdict:<12}", _COLOURS[finding.verdict])
    click.echo(f"{verdict} {sanitize.line(finding.check):<20} {sanitize.line(finding.found)}")
    if finding.why:
        click.echo(f"{'':<12} {'':<20} why: {sanitize.line(finding.why)}")
    if finding.fix:
        click.echo(f"{'':<12} {'':<20} fix: {sanitize.line(finding.fix)}")
