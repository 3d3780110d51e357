"""`jobwire schema`: print the JSON Schema of the jobs wire, for foreign programs."""

import click

from jobwire.cli.exits import CliExit, Exit
from jobwire.text import did_you_mean


@click.command()
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """Print the JSON Schema of the jobs wire: payloads, events and messages.

    \b
    Examples:
      jobwire schema > streams.schema.json
      jobwire schema payload.chat      one definition
    """
    import msgspec

    from jobwire.wiring.schema import definition, schema

    found = schema() if name is None else definition(name)
    if found is None:
        known = sorted(schema()["$defs"])
        hint = did_you_mean(name or "", known) or f"; known: {', '.join(known)}"
        raise CliExit(f"there is no schema named {name!r}{hint}", Exit.USAGE)
    click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
