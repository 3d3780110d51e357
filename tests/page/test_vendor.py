"""The files of others are those of their packages, and the page stays small."""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files
from pathlib import Path
from typing import Final

from tests.support import clause

PAGE: Final = Path(str(files("jobwire.page")))
STATIC: Final = PAGE / "static"
_ROW: Final = re.compile(r"^\| `(\S+)` \| (\S+ \S+).*\| `([0-9a-f]{64})` \|$", re.MULTILINE)
# With the submit sheet and a screen; plots are loaded by those that show one.
FIRST_VISIT_BYTES: Final = 100_000
ALL_BYTES: Final = 240_000


def _own_files() -> list[Path]:
    return [file for file in STATIC.rglob("*") if file.is_file() and "LICENSE" not in file.name]


@clause("O-4")
def test_o04_vendored_files_are_unchanged_and_named() -> None:
    rows = _ROW.findall((PAGE / "VENDOR.md").read_text())
    vendor = STATIC / "vendor"
    assert {name for name, _, _ in rows} == {
        str(file.relative_to(vendor)) for file in vendor.rglob("*") if file.is_file()
    }
    assert {package for _, package, _ in rows} == {"lit-html 3.3.3", "uplot 1.6.32"}
    for name, _, digest in rows:
        assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == digest, name


@clause("O-4")
def test_o04_the_page_needs_no_build_and_nothing_from_elsewhere() -> None:
    for file in _own_files():
        text = file.read_text()
        if "vendor" not in file.parts:
            assert "http://" not in text.replace("http://www.w3.org/2000/svg", ""), file
            assert "https://" not in text, file
            assert "innerHTML" not in text, file
        if file.suffix in (".html", ".js") and "vendor" not in file.parts:
            # A style attribute would be blocked by the policy.
            assert not re.search(r"\sstyle=[\"$]", text), file


@clause("O-4")
def test_o04_the_page_is_small() -> None:
    """Without plots, and without the screens that are not open."""
    sizes = {
        str(file.relative_to(STATIC)): file.stat().st_size
        for file in _own_files()
        if "uplot" not in file.parts and file.name != "plot.js"
    }
    assert sum(sizes.values()) < ALL_BYTES, sizes
    later = (
        *("js/screens/", "js/submit.js", "js/lifeline.js", "js/wire.js"),
        *("js/pictures.js", "js/uploads.js", "js/events.js", "style/media.css"),
    )
    first = {name: size for name, size in sizes.items() if not name.startswith(later)}
    first["js/screens/index.js"] = sizes["js/screens/index.js"]
    now = sizes["js/screens/now.js"]
    assert sum(first.values()) + now < FIRST_VISIT_BYTES, first
