"""`jobwire.testing` as users have it: the wheel is installed, the project is in another folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.cli.runner import clean_env
from tests.support.program import ROOT
from tests.support.variants import only_with_variants

SHOP = """
from dataclasses import dataclass
from jobwire import App, Context

app = App()

@dataclass
class Order:
    item: str
    count: int = 1

@app.handler("order", retries=2)
async def order(ctx: Context, payload: Order) -> dict[str, object]:
    await ctx.progress(50, "packing")
    return {"sent": payload.item, "count": payload.count}
"""
CONFTEST = 'pytest_plugins = ["jobwire.testing.pytest_plugin"]\n'
TESTS = """
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import jobwire
from jobwire import Client
from jobwire.testing import run_sync
from shop import Order, app


def test_it_is_the_installed_one():
    assert Path(jobwire.__file__).is_relative_to(Path(__file__).parent / "site")


def test_a_handler_in_memory():
    ran = run_sync(app, "order", Order("tea", 2))
    assert ran.result == {"sent": "tea", "count": 2}
    assert ran.of("progress") == [{"percent": 50, "message": "packing"}]
    assert run_sync(app, "order", {"itme": "tea"}).error.code == "invalid_payload"


def test_the_whole_way_on_a_real_server(jobwire_valkey):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    with ExitStack() as stack:
        for words in (["gateway", "--port", port], ["worker", "shop:app"]):
            command = [sys.executable, "-m", "jobwire", *words, "--valkey", jobwire_valkey]
            program = stack.enter_context(subprocess.Popen(command, cwd=Path(__file__).parent))
            stack.callback(program.kill)
        with Client(f"http://127.0.0.1:{port}", patience_s=60) as jobs:
            deadline_s = time.monotonic() + 60
            while not any(task.name == "order" and task.live for task in jobs.tasks()):
                assert time.monotonic() < deadline_s, "the worker takes no jobs"
                time.sleep(0.05)
            assert jobs.run("order", {"item": "tea"}) == {"sent": "tea", "count": 1}
"""


@only_with_variants
def test_a_users_own_tests_with_the_installed_package(tmp_path: Path) -> None:
    wheels, site = tmp_path / "wheels", tmp_path / "site"
    _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", wheels], ROOT)
    (wheel,) = wheels.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    _run([*pip, "--disable-pip-version-check", "--target", site, wheel], tmp_path)
    for name, text in (("shop", SHOP), ("conftest", CONFTEST), ("test_shop", TESTS)):
        (tmp_path / f"{name}.py").write_text(text)
    plain = ["-q", "-p", "no:randomly", "-p", "no:xdist", "-p", "no:cacheprovider"]
    output = _run([sys.executable, "-m", "pytest", *plain, "test_shop.py"], tmp_path)
    assert "3 passed" in output


def _run(command: list[str | Path], cwd: Path) -> str:
    # The installed package precedes this clone, which is on the path too.
    env = clean_env(PYTHONPATH=str(cwd / "site"))
    done = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
