"""`python -m jobwire.settings.page > docs/settings.md`: writes the page of all settings."""

import sys
from collections.abc import Collection, Iterator
from itertools import starmap
from typing import Final

from jobwire.settings.schema import Leaf, Section, descriptions, sections
from jobwire.settings.tree import Settings
from jobwire.settings.values import show

_HEAD: Final = """\
# Settings

Generated from the code by `python -m jobwire.settings.page`.

```yaml
# jobwire.yaml
valkey:
  url: valkey://127.0.0.1:6379/0
worker:
  slots: 20
```

Precedence: command line, environment, `jobwire.yaml` (in the working directory, or
`--config FILE`, or `JOBWIRE_CONFIG`), defaults. In the file a section is a mapping. In the
environment a setting is `JOBWIRE_`, its section and its name, as `JOBWIRE_VALKEY_URL`; an empty
variable counts as not set, an unknown `JOBWIRE_…` is an error. The column `also` has further
names in the environment, from the documents that jobwire implements.

Durations are written `250ms`, `5s`, `1h30m`; a plain number is seconds. Lists are written with
commas, lists of mappings as JSON. `jobwire config` prints every value and its source.

In Kubernetes, a service named `jobwire` sets variables such as `JOBWIRE_PORT` in every pod; set
`enableServiceLinks: false`, or choose another name.
"""


def page() -> str:
    """Return the whole page."""
    return "\n".join(
        [
            _HEAD,
            *(line for section in sections(Settings) for line in _section(section)),
        ]
    )


def _section(section: Section) -> Iterator[str]:
    texts = descriptions(section)
    yield f"## {section.path or 'Top level'}\n"
    yield "| name | default | meaning | also |\n|---|---|---|---|"
    for leaf in section.leaves:
        also = ", ".join(f"`{other}`" for other in leaf.foreign_names)
        yield f"| `{leaf.name}` | {_default(leaf)} | {texts.get(leaf.path, '')} | {also} |"
    if section.ignored:
        yield f"\nAccepted and ignored: {', '.join(starmap(_ignored, section.ignored.items()))}."
    yield ""


def _ignored(name: str, values: Collection[str] | None) -> str:
    return f"`{name}`" if values is None else f"`{name}` if it is {' or '.join(sorted(values))}"


def _default(leaf: Leaf) -> str:
    shown = show(leaf.default)
    return "" if shown in ("", None, []) else f"`{str(shown).lower()}`"


if __name__ == "__main__":
    sys.stdout.write(page())
