"""A worker that is replaced: by the reloader, and after it was killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import httpx

from jobwire import Client
from tests.cli.runner import Up
from tests.support import clause, wait_until_sync

APP = """
import asyncio
from pathlib import Path
from jobwire import App, Context

app = App()

@app.handler("wait")
async def wait(ctx: Context) -> None:
    await ctx.progress(1, "begun")
    while not Path(ctx.payload["gate"]).exists():
        await asyncio.sleep(0.02)
"""
NEW = '\n@app.handler("new")\nasync def new(ctx: Context) -> None: ...\n'


@clause("J-34", "O-2")
def test_j34_a_replaced_worker_hands_its_jobs_over(tmp_path: Path) -> None:
    """The lease is so long that only a worker that is known to be dead loses a job."""
    (tmp_path / "shop.py").write_text(APP)
    arguments = ("--app", "shop:app", "--reload", "--only", "jobs")
    env = {"JOBWIRE_WORKER_LEASE": "30m", "JOBWIRE_UP_DRAIN": "8s"}
    with Up(tmp_path, *arguments, env=env) as up, Client(up.wait_until_up().url) as client:

        def begin(gate: str) -> str:
            job_id = client.submit("wait", {"gate": str(tmp_path / gate)}).job_id
            wait_until_sync(lambda: client.get(job_id).progress, "the job to begin")
            return job_id

        def starts(job_id: str) -> int:
            return sum(event.type == "running" for event in client.events(job_id))

        first = begin("first")
        (tmp_path / "shop.py").write_text(APP + NEW)
        wait_until_sync(lambda: (new := client.task("new")) is not None and new.live, "the new one")
        (tmp_path / "first").touch()
        assert client.wait(first, 60).status == "done"
        assert starts(first) == 1, "the old worker finishes what it runs"

        second = begin("second")
        (killed,) = [
            worker.pid
            for worker in client.workers()
            if any(slot.job_id == second for slot in worker.running)
        ]
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        (tmp_path / "second").touch()
        assert client.wait(second, 60).status == "done"
        assert starts(second) == 2


@clause("O-1")
def test_o1_a_worker_that_was_killed_frees_its_leases(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    env = {"JOBWIRE_WORKER_LEASE": "30m"}
    with Up(tmp_path, "--app", "shop:app", "--only", "jobs", env=env) as up:
        with Client(up.wait_until_up().url) as client:
            job_id = client.submit("wait", {"gate": str(tmp_path / "gate")}).job_id
            wait_until_sync(lambda: client.get(job_id).progress, "the job to begin")
            os.kill(up.endpoints()["pids"]["worker"], signal.SIGKILL)
            (tmp_path / "gate").touch()
            assert client.wait(job_id, 60).status == "done"
        assert (tmp_path / ".jobwire" / ".gitignore").read_text() == "*\n"
        valkey = up.endpoints()["valkey"]
        up.send(signal.SIGTERM)
        assert up.program.wait() == 0
    with Up(tmp_path, "--only", "jobs", "--no-worker") as again:
        again.wait_until_up()
        assert again.endpoints()["valkey"] == valkey, "the port is kept"


ENDS = """
import os

@app.handler("end")
async def end(ctx: Context) -> None:
    os._exit(3)
"""


@clause("O-2", "O-7")
def test_o2_a_worker_that_ends_itself_is_replaced_by_the_reloader(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP + ENDS)
    arguments = ("--app", "shop:app", "--reload", "--only", "jobs")
    with Up(tmp_path, *arguments) as up, Client(up.wait_until_up().url) as client:
        (first,) = [worker.pid for worker in client.workers() if worker.pid]
        assert first is not None
        ended = client.submit("end").job_id
        wait_until_sync(
            lambda: any(worker.pid not in (None, first) for worker in client.workers()),
            "another worker",
        )
        client.cancel(ended)
        (tmp_path / "gate").touch()
        other = client.submit("wait", {"gate": str(tmp_path / "gate")}).job_id
        assert client.wait(other, 60).status == "done"


@clause("O-2", "O-7")
def test_o7_readyz_says_that_the_reloader_has_no_worker(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    arguments = ("--app", "shop:app", "--reload", "--only", "jobs")
    with Up(tmp_path, *arguments) as up:
        url = up.wait_until_up().url

        def worker() -> dict[str, str]:
            parts = httpx.get(f"{url}/readyz", trust_env=False, timeout=30).json()["parts"]
            return next(part for part in parts if part["name"] == "worker")

        assert worker()["state"] == "ready"
        (tmp_path / "shop.py").write_text("raise SystemExit(5)\n")
        wait_until_sync(lambda: worker()["state"] == "restarting", "/readyz to say so")
        assert "ended with code 2 before it was ready" in worker()["note"]
        (tmp_path / "shop.py").write_text(APP)
        wait_until_sync(lambda: worker()["state"] == "ready", "the repaired worker")
