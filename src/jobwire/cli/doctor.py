"""`jobwire doctor`: check the installation; each fault with its reason and its fix."""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import click

from jobwire.cli import options, output, sanitize
from jobwire.cli.exits import Exit

if TYPE_CHECKING:
    from jobwire.doctor import Finding
    from jobwire.settings import Loaded
    from jobwire.systems.backends import KnownBucket
    from jobwire.systems.system import System

_WIDE: Final = 80
_COLOURS: Final = {"ok": "green", "note": "yellow", "fault": "red", "unreachable": "red"}


@click.command()
@options.data_dir
@options.valkey
@options.as_json
def command() -> int:
    """Check this installation: each finding with its reason and its fix.

    \b
    Examples:
      jobwire doctor
      jobwire doctor --valkey valkey://me@db.example:6379/0 --valkey-password-file secret.txt
    """
    return show_findings(_findings(options.running_settings()))


def show_findings(findings: Iterable["Finding"]) -> Exit:
    """Print each finding as it comes; the exit code is that of the worst."""
    verdicts: set[str] = set()
    for finding in findings:
        verdicts.add(finding.verdict)
        _show_finding(finding)
    if "unreachable" in verdicts:
        return Exit.UNREACHABLE
    return Exit.JOB_FAILED if "fault" in verdicts else Exit.OK


def _findings(loaded: "Loaded") -> Iterator["Finding"]:
    """Run the checks of the machine, the program, the needed backends and the systems."""
    from jobwire import endpoints
    from jobwire.doctor import Finding, machine, program
    from jobwire.private_files import Untrusted
    from jobwire.systems.backends import examined_systems, known_buckets

    settings = loaded.settings
    yield from machine.examine(settings.data_dir)
    try:
        found = endpoints.find(settings.data_dir)
        systems = examined_systems(loaded)
    except Untrusted as error:
        what = f"{error.filename} is not used: {error.strerror}"
        yield Finding("data directory", "fault", what, fix="remove it, or correct its owner")
        return
    yield from program.examine(found)
    yield from _valkey(loaded, systems)
    for bucket in known_buckets(loaded, systems):
        yield from _bucket(bucket)
    for system in systems:
        yield from _system(system, loaded)


def _valkey(loaded: "Loaded", systems: Sequence["System"]) -> Iterator["Finding"]:
    import asyncio

    from jobwire.doctor import Finding
    from jobwire.systems.backends import known_servers, known_valkey, untagged
    from jobwire.systems.system import Backend

    using = [system for system in systems if Backend.VALKEY in system.needs]
    if not using or not (servers := known_servers(loaded, using)):
        return
    from jobwire.doctor import valkey

    lease_s = loaded.settings.worker.lease.total_seconds()
    for number, server in enumerate(servers):
        probe = loaded.settings.jobs.write_probe
        examining = valkey.examine(server.config, fix=server.fix, probe=probe, lease_s=lease_s)
        for finding in asyncio.run(all_findings(examining)):
            if not number or valkey.is_worth_showing(finding):
                yield valkey.named(finding, server.config.address) if number else finding
    if (known := known_valkey(loaded)) is not None:
        for fault in untagged(known.config, loaded.settings, using):
            name, _, problem = fault.partition(": ")
            yield Finding(name, "fault", problem, "no command of the system would be accepted")


def _system(system: "System", loaded: "Loaded") -> Iterator["Finding"]:
    import asyncio

    from jobwire.cli.failures import missing_library
    from jobwire.doctor import Finding

    if system.doctor_checks is None:
        return
    try:
        found = asyncio.run(all_findings(system.doctor_checks(loaded)))
    except ModuleNotFoundError as error:  # the light install runs workers and clients only
        name, fix = missing_library(error)
        found = [Finding(system.name, "note", f"not checked: {name} is not installed", fix=fix)]
    yield from found


def _bucket(known: "KnownBucket") -> Iterator["Finding"]:
    import asyncio

    from jobwire.doctor import Finding

    try:
        from jobwire.doctor import bucket  # needs an extra that may be missing
    except ModuleNotFoundError as error:
        found = f"{known.config.where} was not checked: {error.name} is not installed"
        yield Finding("bucket", "note", found, fix="pip install 'jobwire[objects]'")
        return
    yield from asyncio.run(all_findings(bucket.examine(known.config, known.rules, fix=known.fix)))


async def all_findings(findings: AsyncIterator["Finding"]) -> list["Finding"]:
    """Wait for all findings of a check."""
    return [finding async for finding in findings]


def _show_finding(finding: "Finding") -> None:
    if output.wants_json():
        output.json_line(finding)
        return
    verdict = output.coloured(f"{finding.verdict:<12}", _COLOURS[finding.verdict])
    check, found = sanitize.line(finding.check), sanitize.line(finding.found)
    notes = [
        f"{word}: {sanitize.line(text)}"
        for word, text in (("why", finding.why), ("fix", finding.fix))
        if text
    ]
    if output.width() >= _WIDE:
        click.echo(f"{verdict} {check:<20} {found}")
        for note in notes:
            click.echo(f"{'':<33} {note}")
        return
    click.echo(f"{verdict} {check}")
    for text in (found, *notes):
        output.wrapped(text, indent=4)
