"""`jobwire keys`: API keys in the file `gateway.keys_file`, which running gateways follow."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from jobwire.cli import options, output
from jobwire.cli.exits import CliExit, Exit

_in_file: Final[Callable[[Any], Any]] = click.option(
    "--file", type=click.Path(path_type=Path), help="The file; else that of gateway.keys_file."
)


@click.group()
def command() -> None:
    """Create, list and revoke API keys of running gateways.

    They are in the file of the setting gateway.keys_file; a change holds within a second.

    \b
    Examples:
      jobwire keys create ci --scope submit --scope read
      jobwire keys revoke ci
    """


@command.command("create")
@click.argument("name")
@options.tenant_and_scopes
@_in_file
@options.as_json
def create(name: str, tenant: str, scopes: tuple[str, ...], file: Path | None) -> None:
    """Create a key. It is shown once; the file has only its hash."""
    from jobwire.programs.keys import create_key

    path = _path(file)
    key = create_key(path, name, tenant, scopes)
    if key is None:
        raise CliExit(f"{path} has a key named {name!r}; revoke it first", Exit.REFUSED)
    if output.wants_json():
        output.json_line({"key": key, "name": name, "tenant": tenant, "scopes": scopes})
        return
    click.echo(key)
    output.info(f"\nStore it: it is not shown again. Its hash is in {path}.")


@command.command("list")
@_in_file
@options.as_json
def list_(file: Path | None) -> None:
    """List the keys of the file."""
    from jobwire.programs.keys import read_keys

    keys = read_keys(_path(file))
    if output.wants_json():
        for key in keys:
            output.json_line({"name": key.name, "tenant": key.tenant, "scopes": key.scopes})
    elif keys:
        rows = [(key.name, key.tenant, ", ".join(key.scopes)) for key in keys]
        output.table([("name", "tenant", "scopes"), *rows])


@command.command("revoke")
@click.argument("names", nargs=-1, required=True)
@_in_file
def revoke(names: tuple[str, ...], file: Path | None) -> None:
    """Revoke keys: their requests are refused within a second, their event streams end."""
    from jobwire.programs.keys import revoke_keys

    path = _path(file)
    if unknown := revoke_keys(path, names):
        raise CliExit(f"{path} has no key named {unknown[0]!r}", Exit.NOT_FOUND)
    output.info(f"revoked: {', '.join(names)}")


def _path(file: Path | None) -> Path:
    if file is not None:
        return file
    if not (given := options.settings().settings.gateway.keys_file):
        raise CliExit(
            "gateway.keys_file is not set: set it for the gateways and here, or give --file",
            Exit.USAGE,
        )
    return Path(given).expanduser()
