"""`python -m jobwire.settings.page > docs/settings.md`: the page that lists every setting."""

import sys
from collections.abc import Iterator
from typing import Final

from jobwire.settings.schema import Leaf, Section, sections, words
from jobwire.settings.tree import Settings
from jobwire.settings.values import show

_HEAD: Final = """\
# Settings

Made from the code by `python -m jobwire.settings.page`.

The command line wins over the environment, the environment over `jobwire.yaml` (in the working
directory, or `--config FILE`, or `JOBWIRE_CONFIG`), the file over the defaults. In the file a
section is a mapping; in the environment a setting is `JOBWIRE_`, its section and its name, as
`JOBWIRE_VALKEY_URL`. An empty variable counts as not given; an unknown `JOBWIRE_…` is a fault.
Some settings have a second name in the environment, from the documents that jobwire implements.

Durations are written `250ms`, `5s`, `1h30m`; a bare number is seconds. Lists are written with
commas, lists of mappings as JSON. `jobwire config` prints every value and where it came from.

In Kubernetes, a service named `jobwire` puts variables such as `JOBWIRE_PORT` into every pod; set
`enableServiceLinks: false`, or name it otherwise.
"""


def page() -> str:
    """The whole page."""
    return "\n".join(
        [_HEAD, *(line for section in sections(Settings) for line in _section(section))]
    )


def _section(section: Section) -> Iterator[str]:
    said = words(section)
    yield f"## {section.path or 'At the top'}\n"
    yield "| name | default | what it is | also |\n|---|---|---|---|"
    for leaf in section.leaves:
        name = leaf.path.rpartition(".")[2]
        also = ", ".join(f"`{other}`" for other in leaf.foreign_names)
        yield f"| `{name}` | {_default(leaf)} | {said.get(leaf.path, '')} | {also} |"
    if section.void:
        yield f"\nUnderstood and ignored: {', '.join(f'`{name}`' for name in section.void)}."
    yield ""


def _default(leaf: Leaf) -> str:
    shown = show(leaf.default)
    return "" if shown in ("", None, []) else f"`{str(shown).lower()}`"


if __name__ == "__main__":
    sys.stdout.write(page())
