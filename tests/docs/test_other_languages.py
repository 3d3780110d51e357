"""The programs of docs/other-languages.md, in Node, beside ours on one server."""

from __future__ import annotations

import os
from collections.abc import Iterator

import httpx
import pytest

from tests.docs.pages import Block, blocks
from tests.docs.runner import node_file, run_node
from tests.fleet.runner import Fleet
from tests.support import Program, clause
from tests.support.program import ROOT
from tests.support.thirdparty import NODE, node_packages

FILES = {block.file: block for block in blocks(ROOT / "docs" / "other-languages.md") if block.file}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A gateway that also knows the task of the page's HTTP example."""
    node_packages()
    with Fleet(tmp_path_factory.mktemp("languages")) as fleet:
        fleet.start_gateway(JOBWIRE_JOBS_TASKS="resize")
        yield fleet


def _env(fleet: Fleet) -> dict[str, str]:
    server = fleet.valkey.url.replace("valkey:", "redis:")
    return {**os.environ, "VALKEY_URL": server, "JOBWIRE_URL": fleet.url}


def _start(fleet: Fleet, block: Block) -> Program:
    return Program(command=[NODE, node_file(fleet.folder, block)], env=_env(fleet))


def _events(url: str) -> list[str]:
    answer = httpx.get(url, timeout=60, trust_env=False)
    lines = answer.text.splitlines()
    return [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]


@clause("J-54", "O-12")
def test_the_pages_node_programs_work_with_ours_and_with_each_other(fleet: Fleet) -> None:
    env = _env(fleet)
    assert set(FILES) == {"submit.mjs", "producer.mjs", "worker.mjs", "gateway.mjs"}
    with _start(fleet, FILES["worker.mjs"]) as worker:
        worker.wait_for_line("ready", timeout_s=60)
        # Our gateway, their producer over HTTP, their worker.
        printed = run_node(fleet.folder, FILES["submit.mjs"], env)
        assert printed == "done { echo: { file: 'cat.jpg' } }\n"
        # Their producer on the wire, their worker, both gateways.
        job_id = run_node(fleet.folder, FILES["producer.mjs"], env).strip()
        with fleet.client() as client:
            assert client.wait(job_id, timeout_s=60).result == {"echo": {"prompt": "hello"}}
        types = ["queued", "running", "progress", "done"]
        assert _events(f"{fleet.url}/v1/jobs/{job_id}/events") == ["hello", *types]
        with _start(fleet, FILES["gateway.mjs"]) as gateway:
            port = gateway.wait_for_line("listening", timeout_s=60).split()[1]
            url = f"http://127.0.0.1:{port}/jobs"
            assert _events(f"{url}/{job_id}/events") == types
            assert httpx.get(f"{url}/nothing/events", trust_env=False).status_code == 404
