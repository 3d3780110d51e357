"""The dashboard uses existing metrics."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import yaml

from jobwire.local import LocalValkey, free_port
from jobwire.objects import BucketConfig
from jobwire.systems.predictions.counts import Counts
from jobwire.systems.predictions.http.metrics import PredictionsCollector
from tests.fleet.runner import Fleet
from tests.support import clause
from tests.support.program import ROOT
from tests.systems.images.site import ImageSite

FOLDER = ROOT / "deploy" / "grafana"
METRICS_PAGE = ROOT / "docs" / "metrics.md"
_NAME = re.compile(r"\bjobwire_\w+")


def _families(url: str) -> set[str]:
    """The metric names of a /metrics, with those of their samples."""
    text = httpx.get(f"{url}/metrics", trust_env=False, timeout=30).text
    names = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    return names | {f"{name}_bucket" for name in names}


def _bot_families() -> set[str]:
    """Those of the photo bot, which this gateway does not run."""
    counts = Counts(open_tasks=0)
    families = [(each.name, each.type) for each in PredictionsCollector(counts).collect()]
    return {f"{name}_total" if kind == "counter" else name for name, kind in families}


@clause("O-5")
def test_o5_every_metric_of_the_dashboard_exists(
    own_fleet: Fleet, valkey: LocalValkey, seaweedfs: BucketConfig, tmp_path: Path
) -> None:
    dashboard: dict[str, Any] = json.loads((FOLDER / "jobwire.json").read_text())
    used = {
        name
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
        for name in _NAME.findall(target["expr"])
    }
    port = free_port()
    own_fleet.start_gateway()
    own_fleet.start_worker(JOBWIRE_WORKER_METRICS_PORT=str(port))
    exported = _families(own_fleet.url) | _families(f"http://127.0.0.1:{port}") | _bot_families()
    with ImageSite(valkey.url, seaweedfs, tmp_path) as images:
        exported |= _families(images.url)
    assert len(used) > 12
    assert used - exported == set()
    listed = set(_NAME.findall(METRICS_PAGE.read_text()))
    assert listed - exported == set(), "the page lists metrics that do not exist"
    ours = {
        name for name in exported if name.startswith("jobwire_") and not name.endswith("_bucket")
    }
    assert ours - listed == set(), "the page omits metrics"


@clause("O-5")
def test_o5_the_dashboard_is_valid() -> None:
    dashboard: dict[str, Any] = json.loads((FOLDER / "jobwire.json").read_text())
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    occupied = set[tuple[int, int]]()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        across, down = range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])
        cells = {(x, y) for x in across for y in down}
        assert not occupied & cells, f"{panel['title']} overlaps another"
        assert at["x"] + at["w"] <= 24
        occupied |= cells
        assert panel["type"] == "row" or panel["description"]
    scrapes: dict[str, Any] = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    assert [each["job_name"] for each in scrapes["scrape_configs"]] == [
        *("jobwire-gateway", "jobwire-worker")
    ]
