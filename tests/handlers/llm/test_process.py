"""The local model runs in its own process: loading does not block the worker, a crash does not end
the worker, the next request starts the process again, and it never outlives its worker."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator, Set
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

from jobwire.handlers.llm import LlmSettings
from jobwire.job.errors import Fail, Retry
from jobwire.local import LocalValkey
from jobwire.valkey import Connection
from tests.cli.runner import is_gone
from tests.handlers.llm.instrumented_model import altered, models_of, search_path, waiting
from tests.handlers.llm.local_worker import ENDLESS, Fleet, StartFleet
from tests.handlers.llm.recorder import Bench, text_of
from tests.support import Plain, Program, clause, wait_until

HI = {"prompt": "Hi", "max_tokens": 4}
MEMORY = (
    "give the worker more memory, or set llm.model_path to a smaller model or llm.context_tokens "
    "(4096) lower"
)
WORD = {"input": "x"}
"""The model that loads faster."""
GREETER = """
from jobwire import App
app = App()
@app.handler("greet")
async def greet(payload: dict) -> str:
    return "hello"
"""


@pytest.fixture
def fleet(connection: Connection, plain: Plain) -> Fleet:
    """A queue to submit to."""
    return Fleet(connection, plain)


@pytest.fixture
def begin(valkey: LocalValkey, cache_dir: Path, tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Starts `jobwire worker` as a program; it ends with the test."""
    (tmp_path / "greeter.py").write_text(GREETER)
    begun: list[Program] = []

    def start(**env: str) -> Program:
        words = ("-m", "jobwire", "worker", "greeter", "--tasks")
        ours = {
            "JOBWIRE_VALKEY_URL": valkey.url,
            "JOBWIRE_LLM_CACHE_DIR": str(cache_dir),
        }
        begun.append(Program(*words, env={**ours, **env}, cwd=tmp_path))
        return begun[-1]

    yield start
    for program in begun:
        program.close()


@pytest.fixture
def bench(cache_dir: Path) -> Iterator[Bench]:
    """The six tasks on models of the test's own."""
    bench = Bench(LlmSettings(cache_dir=cache_dir))
    yield bench
    bench.models.close()


def at_work(pid: int | None = None, *, besides: Set[int] = frozenset()) -> int:
    """The one process with a model, besides those of other tests."""
    (model,) = models_of(pid) - besides
    return model


# ── while it loads ───────────────────────────────────────────────────────────────────────────────


@clause("J-32", "J-51")
async def test_j32_loading_a_model_delays_neither_jobs_nor_leases(
    fleet: Fleet, begin: Callable[..., Program], plain: Plain, tmp_path: Path
) -> None:
    # Long enough for a busy machine; it is renewed at a third of it.
    begin(JOBWIRE_WORKER_LEASE="3s", **search_path(waiting(tmp_path)))
    job_id = await fleet.submit("embed", WORD)
    await wait_until((tmp_path / "loading").exists, "the model to be loaded")
    greeted = await fleet.end(await fleet.submit("greet", {}))
    assert greeted["status"] == "done"
    idle: list[int] = []

    def renewed() -> bool:
        rows: Any = plain.xpending_range("jobs:stream", "workers", "-", "+", 10)
        (row,) = rows
        idle.append(row["time_since_delivered"])
        return sum(later < earlier for earlier, later in pairwise(idle)) > 3

    await wait_until(renewed, "renewals for longer than a lease")
    (tmp_path / "go").touch()
    assert (await fleet.end(job_id))["status"] == "done"
    kinds = [event.kind for event in fleet.events(job_id)]
    assert kinds.count("running") == 1, "no other worker has reclaimed it"


