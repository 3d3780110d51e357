"""`jobwire up` as it comes: all six tasks answer, on the local models, over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from tests.cli.running import Up
from tests.support import clause


@clause("J-50", "J-10")
def test_j50_up_has_all_six_tasks_working(tmp_path: Path, cache_dir: Path) -> None:
    with Up(tmp_path, env={"JOBWIRE_LLM_CACHE_DIR": str(cache_dir)}) as up:
        up.wait_until_up()
        with httpx.Client(base_url=up.url, timeout=90, trust_env=False) as client:
            listed: dict[str, Any] = {
                each["name"]: each for each in client.get("/v1/tasks").json()["tasks"]
            }
            for name in ("chat", "plan", "code", "tool", "rag", "embed"):
                assert listed[name]["schema"]["$ref"].endswith(f"{name.title()}Payload")
                body = {"task": name, "payload": listed[name]["example"]}
                job = client.post("/v1/jobs", json=body, headers={"Prefer": "wait=60"}).json()
                assert (job["status"], job["error"]) == ("done", None), name
                assert job["result"], name
