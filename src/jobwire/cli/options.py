"""Options that several commands share, and the settings with these options applied."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click

from jobwire.cli.output import info

if TYPE_CHECKING:
    from jobwire.settings import Loaded

as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
data_dir = click.option(
    "--data-dir", metavar="DIR", help="Data directory.  [env: JOBWIRE_DATA_DIR]"
)
port = click.option(
    "--port", metavar="N", help="HTTP port; 0: any free port.  [env: JOBWIRE_GATEWAY_PORT]"
)
host = click.option(
    "--host", metavar="ADDRESS", help="HTTP address to listen on.  [env: JOBWIRE_GATEWAY_HOST]"
)
only = click.option(
    "--only",
    metavar="SYSTEMS",
    help="Only these systems, as jobs,predictions.  [env: JOBWIRE_SYSTEMS]",
)


def _store_flag(context: click.Context, parameter: click.Parameter, value: object) -> None:
    context.meta[f"jobwire.{parameter.name}"] = value


_F = TypeVar("_F", bound=Callable[..., Any])


def valkey(command: _F) -> _F:
    """The options of the Valkey server. The password is given in a file, since other users of the
    machine can read the command line."""
    file = click.option(
        "--valkey-password-file",
        metavar="FILE",
        callback=_store_flag,
        expose_value=False,
        help="File with its password.  [env: JOBWIRE_VALKEY_PASSWORD_FILE]",
    )
    url = click.option(
        "--valkey",
        metavar="URL",
        help="Valkey server: valkey://user@host:6379/0.  [env: JOBWIRE_VALKEY_URL]",
    )
    return url(file(command))


quiet = click.option(
    "-q",
    "--quiet",
    is_flag=True,
    callback=_store_flag,
    expose_value=False,
    help="Print only the result, no messages.",
)
no_progress = click.option(
    "--no-progress",
    is_flag=True,
    callback=_store_flag,
    expose_value=False,
    help="Print lines only; redraw nothing.",
)


def running_settings(context: click.Context, **values: tuple[str, str | None]) -> "Loaded":
    """The same for commands that use the running program: without a data directory of the settings,
    the one of the nearest parent folder in which a program runs."""
    from dataclasses import replace

    from jobwire import endpoints

    loaded = settings(context, **values)
    if loaded.is_set("data_dir"):
        return loaded
    nearest = endpoints.nearest(loaded.settings.data_dir)
    return replace(loaded, settings=replace(loaded.settings, data_dir=nearest))


def settings(context: click.Context, **values: tuple[str, str | None]) -> "Loaded":
    """Load the settings with the options of this command.

    Each argument is a setting's path (`__` for the dot) with the option's name and its text.
    """
    from jobwire.redaction import register_secrets
    from jobwire.settings import load

    options = {
        path.replace("__", "."): (option, text)
        for path, (option, text) in values.items()
        if text is not None
    }
    password_file = context.meta.get("jobwire.valkey_password_file")
    if password_file is not None:
        options["valkey.password_file"] = ("--valkey-password-file", password_file)
    # A malformed URL is reported by `load`.
    with contextlib.suppress(ValueError):
        if urlsplit(options.get("valkey.url", ("", ""))[1]).password:
            info(
                "jobwire: warning: a password on the command line can be read by other users of "
                "this machine; give it by --valkey-password-file or JOBWIRE_VALKEY_URL"
            )
    file: Path | None = context.find_root().params.get("config")
    loaded = load(options, file=file)
    register_secrets(loaded.secrets)
    for warning in loaded.warnings:
        info(f"jobwire: warning: {warning}")
    return loaded
