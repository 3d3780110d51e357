"""`jobwire schema`: print the JSON Schema of a system's messages, for foreign programs."""

import click

from jobwire.cli.exits import CliExit, Exit
from jobwire.text import did_you_mean


@click.command()
@click.argument("name", required=False)
@click.option("--system", default="jobs", show_default=True, help="The system.")
def command(name: str | None, system: str) -> None:
    """Print the JSON Schema of a system: payloads, events and messages.

    \b
    Examples:
      jobwire schema > streams.schema.json
      jobwire schema payload.chat      one definition, of any system
    """
    import msgspec

    from jobwire.programs.schema import definition, names, schema

    if name is None:
        found = schema(system)
        if found is None:
            raise CliExit(f"the system {system} has no schema", Exit.USAGE)
    else:
        found = definition(name)
    if found is None:
        known = names()
        hint = did_you_mean(name or "", known) or f"; known: {', '.join(known)}"
        raise CliExit(f"there is no schema named {name!r}{hint}", Exit.USAGE)
    click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
