"""Vendored files equal those of their packages, and the page stays small."""

from __future__ import annotations

import gzip
import hashlib
import re
from importlib.resources import files
from pathlib import Path
from typing import Final

import pytest

from tests.support import clause

PAGE: Final = Path(str(files("jobwire.page")))
STATIC: Final = PAGE / "static"
_ROW: Final = re.compile(r"^\| `(\S+)` \| (\S+ \S+).*\| `([0-9a-f]{64})` \|$", re.MULTILINE)
_FILE: Final = re.compile(r'(?:src|href)="([\w/.-]+)"')
_IMPORT: Final = re.compile(r'^(?:import|export)\b[^"()]*"(\.[^"]+)"', re.MULTILINE)
# With one screen; the others, the submit sheet and plots are loaded when they are shown.
FIRST_VISIT_BYTES: Final = 50_000
ALL_BYTES: Final = 320_000
_SCREEN: Final = re.compile(r'styled\("([\w ]+)", import\("\./(\w+)\.js"\)\)')
SCREENS: Final = _SCREEN.findall((STATIC / "js/screens/index.js").read_text())


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
def test_o04_the_page_needs_no_build_and_no_other_host() -> None:
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
    """Without plots."""
    every = [file for file in _own_files() if "uplot" not in file.parts]
    assert sum(file.stat().st_size for file in every) < ALL_BYTES


@clause("O-4")
@pytest.mark.parametrize(("styles", "screen"), SCREENS)
def test_o04_a_screen_loads_no_code_of_another_screen(styles: str, screen: str) -> None:
    """What a first visit loads in any case; `test_page` counts what a browser transfers."""
    index = STATIC / "index.html"
    named = [STATIC / name for name in _FILE.findall(index.read_text())]
    module = STATIC / f"js/screens/{screen}.js"
    first = _with_imports(index, *named, module)
    first |= {STATIC / f"style/{name}.css" for name in styles.split()}
    assert {file for file in first if file.parent == module.parent} == {
        module,
        module.with_name("index.js"),
    }
    sizes = {str(file.relative_to(STATIC)): len(gzip.compress(file.read_bytes())) for file in first}
    assert "js/shell.js" in sizes
    assert sum(sizes.values()) < FIRST_VISIT_BYTES, sizes


def _with_imports(*files: Path) -> set[Path]:
    """The files, and all modules that are loaded with them."""
    found: set[Path] = set()
    waiting = list(files)
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            if file.suffix == ".js":
                names = _IMPORT.findall(file.read_text())
                waiting += [(file.parent / name).resolve() for name in names]
    return found
