"""`jobwire lifecycle`: the rules by which old objects leave the bucket."""

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
    """The rules by which old objects leave the bucket.

    \b
    Examples:
      jobwire lifecycle show
      jobwire lifecycle apply
    """


def _verb(name: str, help_text: str) -> Callable[[Callable[..., None]], click.Command]:
    def decorate(function: Callable[..., None]) -> click.Command:
        verb = command.command(name, help=help_text)
        return verb(options.data_dir(options.as_json(click.pass_context(function))))

    return decorate


@_verb("show", "Every rule that the bucket has, ours and others'.")
def show(context: click.Context, data_dir: str | None, as_json: bool) -> None:
    from jobwire.objects import lifecycle
    from jobwire.objects.signed import SignedCalls
    from jobwire.wiring.bucket import RULES

    config = _config(context, data_dir)
    found = asyncio.run(lifecycle.show(SignedCalls(config)))
    if isinstance(found, lifecycle.LifecycleUnsupported):
        raise CliExit(f"{config.where} ({found.told}) {_NO_LIFECYCLE}", Exit.REFUSED)
    ours = {rule.id for rule in RULES}
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
        head = ("rule", "whose", "prefix", "days", "")
        output.columns(
            [head]
            + [
                (
                    sanitize.line(str(row["id"])),
                    "ours" if row["ours"] else "theirs",
                    sanitize.line(str(row["prefix"])) or "(everything)",
                    str(row["days"] or "-"),
                    "" if row["enabled"] else "switched off",
                )
                for row in rows
            ]
        )
    else:
        output.say(f"{config.where} has no rules; to set ours: jobwire lifecycle apply")


@_verb("apply", "Set our rules into the bucket's; others' stay as they are.")
def apply(context: click.Context, data_dir: str | None, as_json: bool) -> None:
    from jobwire.objects import lifecycle
    from jobwire.objects.signed import SignedCalls
    from jobwire.wiring.bucket import RULES

    config = _config(context, data_dir)
    match asyncio.run(lifecycle.apply(SignedCalls(config), RULES)):
        case lifecycle.Applied(kept):
            _tell({"applied": len(RULES), "kept": kept}, f"{len(RULES)} rules set", as_json)
        case lifecycle.Unchanged():
            _tell({"applied": 0}, "nothing to do: the rules are there", as_json)
        case lifecycle.LifecycleUnsupported(told):
            raise CliExit(f"{config.where} ({told}) {_NO_LIFECYCLE}", Exit.REFUSED)


@_verb("sweep", "Remove now what the rules would remove, for stores without lifecycle.")
def sweep(context: click.Context, data_dir: str | None, as_json: bool) -> None:
    from datetime import UTC, datetime

    from jobwire.objects import Bucket
    from jobwire.objects.sweep import sweep as sweep_bucket
    from jobwire.wiring.bucket import RULES

    config = _config(context, data_dir)
    swept = asyncio.run(sweep_bucket(Bucket(config), RULES, datetime.now(UTC)))
    words = f"{swept.objects} objects and {swept.uploads} unfinished uploads removed"
    _tell({"objects": swept.objects, "uploads": swept.uploads}, words, as_json)


def _config(context: click.Context, data_dir: str | None) -> "BucketConfig":
    from jobwire.wiring.bucket import known_bucket

    known = known_bucket(options.settings(context, data_dir=("--data-dir", data_dir)))
    if known is None:
        raise CliExit("no bucket is named; set objects.endpoint, or run: jobwire up", Exit.USAGE)
    return known.config


def _tell(answer: dict[str, int], words: str, as_json: bool) -> None:
    if output.wants_json(as_json):
        output.json_line(answer)
    else:
        click.echo(words)
