"""docs/limits.md has every place where a caller's bytes may meet a pattern, a parser, a schema, a
path or a URL, and settings that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from jobwire.settings import load
from tests.docs.limit_tests import TESTS
from tests.support import clause
from tests.support.program import ROOT

SOURCE: Final = ROOT / "src" / "jobwire"
FOLDERS: Final = ("gateway", "json_schema", "systems")
PATTERN, PARSER, SCHEMA, PATH, URL = "regular expression", "parser", "schema", "path", "URL"
CALLS: Final = {
    **{f"re.{name}": PATTERN for name in ("compile", "match", "fullmatch", "search", "sub")},
    **{f"re.{name}": PATTERN for name in ("findall", "finditer", "split", "subn")},
    **dict.fromkeys(("msgspec.json.decode", "msgspec.json.Decoder", "json.loads"), PARSER),
    **dict.fromkeys(("json.load", "msgspec.msgpack.decode", "b64decode"), PARSER),
    **dict.fromkeys(("bounded", "httptools.HttpRequestParser"), PARSER),
    "SchemaValidator": SCHEMA,
    **dict.fromkeys(("Path", "PurePath", "open"), PATH),
    **dict.fromkeys(("urlsplit", "urlparse", "urljoin", "parse_qs", "parse_qsl"), URL),
    **dict.fromkeys(("unquote", "httptools.parse_url", "ipaddress.ip_address"), URL),
}
_ROW: Final = re.compile(r"^\| `([\w/]+\.py)` \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
_BOUND: Final = re.compile(r"^\| ([^|]+) \| [^|]+ \| .*\|$", re.MULTILINE)
_SETTING: Final = re.compile(r"`((?:gateway|jobs|images|predictions|queues|valkey)\.[a-z_]+)`")


def _calls(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            function = node.func.value if isinstance(node.func, ast.Subscript) else node.func
            yield ast.unparse(function)


def kinds(source: str) -> set[str]:
    """What a module has, by the functions that it calls."""
    return {CALLS[name] for name in _calls(source) if name in CALLS}


def _found() -> dict[str, set[str]]:
    files = [file for folder in FOLDERS for file in (SOURCE / folder).rglob("*.py")]
    found = {str(file.relative_to(SOURCE)): kinds(file.read_text()) for file in files}
    return {module: has for module, has in found.items() if has}


@clause("O-15")
def test_o15_every_module_that_reads_bytes_is_on_the_page_of_limits() -> None:
    rows = _ROW.findall((ROOT / "docs/limits.md").read_text())
    written = {module: set(has.strip().split(", ")) for module, has, _ in rows}
    assert len(written) == len(rows), "a module has two rows"
    found = _found()
    assert written == found, {
        "without a row": sorted(found.keys() - written.keys()),
        "no longer there": sorted(written.keys() - found.keys()),
        "with other kinds": sorted(
            module for module in found.keys() & written.keys() if found[module] != written[module]
        ),
    }


@clause("O-15")
def test_o15_the_settings_of_the_page_of_limits_exist(tmp_path: Path) -> None:
    known = {each.name for each in load(environ={}).shown()}
    page = (ROOT / "docs/limits.md").read_text()
    assert {name for name in _SETTING.findall(page) if name not in known} == set()


@clause("O-15")
def test_o15_every_bound_of_the_page_of_limits_has_its_test() -> None:
    bounds, _, _ = (ROOT / "docs/limits.md").read_text().partition("## Where bytes are read")
    rows = [row for row in _BOUND.findall(bounds) if row not in ("what", "state", "---")]
    assert sorted(rows) == sorted(TESTS), set(rows) ^ TESTS.keys()
    for row, names in TESTS.items():
        assert names, row
        for name in names:
            file, _, function = name.partition("::")
            text = (ROOT / "tests" / file).read_text()
            assert re.search(rf"^(async )?def {function}\(", text, re.MULTILINE), name


def test_a_new_place_is_found() -> None:
    assert kinds('import re\n_X = re.compile("a")\n') == {PATTERN}
    assert kinds("d = msgspec.json.Decoder[object](T)") == {PARSER}
    assert kinds("urlsplit(url)\nPath(name) / text") == {URL, PATH}
    assert kinds("x = compile('a')") == set()
