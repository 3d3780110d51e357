"""O-13: each system of the product has everything that a user of one system expects of another."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

import pytest

from jobwire.cli.main import COMMANDS
from jobwire.client import AsyncClient, Client
from jobwire.systems.system import SYSTEMS, System, all_systems
from tests.support import clause
from tests.support.program import ROOT

SCREENS: Final = (ROOT / "src/jobwire/page/static/js/screens/index.js").read_text()
DASHBOARD: Final = json.loads((ROOT / "deploy/grafana/jobwire.json").read_text())
_METRIC: Final = re.compile(r"\bjobwire_[a-z]+_")


@dataclass(frozen=True, slots=True)
class Surfaces:
    """Where a user finds a system."""

    command: str
    client: str
    metrics: str
    row: str
    screen: str
    page: str


FOUND: Final = {
    "jobs": Surfaces("submit", "submit", "jobwire_jobs_", "Jobs", "./jobs.js", "jobs-http.md"),
    "queues": Surfaces(
        "queue", "queue", "jobwire_queue_", "Queues (BullMQ)", "./queues.js", "queues.md"
    ),
    "images": Surfaces("images", "images", "jobwire_images_", "Images", "./images.js", "images.md"),
    "predictions": Surfaces(
        "bot",
        "predictions",
        "jobwire_predictions_",
        "Predictions (photo bot)",
        "./predictions.js",
        "predictions.md",
    ),
}


def test_every_system_is_compared() -> None:
    assert FOUND.keys() == SYSTEMS.keys()


@clause("O-13")
@pytest.mark.parametrize("system", all_systems(), ids=lambda system: system.name)
def test_o13_a_system_has_metrics_checks_schema_command_client_screen_and_docs(
    system: System,
) -> None:
    found = FOUND[system.name]
    assert system.doctor_checks is not None
    assert system.schema is not None
    assert system.schema()["$defs"]
    assert found.command in COMMANDS
    for client in (Client, AsyncClient):
        assert found.client in {*dir(client), *client.__init__.__code__.co_names}
    assert f'import("{found.screen}")' in SCREENS
    assert f": {found.page}\n" in (ROOT / "mkdocs.yml").read_text()
    assert found.metrics in (ROOT / "docs/metrics.md").read_text()
    assert found.metrics in _metrics_of_row(found.row)


def _metrics_of_row(title: str) -> set[str]:
    """The prefixes of the metrics that the panels below a row of the dashboard show."""
    row, names = "", set[str]()
    for panel in DASHBOARD["panels"]:
        if panel["type"] == "row":
            row = panel["title"]
        elif row == title:
            names |= {name for each in panel["targets"] for name in _METRIC.findall(each["expr"])}
    return names
