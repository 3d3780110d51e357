"""The page on jobs over HTTP: every line is run in order and answered."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any, Final

import pytest

from jobwire.local import LocalValkey
from tests.docs.pages import blocks
from tests.support import clause
from tests.support.jobs_http import ServedJobs
from tests.support.program import ROOT

_LINES: Final = [
    line
    for block in blocks(ROOT / "docs" / "jobs-http.md")
    if block.language == "sh"
    for line in block.commands()
]


@pytest.fixture
def served(valkey: LocalValkey) -> Iterator[ServedJobs]:
    with ServedJobs(valkey.url) as started:
        yield started


def _answers(line: str, served: ServedJobs, job_id: object) -> str:
    typed = line.replace("localhost:8080", f"127.0.0.1:{served.port}")
    done = subprocess.run(
        # -q: ignore ~/.curlrc; -f: an HTTP error is a failure.
        typed.replace("curl", "curl -q -sSf --noproxy '*'").replace("JOB_ID", str(job_id)),
        shell=True,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stderr}"
    return done.stdout


def _read(line: str, served: ServedJobs, job_id: object = "") -> Any:
    return json.loads(_answers(line, served, job_id))


@clause("J-10", "J-15", "J-16", "J-18", "O-12")
def test_every_line_of_the_page_is_answered(served: ServedJobs) -> None:
    submit, watch, wait, batch, queues, pause, *lines = _LINES
    clean, resume, token, cancel, retry, retry_many, cancel_many, listed, *others = lines
    overview, stats, workers, failures, search = others
    job_id = _read(submit, served)["job_id"]
    assert [result["status"] for result in _read(batch, served)["results"]] == [202, 202]
    assert [queue["waiting"] for queue in _read(queues, served)["queues"]] == [3]
    assert _read(pause, served)["paused"] is True
    assert _read(pause.replace("pause", "resume"), served)["paused"] is False
    assert _read(cancel, served, job_id) == {"job_id": job_id, "outcome": "canceled"}
    assert _read(wait, served, job_id)["status"] == "canceled"
    assert [row["system"] for row in _read(overview, served)["systems"]] == ["jobs"]
    assert _read(stats, served)["hour"]["submitted"] == 3
    assert _read(workers, served) == {"workers": []}
    assert _read(failures, served)["hours"] == 1
    assert [found["id"] for found in _read(search, served, job_id)["found"]] == [job_id]
    answers = _answers(watch, served, job_id)
    assert answers.startswith("event: hello\n")
    assert "\nevent: canceled\n" in answers
    assert "\nevent: canceled\n" in _answers(clean, served, job_id)
    plain = _answers(resume, served, job_id)
    assert "event: gap\n" in plain, "that id was of the page's own job"
    assert "event: queued\ndata: {}\n" in plain
    url = _read(token, served, job_id)["url"]
    assert "event: canceled\n" in _answers(f"curl 'localhost:8080{url}'", served, job_id)
    assert _read(retry, served, job_id)["retry_of"] == job_id
    assert _read(retry_many, served)["matched"] == 0
    assert _read(cancel_many, served)["changed"] == 2
    assert _read(listed, served)["jobs"] == []
