"""Options that several commands share, and the settings with these options applied.

None of them is a parameter of the command's function: `settings` reads those that are settings,
`output` reads the flags.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import click

from jobwire.cli.output import info

if TYPE_CHECKING:
    from jobwire.settings import Loaded

_F = TypeVar("_F", bound=Callable[..., Any])
_SETTINGS: Final = "jobwire.settings"


def setting(
    option: str,
    path: str,
    *,
    short: str = "",
    metavar: str | None = None,
    flag: str | None = None,
    help_text: str,
) -> Callable[[_F], _F]:
    """An option that sets the setting at `path`: to its text, or as a flag to this value."""

    def store(
        context: click.Context, _parameter: click.Parameter, value: str | bool | None
    ) -> None:
        if value is not None and value is not False:
            context.meta.setdefault(_SETTINGS, {})[path] = (option, flag or value)

    return click.option(
        *([short] if short else []),
        option,
        metavar=metavar,
        is_flag=flag is not None,
        callback=store,
        expose_value=False,
        help=help_text,
    )


data_dir = setting(
    "--data-dir", "data_dir", metavar="DIR", help_text="Data directory.  [env: JOBWIRE_DATA_DIR]"
)
port = setting(
    "--port",
    "gateway.port",
    metavar="N",
    help_text="HTTP port; 0: any free port.  [env: JOBWIRE_GATEWAY_PORT]",
)
host = setting(
    "--host",
    "gateway.host",
    metavar="ADDRESS",
    help_text="HTTP address to listen on.  [env: JOBWIRE_GATEWAY_HOST]",
)
only = setting(
    "--only",
    "systems",
    metavar="SYSTEMS",
    help_text="Only these systems, as jobs,predictions.  [env: JOBWIRE_SYSTEMS]",
)
_valkey_url = setting(
    "--valkey",
    "valkey.url",
    metavar="URL",
    help_text="Valkey server: valkey://user@host:6379/0.  [env: JOBWIRE_VALKEY_URL]",
)
_valkey_password = setting(
    "--valkey-password-file",
    "valkey.password_file",
    metavar="FILE",
    help_text="File with its password.  [env: JOBWIRE_VALKEY_PASSWORD_FILE]",
)


def valkey(command: _F) -> _F:
    """The options of the Valkey server. The password is given in a file, since other users of the
    machine can read the command line."""
    return _valkey_url(_valkey_password(command))


def _flag(*names: str, help_text: str) -> Callable[[_F], _F]:
    """A flag that `output` reads."""

    def store(context: click.Context, parameter: click.Parameter, value: object) -> None:
        context.meta[f"jobwire.{parameter.name}"] = value

    return click.option(*names, is_flag=True, callback=store, expose_value=False, help=help_text)


as_json = _flag("--json", help_text="One JSON object per line.")
quiet = _flag("-q", "--quiet", help_text="Print only the result, no messages.")
no_progress = _flag("--no-progress", help_text="Print lines only; redraw nothing.")
yes = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
timeout = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Stop following after S seconds; the job continues.",
)
ready_fd = click.option(
    "--ready-fd", type=int, hidden=True, help="File descriptor to report readiness on."
)

reloader_fd = click.option(
    "--reloader-fd", type=int, hidden=True, help="File descriptor on which --reload is told."
)


def common(command: _F) -> _F:
    """The options of most commands that use the running program."""
    return quiet(as_json(data_dir(command)))


def tenant_and_scopes(command: _F) -> _F:
    """The options of a new API key."""
    tenant = click.option(
        "--tenant", default="default", show_default=True, help="The tenant of the key."
    )
    scopes = click.option(
        "--scope",
        "scopes",
        multiple=True,
        required=True,
        type=click.Choice(["submit", "read", "signal", "admin"]),
        help="Scope of the key; may be repeated. admin includes the others.",
    )
    return tenant(scopes(command))


def page(what: str) -> Callable[[_F], _F]:
    """The options of a list that is read in pages."""
    limit = click.option(
        "--limit",
        type=click.IntRange(1, 200),
        default=20,
        show_default=True,
        help=f"Maximum number of {what}.",
    )
    cursor = click.option("--cursor", metavar="CURSOR", help="Continue after the last list.")
    return lambda command: limit(cursor(command))


def given_data_dir() -> str | None:
    """The text of `--data-dir`."""
    return click.get_current_context().meta.get(_SETTINGS, {}).get("data_dir", ("", None))[1]


def settings(**values: tuple[str, str]) -> "Loaded":
    """Load the settings with the options of this command.

    Further values: a setting's path (`__` for the dot) with the name of what gives it and its text.
    """
    from jobwire.redaction import register_secrets
    from jobwire.settings import SettingsError, load

    context = click.get_current_context()
    options: dict[str, tuple[str, str]] = {
        **context.meta.get(_SETTINGS, {}),
        **{path.replace("__", "."): value for path, value in values.items()},
    }
    # A malformed URL is reported by `load`.
    with contextlib.suppress(ValueError):
        if urlsplit(options.get("valkey.url", ("", ""))[1]).password:
            info(
                "jobwire: warning: a password on the command line can be read by other users of "
                "this machine; give it by --valkey-password-file or JOBWIRE_VALKEY_URL"
            )
    file: Path | None = context.find_root().params.get("config")
    try:
        loaded = load(options, file=file)
    except SettingsError:
        role = _role_keys()
        if not role:
            raise
        # An endpoint without keys of its own, as the functions have it.
        loaded = load({**role, **options}, file=file)
    register_secrets(loaded.secrets)
    for warning in loaded.warnings:
        info(f"jobwire: warning: {warning}")
    return loaded


def _role_keys() -> dict[str, tuple[str, str]]:
    """The keys of a cloud's role, as settings; none where other keys are in the environment."""
    from jobwire.objects.settings import ROLE_KEYS

    others = ("JOBWIRE_OBJECTS_ACCESS_KEY", "MINIO_ACCESS_KEY_ID")
    if any(os.environ.get(name) for name in others):
        return {}
    found = {name: os.environ.get(name, "") for name in ROLE_KEYS}
    return {f"objects.{ROLE_KEYS[name]}": (name, text) for name, text in found.items() if text}


def running_settings() -> "Loaded":
    """The same for commands that use the running program: without a data directory of the settings,
    the one of the nearest parent folder in which a program runs."""
    from dataclasses import replace

    from jobwire import endpoints

    loaded = settings()
    if loaded.is_set("data_dir"):
        return loaded
    nearest = endpoints.nearest(loaded.settings.data_dir)
    return replace(loaded, settings=replace(loaded.settings, data_dir=nearest))
