"""The environment that the suite and its programs run in: that of the caller's shell, without the
variables that would change what is tested.

A key of OpenAI, a profile of AWS, a setting of jobwire or `FORCE_COLOR` is in many shells.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Final

from jobwire.settings.schema import PREFIX, sections
from jobwire.settings.sources import TEST_PREFIX
from jobwire.settings.tree import Settings

_KEPT: Final = (
    TEST_PREFIX,
    "GIT_SSL_",
    "JOBWIRE_BULLMQ_EXAMPLES",
    "JOBWIRE_CHANGED_SINCE",
    "NODE_EXTRA_CA_CERTS",
    "PYTHONHASHSEED",
    "PYTHONPATH",
    "PYTHONUNBUFFERED",
)
_PREFIXES: Final = (
    PREFIX,
    "AWS_",
    "CLICOLOR",
    "COG_",
    "DOCKER_",
    "GIT_",
    "MAKE",
    "NODE_",
    "OPENAI_",
    "OTEL_",
    "PG",
    "PYTHON",
    "REPLICATE_",
    "VIPS_",
)
_NAMES: Final = ("COLUMNS", "DEBUG", "FORCE_COLOR", "LINES", "MFLAGS", "NO_COLOR", "PORT")
_LOOPBACK: Final = "localhost,127.0.0.1,::1"


def clean(environ: MutableMapping[str, str]) -> None:
    """Remove what would change a test. Packages may come by a proxy, but loopback has none."""
    settings = set(_names_of_settings())
    for name in tuple(environ):
        decides = name in settings or name in _NAMES or name.startswith(_PREFIXES)
        if decides and not name.startswith(_KEPT):
            del environ[name]
    for name in ("no_proxy", "NO_PROXY"):
        others = environ.get(name)
        environ[name] = f"{_LOOPBACK},{others}" if others else _LOOPBACK


def _names_of_settings() -> Iterator[str]:
    """The names that the source documents give to settings."""
    for section in sections(Settings):
        for leaf in section.leaves:
            yield from leaf.foreign_names
        yield from (section.prefix + name.upper() for name in section.ignored if section.prefix)
