"""`jobwire lifecycle`: the rules that expire old objects of the bucket."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from jobwire.cli import options, output, sanitize
from jobwire.cli.exits import CliExit, Exit

if TYPE_CHECKING:
    from jobwire.objects import BucketConfig

_NO_LIFECYCLE: Final = "has no lifecycle; run `jobwire lifecycle sweep` from a timer instead"


@click.group()
def command() -> None:
    """Show, set or run the rules that expire old objects of the bucket.

    \b
    Examples:
      jobwire lifecycle show
      jobwire lifecycle apply
    """


def _subcommand(name: str, help_text: str) -> Callable[[Callable[..., None]], click.Command]:
    def decorate(function: Callable[..., None]) -> click.Command:
        subcommand = command.command(name, help=help_text)
        return subcommand(options.data_dir(options.as_json(click.pass_context(function))))

    return decorate


@_subcommand("show", "Show every rule of the bucket, ours and others'.")
def show(context: click.Context, data_dir: str | None, as_json: bool) -> None:
    from jobwire.objects import lifecycle
    from jobwire.objects.signed import SignedCalls
    from jobwire.wiring.backends import LIFECYCLE_RULES

    config = _config(context, data_dir)
    found = asyncio.run(lifecycle.show(SignedCalls(config)))
    if isinstance(found, lifecycle.LifecycleUnsupported):
        raise CliExit(f"{config.where} ({found.reason}) {_NO_LIFECYCLE}", Exit.REFUSED)
    ours = {rule.id for rule in LIFECYCLE_RULES}
    rows = [
        {
            "id": rule.id,
            "ours": rule.id in ours,
            "enabled": rule.enabled,
            "prefix": rule.prefix,
            "days": rule.days,
        }
        for rule in found
    ]
    if output.wants_json(as_json):
        for row in rows:
            output.json_line(row)
    elif rows:
        head = ("rule", "owner", "prefix", "days", "")
        output.columns(
            [head]
            + [
                (
                    sanitize.line(str(row["id"])),
                    "ours" if row["ours"] else "other",
                    sanitize.line(str(row["prefix"])) or "(everything)",
                    str(row["days"] or "-"),
                    "" if row["enabled"] else "disabled",
                )
                for row in rows
            ]
        )
    else:
        output.info(f"{config.where} has no rules; set ours: jobwire lifecycle apply")


@_subcommand("apply", "Add our rules to the bucket; others' rules are kept.")
def apply(context: click.Context, data_dir: str | None, as_json: bool) -> None:
    from jobwire.objects import lifecycle
    from jobwire.objects.signed import SignedCalls
    from jobwire.wiring.backends import LIFECYCLE_RULES

    config = _config(context, data_dir)
    match asyncio.run(lifecycle.apply(SignedCalls(config), LIFECYCLE_RULES)):
        case lifecycle.Applied(kept):
            _print(
                {"applied": len(LIFECYCLE_RULES), "kept": kept},
                f"{len(LIFECYCLE_RULES)} rules set",
                as_json,
            )
        case lifecycle.LifecycleUnchanged():
            _print({"applied": 0}, "nothing to do: the rules are set", as_json)
        case lifecycle.LifecycleUnsupported(answer):
            raise CliExit(f"{config.where} ({answer}) {_NO_LIFECYCLE}", Exit.REFUSED)


@_subcommand("sweep", "Remove expired objects now, for stores without lifecycle.")
def sweep(context: click.Context, data_dir: str | None, as_json: bool) -> None:
    from datetime import UTC, datetime

    from jobwire.objects import Bucket
    from jobwire.objects.sweep import sweep as sweep_bucket
    from jobwire.wiring.backends import LIFECYCLE_RULES

    config = _config(context, data_dir)
    swept = asyncio.run(sweep_bucket(Bucket(config), LIFECYCLE_RULES, datetime.now(UTC)))
    text = f"{swept.objects} objects and {swept.uploads} unfinished uploads removed"
    _print({"objects": swept.objects, "uploads": swept.uploads}, text, as_json)


def _config(context: click.Context, data_dir: str | None) -> "BucketConfig":
    from jobwire.wiring.backends import known_bucket

    known = known_bucket(options.settings(context, data_dir=("--data-dir", data_dir)))
    if known is None:
        raise CliExit(
            "no bucket is configured; set objects.endpoint, or run: jobwire up", Exit.USAGE
        )
    return known.config


def _print(result: dict[str, int], text: str, as_json: bool) -> None:
    if output.wants_json(as_json):
        output.json_line(result)
    else:
        click.echo(text)
