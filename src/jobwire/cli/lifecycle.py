"""`jobwire lifecycle`: the rules that expire old objects of the bucket."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import click

from jobwire.cli import options, output, sanitize
from jobwire.cli.exits import CliExit, Exit

if TYPE_CHECKING:
    from jobwire.objects import BucketConfig, lifecycle
    from jobwire.systems.backends import KnownBucket

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
        return subcommand(options.data_dir(options.as_json(function)))

    return decorate


@_subcommand("show", "Show every rule of the bucket, ours and others'.")
def show() -> None:
    from jobwire.objects import lifecycle
    from jobwire.objects.signed import SignedCalls

    for known in _buckets():
        found = asyncio.run(lifecycle.show(SignedCalls(known.config)))
        if isinstance(found, lifecycle.LifecycleUnsupported):
            raise _unsupported(known.config, found)
        _show_rules(known, found)


def _show_rules(known: "KnownBucket", found: "Sequence[lifecycle.StoredRule]") -> None:
    ours = {rule.id for rule in known.rules}
    if output.wants_json():
        for rule in found:
            output.json_line(
                {
                    "bucket": known.config.bucket,
                    "id": rule.id,
                    "ours": rule.id in ours,
                    "enabled": rule.enabled,
                    "prefix": rule.prefix,
                    "days": rule.days,
                }
            )
    elif found:
        rows = [("bucket", "rule", "owner", "prefix", "days", "")]
        for rule in found:
            owner = "ours" if rule.id in ours else "other"
            prefix = sanitize.line(rule.prefix) or "(everything)"
            state = "" if rule.enabled else "disabled"
            name = sanitize.line(rule.id)
            rows.append((known.config.bucket, name, owner, prefix, str(rule.days or "-"), state))
        output.columns(rows)
    else:
        output.info(f"{known.config.where} has no rules; set ours: jobwire lifecycle apply")


@_subcommand("apply", "Add our rules to the bucket; others' rules are kept.")
def apply() -> None:
    from jobwire.objects import lifecycle
    from jobwire.objects.signed import SignedCalls

    for config, rules, _ in _buckets():
        match asyncio.run(lifecycle.apply(SignedCalls(config), rules)):
            case lifecycle.Applied(kept):
                facts = {"bucket": config.bucket, "applied": len(rules), "kept": kept}
                output.result(facts, f"{config.bucket}: {len(rules)} rules set")
            case lifecycle.LifecycleUnchanged():
                text = f"{config.bucket}: nothing to do, the rules are set"
                output.result({"bucket": config.bucket, "applied": 0}, text)
            case lifecycle.LifecycleUnsupported() as unsupported:
                raise _unsupported(config, unsupported)


@_subcommand("sweep", "Remove expired objects now, for stores without lifecycle.")
def sweep() -> None:
    from datetime import UTC, datetime

    from jobwire.objects import Bucket
    from jobwire.objects.sweep import sweep as sweep_bucket

    for config, rules, _ in _buckets():
        swept = asyncio.run(sweep_bucket(Bucket(config), rules, datetime.now(UTC)))
        removed = f"{swept.objects} objects and {swept.uploads} unfinished uploads removed"
        facts = {"bucket": config.bucket, "objects": swept.objects, "uploads": swept.uploads}
        output.result(facts, f"{config.bucket}: {removed}")


def _unsupported(config: "BucketConfig", unsupported: "lifecycle.LifecycleUnsupported") -> CliExit:
    return CliExit(f"{config.where} ({unsupported.reason}) {_NO_LIFECYCLE}", Exit.REFUSED)


def _buckets() -> "list[KnownBucket]":
    from jobwire.systems.backends import examined_systems, known_buckets

    loaded = options.running_settings()
    found = known_buckets(loaded, examined_systems(loaded))
    if not found:
        raise CliExit(
            "no bucket is configured; set objects.endpoint, or run: jobwire up", Exit.USAGE
        )
    return found