async def test_a_cancelled_caller_does_not_stop_the_load(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(waiting(tmp_path))
    others = models_of()
    impatient = asyncio.create_task(bench.run("embed", WORD))
    await wait_until((tmp_path / "loading").exists, "the model to be loaded")
    loading = at_work(besides=others)
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    patient = asyncio.create_task(bench.run("embed", WORD))
    (tmp_path / "go").touch()
    assert (await patient).result["dim"] == 384
    assert at_work(besides=others) == loading


async def test_a_stop_does_not_wait_for_a_load(
    fleet: Fleet, begin: Callable[..., Program], tmp_path: Path
) -> None:
    worker = begin(**search_path(waiting(tmp_path)))
    job_id = await fleet.submit("embed", WORD)
    await wait_until((tmp_path / "loading").exists, "the model to be loaded")
    model = at_work(worker.pid)
    worker.terminate()
    await asyncio.to_thread(worker.wait_for_line, "stopping")
    worker.terminate()  # the second signal releases running jobs instead of waiting
    assert await asyncio.to_thread(worker.wait) == 0
    assert is_gone(model)
    assert fleet.hash(job_id)["status"] == "queued"
    assert "Traceback" not in worker.output


# ── its end ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("moment", ["while it loads", "when it is loaded"])
async def test_a_model_process_dies_with_its_killed_worker(
    fleet: Fleet, begin: Callable[..., Program], tmp_path: Path, moment: str
) -> None:
    path = waiting(tmp_path)
    worker = begin(**search_path(path))
    job_id = await fleet.submit("embed", WORD)
    await wait_until((tmp_path / "loading").exists, "the model to be loaded")
    if moment == "when it is loaded":
        (tmp_path / "go").touch()
        assert (await fleet.end(job_id))["status"] == "done"
    model = at_work(worker.pid)
    worker.kill()
    try:
        await wait_until(lambda: is_gone(model), "the end of the model")
    finally:
        with suppress(ProcessLookupError):
            os.kill(model, signal.SIGKILL)


async def test_ctrl_c_reaches_only_the_worker(fleet: Fleet, begin: Callable[..., Program]) -> None:
    worker = begin()
    await fleet.end(await fleet.submit("embed", WORD))
    model = at_work(worker.pid)
    os.killpg(worker.pid, signal.SIGINT)  # as a terminal sends it
    assert await asyncio.to_thread(worker.wait) == 0
    assert is_gone(model)
    assert "Traceback" not in worker.output
    assert "local model" not in worker.output


# ── its death ────────────────────────────────────────────────────────────────────────────────────


@clause("J-51", "J-35")
async def test_j51_a_model_that_dies_during_a_request_is_retried(
    bench: Bench, start: StartFleet
) -> None:
    others = models_of()
    fleet = await start(bench.settings, bench.models)
    await fleet.end(await fleet.submit("chat", HI))
    model = at_work(besides=others)
    os.kill(model, signal.SIGSTOP)  # so that it dies before its answer
    job_id = await fleet.submit("chat", HI)
    await wait_until(lambda: _is_asked(model), "the question")
    os.kill(model, signal.SIGKILL)
    assert (await fleet.end(job_id))["status"] == "done"
    events = fleet.events(job_id)
    (reset,) = [event.data for event in events if event.kind == "reset"]
    assert reset["reason"] == "backend_unavailable"
    assert text_of(events) != ""


@clause("J-51")
async def test_j51_a_model_that_dies_during_an_answer_starts_over(
    bench: Bench, start: StartFleet
) -> None:
    others = models_of()
    fleet = await start(bench.settings, bench.models)
    job_id = await fleet.submit("chat", ENDLESS)
    await wait_until(lambda: text_of(fleet.events(job_id)), "the first words")
    os.kill(at_work(besides=others), signal.SIGKILL)

    def kinds() -> list[str]:
        return [event.kind for event in fleet.events(job_id)]

    await wait_until(lambda: "reset" in kinds() and text_of(fleet.events(job_id)), "another text")
    await fleet.queue.cancel(job_id)
    ended = await fleet.end(job_id)
    assert ended["status"] == "canceled"
    assert kinds().count("reset") == kinds().count("running") == 1


async def test_a_request_after_the_end_of_the_process_starts_it_again(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    others = models_of()
    await bench.run("embed", WORD)
    first = at_work(besides=others)
    bench.models.close()
    assert not psutil.pid_exists(first)
    await bench.run("embed", WORD)
    second = at_work(besides=others)
    assert caplog.messages == [], "the test ended it"
    os.kill(second, signal.SIGKILL)
    await wait_until(lambda: _has_ended(second), "its end")
    record = await bench.run("embed", WORD)
    assert record.events == []
    assert at_work(besides=others) not in (first, second)
    assert caplog.messages == [
        (
            "local model process ended model=all-minilm-l6-v2 reason=was ended by SIGKILL output=; "
            "the next call starts it"
        )
    ]


@clause("J-51")
@pytest.mark.parametrize(
    ("death", "how"),
    [
        ("import os; os.kill(os.getpid(), 9)", "was ended by SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", "was ended by SIGSEGV"),
        ("import os; os._exit(3)", "ended with exit code 3"),
    ],
)
async def test_j51_a_model_that_dies_while_it_loads_is_reported_and_retried(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    death: str,
    how: str,
) -> None:
    noise = "import sys; print('ouch', file=sys.stderr, flush=True)"
    monkeypatch.syspath_prepend(altered(tmp_path, f"{noise}\n{death}"))
    with pytest.raises(Retry) as failed:
        await bench.run("chat", HI)
    name = "the local model smollm2-135m-instruct"
    line = f"{name} {how} while it was loaded; {MEMORY}"
    assert (failed.value.code, failed.value.message) == ("backend_unavailable", line)
    log_line = (
        f"local model process ended model=smollm2-135m-instruct reason={how} output=ouch; "
        "the next call starts it"
    )
    assert caplog.messages == [log_line] * 2
    assert "ouch" not in capfd.readouterr().err.replace("output=ouch", "")


@clause("J-51")
@pytest.mark.parametrize(
    ("first", "found"),
    [
        ("raise MemoryError", "llama.cpp cannot load SmolLM2-135M-Instruct"),
        ("raise OSError(12, 'Cannot allocate memory')", "Cannot allocate memory"),
        ("raise RuntimeError('failed to create context')", "failed to create context"),
        (
            "raise ImportError('libgomp.so.1: failed to map segment')",
            "xllamacpp cannot be loaded: libgomp.so.1: failed to map segment",
        ),
    ],
)
async def test_j51_too_little_memory_for_a_model_names_the_settings(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, first: str, found: str
) -> None:
    monkeypatch.syspath_prepend(altered(tmp_path, first))
    with pytest.raises(Fail) as failed:
        await bench.run("chat", HI)
    assert failed.value.code == "model_not_found"
    assert found in failed.value.message
    assert failed.value.message.endswith(MEMORY)


def _has_ended(model: int) -> bool:
    """Whether its last thread has ended; the process is not reaped."""
    return os.waitid(os.P_PID, model, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def _is_asked(model: int) -> bool:
    """Whether this process has a connection to it."""
    port = next(
        each.laddr.port
        for each in psutil.Process(model).net_connections()
        if each.status == psutil.CONN_LISTEN
    )
    ours = psutil.Process().net_connections()
    return any(each.raddr and each.raddr.port == port for each in ours)
