"""Hooks of mkdocs for the site of the documentation (`make docs`).

The pages are written for the code host: plain relative links, also to files outside of `docs/`.
Here the pages outside of `docs/` join the site, links to them are adapted, and placeholders such as
`<!-- generated: http-api -->` are replaced by what `docs_reference.py` makes from the code.
"""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final, Protocol

from tools.docs_reference import GENERATORS

ROOT: Final = Path(__file__).parent.parent
# Pages outside of `docs/`; their place in the site is their place in the project.
OUTSIDE: Final = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "deploy/README.md",
    "deploy/functions/README.md",
    "deploy/systemd/README.md",
    "examples/README.md",
)
_GENERATED: Final = re.compile(r"^<!-- generated: ([a-z-]+) -->$", re.MULTILINE)
_LINK: Final = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)([^)#\s]+)")
_DOCS: Final = PurePosixPath("docs")


class _File(Protocol):
    src_uri: str


class _Page(Protocol):
    file: _File


def on_files(files: Any, config: Any) -> Any:
    """Add the pages outside of `docs/`."""
    # By name: the tests import this module without mkdocs.
    file: Any = importlib.import_module("mkdocs.structure.files").File
    for path in OUTSIDE:
        files.append(file.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: _Page, **_: object) -> str:
    """Adapt the links, and fill in what is made from the code."""
    whole = _GENERATED.sub(lambda found: GENERATORS[found[1]](), markdown)
    return _LINK.sub(lambda found: site_link(page.file.src_uri, found[1]), whole)


def site_link(page: str, target: str) -> str:
    """A link of the project as one of the site: `docs/` is the site's root."""
    source = PurePosixPath(page) if page in OUTSIDE else _DOCS / page
    parts = list(_resolved(source.parent / target))
    place = PurePosixPath(*parts)
    if place.is_relative_to(_DOCS):
        place = place.relative_to(_DOCS)
    elif str(place) not in OUTSIDE:
        return target
    here = PurePosixPath(page).parent
    common = 0
    for ours, theirs in zip(here.parts, place.parts[:-1], strict=False):
        if ours != theirs:
            break
        common += 1
    return str(PurePosixPath(*[".."] * (len(here.parts) - common), *place.parts[common:]))


def _resolved(path: PurePosixPath) -> Iterator[str]:
    """The parts of a path without `..`."""
    kept: list[str] = []
    for part in path.parts:
        if part == "..":
            kept.pop()
        else:
            kept.append(part)
    return iter(kept)
