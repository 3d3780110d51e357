"""`jobwire valkey`: send a command to the server of the running program, with its credentials."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

import click

from jobwire.cli import options, output, sanitize
from jobwire.cli.exits import CliExit, Exit

if TYPE_CHECKING:
    from jobwire.valkey import Config, Reply


_ANY_TAG: Final = "jobwire"


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@options.valkey
@options.data_dir
@options.as_json
@click.argument("words", metavar="COMMAND [ARGUMENT]...", nargs=-1, required=True)
def command(words: Sequence[str]) -> None:
    """Send a command to the Valkey of the running program, or of the settings, and print its reply:
    a value per line, without quotes.

    Commands that wait or subscribe are refused.

    \b
    Examples:
      jobwire valkey INFO persistence
      jobwire valkey CONFIG GET appendfsync
      jobwire valkey HGETALL job:4f0c…
    """
    from jobwire.systems.backends import known_valkey
    from jobwire.valkey import ServerError, ValkeyError
    from jobwire.valkey.errors import ConfigError

    found = known_valkey(options.running_settings())
    if found is None:
        raise CliExit(
            "no server is known: nothing runs here, and valkey.url is not set. "
            "To start everything: jobwire up",
            Exit.UNREACHABLE,
        )
    try:
        reply = asyncio.run(_ask(found.config, words))
    except (ServerError, ConfigError) as error:
        raise CliExit(sanitize.line(str(error)), Exit.REFUSED) from error
    except ValueError as error:
        name = sanitize.line(words[0].upper())
        raise CliExit(
            f"{name} waits or changes the connection; it is not sent", Exit.USAGE
        ) from error
    except ValkeyError as error:
        raise CliExit(
            f"the server does not answer: {sanitize.line(str(error))}", Exit.UNREACHABLE
        ) from error
    if output.has_flag("json"):
        output.json_line(reply)
        return
    for line in _lines(reply):
        click.echo(line)


async def _ask(config: "Config", words: Sequence[str]) -> "Reply":
    from jobwire.valkey import Connection
    from jobwire.valkey.cluster import redirected_to
    from jobwire.valkey.dialer import find_server
    from jobwire.valkey.errors import Moved

    if config.nodes and not config.tag:
        # Any node, and by its answer the one that has the key.
        at = await find_server(replace(config, tag=_ANY_TAG))
    else:
        at = config
    try:
        async with Connection.open(at, name="jobwire-cli") as connection:
            return await connection.call(*words)
    except Moved as moved:
        node = config.of_node(redirected_to(moved))
        async with Connection.open(node, name="jobwire-cli") as connection:
            return await connection.call(*words)


def _lines(reply: object) -> Iterator[str]:
    match reply:
        case None:
            yield "(nil)"
        case str():
            yield sanitize.text(reply).rstrip("\n")
        case Mapping():
            for name, value in cast("Mapping[object, object]", reply).items():
                yield from _lines(name)
                yield from _lines(value)
        case Sequence() | set() | frozenset():
            for each in cast("Sequence[object]", reply):
                yield from _lines(each)
        case _:
            yield str(reply)
