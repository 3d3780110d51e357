"""`jobwire lifecycle`: the rules that expire old objects of the bucket."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import click

from jobwire.cli import options, output, sanitize
from jobwire.cli.exits import CliExit, Exit

if TYPE_CHECKING:
    from jobwire.objects import BucketConfig, lifecycle
    from jobwire.wiring.backends import KnownBucket

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

    for known in _buckets(context, data_dir):
        found = asyncio.run(lifecycle.show(SignedCalls(known.config)))
        if isinstance(found, lifecycle.LifecycleUnsupported):
            raise _unsupported(known.config, found)
        _show_rules(known, found, as_json=as_json)


def _show_rules(
    known: "KnownBucket", found: "Sequence[lifecycle.StoredRule]", *, as_json: bool
) -> None:
    ours = {rule.id for rule in known.rules}
    rows = [
        {
            "bucket": known.config.bucket,
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
        head = ("bucket", "rule", "owner", "prefix", "days", "")
        output.columns(
            [head]
            + [
                (
                    known.config.bucket,
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
        output.info(f"{known.config.where} has no rules; set ours: jobwire lifecycle apply")


@_subcommand("apply", "Add our rules to the bucket; others' rules are kept.")
def apply(context: click.Context, data_dir: str | None, as_json: bool) -> None:
    from jobwire.objects import lifecycle
    from jobwire.objects.signed import SignedCalls

    for config, rules, _ in _buckets(context, data_dir):
        match asyncio.run(lifecycle.apply(SignedCalls(config), rules)):
            case lifecycle.Applied(kept):
                facts = {"bucket": config.bucket, "applied": len(rules), "kept": kept}
                _print(facts, f"{config.bucket}: {len(rules)} rules set", as_json)
            case lifecycle.LifecycleUnchanged():
                text = f"{config.bucket}: nothing to do, the rules are set"
                _print({"bucket": config.bucket, "applied": 0}, text, as_json)
            case lifecycle.LifecycleUnsupported() as unsupported:
                raise _unsupported(config, unsupported)


@_subcommand("sweep", "Remove expired objects now, for stores without lifecycle.")
def sweep(context: click.Context, data_dir: str | None, as_json: bool) -> None:
    from datetime import UTC, datetime

    from jobwire.objects import Bucket
    from jobwire.objects.sweep import sweep as sweep_bucket

    for config, rules, _ in _buckets(context, data_dir):
        swept = asyncio.run(sweep_bucket(Bucket(config), rules, datetime.now(UTC)))
        removed = f"{swept.objects} objects and {swept.uploads} unfinished uploads removed"
        facts = {"bucket": config.bucket, "objects": swept.objects, "uploads": swept.uploads}
        _print(facts, f"{config.bucket}: {removed}", as_json)


def _unsupported(config: "BucketConfig", unsupported: "lifecycle.LifecycleUnsupported") -> CliExit:
    return CliExit(f"{config.where} ({unsupported.reason}) {_NO_LIFECYCLE}", Exit.REFUSED)


def _buckets(context: click.Context, data_dir: str | None) -> "list[KnownBucket]":
    from jobwire.wiring.backends import examined_systems, known_buckets

    loaded = options.running_settings(context, data_dir=("--data-dir", data_dir))
    found = known_buckets(loaded, examined_systems(loaded))
    if not found:
        raise CliExit(
            "no bucket is configured; set objects.endpoint, or run: jobwire up", Exit.USAGE
        )
    return found


def _print(result: Mapping[str, object], text: str, as_json: bool) -> None:
    if output.wants_json(as_json):
        output.json_line(result)
    else:
        click.echo(text)
