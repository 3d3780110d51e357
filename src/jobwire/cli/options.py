"""What several commands have in common: options, and the settings with the options on top."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click

from jobwire.cli.output import say

if TYPE_CHECKING:
    from jobwire.settings import Loaded

as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
data_dir = click.option(
    "--data-dir", metavar="DIR", help="Where data is kept.  [env: JOBWIRE_DATA_DIR]"
)
port = click.option(
    "--port", metavar="N", help="Port of the HTTP side; 0 is any.  [env: JOBWIRE_GATEWAY_PORT]"
)
host = click.option(
    "--host", metavar="ADDRESS", help="Address of the HTTP side.  [env: JOBWIRE_GATEWAY_HOST]"
)


def _wish(context: click.Context, parameter: click.Parameter, value: object) -> None:
    context.meta[f"jobwire.{parameter.name}"] = value


_F = TypeVar("_F", bound=Callable[..., Any])


def valkey(command: _F) -> _F:
    """How to reach the server. Passwords do not belong on a command line, where everybody on this
    machine reads them."""
    file = click.option(
        "--valkey-password-file",
        metavar="FILE",
        callback=_wish,
        expose_value=False,
        help="Its password, in a file.  [env: JOBWIRE_VALKEY_PASSWORD_FILE]",
    )
    url = click.option(
        "--valkey",
        metavar="URL",
        help="The server, as valkey://user@host:6379/0.  [env: JOBWIRE_VALKEY_URL]",
    )
    return url(file(command))


quiet = click.option(
    "-q",
    "--quiet",
    is_flag=True,
    callback=_wish,
    expose_value=False,
    help="Only the answer, no talk beside it.",
)
no_progress = click.option(
    "--no-progress",
    is_flag=True,
    callback=_wish,
    expose_value=False,
    help="Lines as they come, and nothing drawn over.",
)


def settings(context: click.Context, **given: tuple[str, str | None]) -> "Loaded":
    """The settings, with the options of this command on top.

    Each argument is a setting's path (`__` for the dot): the option's name, and what it was given.
    """
    from jobwire.settings import load

    options = {
        path.replace("__", "."): (option, text)
        for path, (option, text) in given.items()
        if text is not None
    }
    password_file = context.meta.get("jobwire.valkey_password_file")
    if password_file is not None:
        options["valkey.password_file"] = ("--valkey-password-file", password_file)
    # A URL that cannot be read is refused by `load`, with its place.
    with contextlib.suppress(ValueError):
        if urlsplit(options.get("valkey.url", ("", ""))[1]).password:
            say(
                "jobwire: warning: a password on the command line can be read by everybody on "
                "this machine; give it by --valkey-password-file or JOBWIRE_VALKEY_URL"
            )
    file: Path | None = context.find_root().params.get("config")
    loaded = load(options, file=file)
    for warning in loaded.warnings:
        say(f"jobwire: warning: {warning}")
    return loaded
