"""The pages are complete: commands, metrics, error codes, states, pages of the site."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast, get_args

import yaml

from jobwire import api
from jobwire.api.problems import ProblemKind
from jobwire.systems.images.contract import Stage
from jobwire.systems.jobs.contract import Status
from jobwire.systems.predictions.intent import State as IntentState
from jobwire.systems.queues.contract import BullState as QueueState
from tests.docs.error_codes import error_codes
from tests.docs.pages import PAGES
from tests.support import clause
from tests.support.program import ROOT
from tools.docs_hooks import OUTSIDE, site_link
from tools.docs_reference import cli, commands, decisions, wires
from tools.lifecycle_diagrams import DIAGRAMS, IMAGES

DOCS: Final = ROOT / "docs"
_METRIC: Final = re.compile(r'"(jobwire_[a-z_]+)"')
# Names in the source that are not metrics.
_OTHERS: Final = {"jobwire_log_fields", "jobwire_task", "jobwire_valkey"}
_PAGES: Final = [page for page in PAGES if DOCS in page.parents or page.name == "README.md"]


def _alternatives(text: str) -> Iterator[str]:
    """`jobwire images put|get` as both commands."""
    for found in re.finditer(r"jobwire ([a-z]+) ((?:[a-z-]+\|)+[a-z-]+)", text):
        yield from (f"jobwire {found[1]} {verb}" for verb in found[2].split("|"))


@clause("O-2")
def test_every_command_is_on_a_page() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in _PAGES)
    known = {*re.findall(r"jobwire [a-z]+(?: [a-z-]+)?", text), *_alternatives(text)}
    known |= {line.rpartition(" ")[0] for line in known if line.count(" ") == 2}
    assert [name for name, _ in commands() if f"jobwire {name}" not in known] == []


@clause("O-5")
def test_every_metric_is_on_the_page_of_metrics() -> None:
    page = (DOCS / "metrics.md").read_text(encoding="utf-8")
    named = {
        name
        for file in (ROOT / "src").rglob("*.py")
        for name in _METRIC.findall(file.read_text(encoding="utf-8"))
    }
    assert sorted(name for name in named - _OTHERS if name not in page) == []


@clause("O-9")
def test_every_error_code_is_on_the_page_of_errors() -> None:
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", (DOCS / "errors.md").read_text(), re.MULTILINE)
    listed = {code for row in rows for code in re.findall(r"`(\w+)`", row)} | {"not_configured"}
    codes = error_codes()
    assert sorted(codes - listed) == [], "add them to docs/errors.md, each with its fix"
    assert sorted(listed - codes) == [], "these codes do not exist any more"


@clause("O-10")
def test_every_extra_that_a_page_installs_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"])
    for page in PAGES:
        for found in re.findall(r"jobwire\[([a-z,]+)\]", page.read_text(encoding="utf-8")):
            assert set(found.split(",")) <= extras, page.name


def test_every_state_is_in_a_diagram() -> None:
    states = {
        "jobs": {str(status) for status in Status},
        "queues": {str(state) for state in QueueState} - {"unknown"},
        "images": {str(stage) for stage in Stage},
        "predictions": set(get_args(IntentState)),
    }
    for name, diagram in DIAGRAMS.items():
        drawn = {state for box in diagram.states for state in box.split(", ")}
        assert drawn == states[name]
        written = (IMAGES / f"life-{name}.svg").read_text(encoding="utf-8")
        assert written == diagram.svg(), "draw it: python -m tools.lifecycle_diagrams"


def _nav(entries: object) -> Iterator[str]:
    if isinstance(entries, str):
        yield entries
    elif isinstance(entries, dict):
        for value in cast("dict[str, object]", entries).values():
            yield from _nav(value)
    elif isinstance(entries, list):
        for entry in cast("list[object]", entries):
            yield from _nav(entry)


class _Loader(yaml.SafeLoader):
    """Reads the Python tags of mkdocs.yml as None."""


def _nothing(*_: object) -> None: ...


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", _nothing)


def test_the_site_has_every_page_once() -> None:
    config: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(), _Loader)
    listed = list(_nav(config["nav"]))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    decisions = {page for page in pages if re.match(r"decisions/\d", page)}
    assert len(listed) == len(set(listed))
    assert set(listed) == (pages - decisions) | set(OUTSIDE)


def test_links_between_docs_and_other_folders_work_on_the_site() -> None:
    assert site_link("predictions.md", "../deploy/functions/README.md") == (
        "deploy/functions/README.md"
    )
    assert site_link("deploy/functions/README.md", "../../docs/predictions.md") == (
        "../../predictions.md"
    )
    assert site_link("CHANGELOG.md", "docs/page.md") == "page.md"
    assert site_link("decisions/0001-x.md", "../architecture.md") == "../architecture.md"
    assert site_link("worker.md", "client.md") == "client.md"


def test_reference_pages_are_made_from_the_code() -> None:
    placeholders = {
        name
        for page in DOCS.rglob("*.md")
        for name in re.findall(r"^<!-- generated: ([a-z-]+) -->$", page.read_text(), re.MULTILINE)
    }
    assert placeholders == {"cli", "decisions", "http-api", "wires"}
    assert "### jobwire queue ls" in cli()
    assert "`job_id`" in wires()
    assert "0001" in decisions()
    assert Path(ROOT / "docs" / "http-api.md").exists()


def _documented_routes() -> Iterator[tuple[str, str]]:
    """Each route in a table of a page, and its scope there, or an empty text."""
    for page in _PAGES:
        for line in page.read_text(encoding="utf-8").splitlines():
            cells = [cell.strip() for cell in line.split(" | ")]
            names = re.findall(r"`([^`]+)`", cells[0])
            if not re.match(r"\| `(GET|POST|PUT|DELETE) /", line):
                continue
            scope = next(
                (s for s in ("read", "submit", "signal", "admin") if _is_scope(cells[1:], s)), ""
            )
            before = ""
            for name in names:
                if name[0] in "…/":  # `…/resume` after `POST /v1/…/pause`
                    name = before.rpartition("/")[0] + name.lstrip("…")
                if re.match(r"(GET|POST|PUT|DELETE) /", name):
                    before = name
                    yield _route(name), scope


def _is_scope(cells: Sequence[str], scope: str) -> bool:
    return any(cell.strip(" |`") == scope for cell in cells)


def _route(text: str) -> str:
    """Without the names of path parameters and without queries."""
    return re.sub(r"\?[\w=&…]+(?=`|$)", "", re.sub(r"\{\w+\}", "{}", text))


@clause("O-9")
def test_the_tables_of_routes_are_those_of_the_operations() -> None:
    """No route of a table is gone, each has the scope of its operation, and none is on no page."""
    document = json.loads((ROOT / "tests" / "contracts" / "openapi.json").read_text())
    scopes = {
        _route(f"{method.upper()} {path}"): operation["x-jobwire-scope"]
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }
    listed = list(_documented_routes())
    assert len(listed) > 60
    assert sorted(route for route, _ in listed if route not in scopes) == []
    assert [row for row in listed if row[1] and scopes[row[0]] != row[1]] == []
    text = _route("\n".join(page.read_text(encoding="utf-8") for page in _PAGES))
    missing = {route for route in scopes if route.split()[1].startswith("/v1/")}
    missing -= {route for route, _ in listed}
    assert (
        sorted(route for route in missing if not re.search(f"`{re.escape(route)}[ `]", text)) == []
    )


@clause("O-9")
def test_the_page_of_errors_has_the_statuses_of_the_problem_kinds() -> None:
    page = (DOCS / "errors.md").read_text(encoding="utf-8")
    listed: dict[str, set[int]] = {}
    for codes, status in re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (\d{3}) \|", page, re.MULTILINE):
        for code in re.findall(r"`(\w+)`", codes):
            listed.setdefault(code, set()).add(int(status))
    kinds = [
        kind
        for module in pkgutil.iter_modules(api.__path__, "jobwire.api.")
        for kind in vars(importlib.import_module(module.name)).values()
        if isinstance(kind, ProblemKind)
    ]
    assert len(kinds) > 50
    wrong = {
        kind.code: (kind.status, listed[kind.code])
        for kind in kinds
        if kind.code in listed and kind.status not in listed[kind.code]
    }
    assert wrong == {}
