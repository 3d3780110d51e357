"""J-36: handlers in processes of their own."""

from __future__ import annotations

import json
import os
import shlex
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from jobwire.job.messages import Canceled, Done, Failed, JobId, Json, Released, RetryLater
from jobwire.job.states import State
from jobwire.worker import App
from tests.support import Program, clause, wait_until, wait_until_sync
from tests.support.program import write_program
from tests.worker.conftest import StartWorker
from tests.worker.memory import MemoryEngine, MemoryServer, Record
from tests.worker.process_handlers import add, app

Ended = Callable[[JobId], Awaitable[Record]]


@clause("J-36")
async def test_j36_handlers_run_in_processes_that_are_reused(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    await work(app, engine, slots=1)
    pids: set[int] = set()
    for task in ("add", "add-async", "add"):
        record = await ended(server.add(task, {"a": 2, "b": 3}))
        assert isinstance(record.outcome, Done), record.outcome
        result = json.loads(record.outcome.result_json)
        assert result["sum"] == 5
        pids.add(result["pid"])
    assert len(pids) == 1
    assert os.getpid() not in pids


@clause("J-36")
async def test_j36_a_process_that_cannot_be_started_is_a_failure_with_its_reason(
    server: MemoryServer,
    engine: MemoryEngine,
    work: StartWorker,
    ended: Ended,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    await work(app, engine)
    record = await ended(server.add("add", {"a": 2, "b": 3}))
    assert isinstance(record.outcome, Failed), record.outcome
    assert record.outcome.error.message == "the handler's process was not started"
    assert "/no/such/python" in record.outcome.error.detail


async def _idle_process(server: MemoryServer, ended: Ended) -> psutil.Process:
    """The process of a job that has ended."""
    record = await ended(server.add("add", {"a": 2, "b": 3}))
    assert isinstance(record.outcome, Done), record.outcome
    return psutil.Process(json.loads(record.outcome.result_json)["pid"])


def _is_dead(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@clause("J-36")
async def test_j36_an_idle_process_that_was_killed_gets_no_job(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    await work(app, engine, slots=1)
    process = await _idle_process(server, ended)
    job = server.add("add", {"a": 1, "b": 1}, max_attempts=1)
    process.kill()
    while not _is_dead(process):  # the worker's loop does not run meanwhile
        pass
    assert isinstance((await ended(job)).outcome, Done), server.jobs[job].outcome


@clause("J-36")
async def test_j36_an_idle_process_that_was_killed_is_reaped_while_no_job_comes(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    await work(app, engine, slots=1)
    process = await _idle_process(server, ended)
    process.kill()
    await wait_until(lambda: not process.is_running(), "the process to be reaped")


@clause("J-36")
async def test_j36_a_job_that_its_process_did_not_take_is_not_attempted(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    await work(app, engine, slots=1)
    process = await _idle_process(server, ended)
    process.suspend()
    await wait_until(lambda: process.status() == psutil.STATUS_STOPPED)
    job = server.add("add", {"a": 1, "b": 1}, max_attempts=1)
    await wait_until(lambda: server.jobs[job].state is State.RUNNING)
    process.kill()
    record = await ended(job)
    assert isinstance(record.outcome, Done), record.outcome


@clause("J-36")
async def test_j36_a_job_fails_if_no_new_process_takes_it(
    server: MemoryServer,
    engine: MemoryEngine,
    work: StartWorker,
    ended: Ended,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    started = tmp_path / "started"
    python = tmp_path / "python"
    write_program(python, "/bin/sh", "-c", f"echo >> {shlex.quote(str(started))}; exit 7")
    monkeypatch.setattr(sys, "executable", str(python))
    await work(app, engine)
    record = await ended(server.add("add", {"a": 2, "b": 3}))
    assert isinstance(record.outcome, Failed), record.outcome
    assert record.outcome.error.message == "the handler's process ended with exit code 7"
    assert len(started.read_text().splitlines()) == 3


@clause("J-36")
async def test_j36_a_process_handler_has_the_whole_context(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    await work(app, engine)
    payload: dict[str, Json] = {"big": 2**70, "text": "ü\u2028"}
    job = server.add("speaks", payload)
    record = await ended(job)
    assert isinstance(record.outcome, Done), record.outcome
    assert json.loads(record.outcome.result_json) == [job, "speaks", 1, payload]
    kinds = [each.kind for each in record.events]
    assert kinds == ["progress", *["step"] * 150, "log"]
    assert [json.loads(each.data_json) for each in record.events[1:-1]] == list(range(150))


@clause("J-36")
@pytest.mark.parametrize(
    ("how", "code", "message"),
    [
        ("fail", "no_way", "it cannot be done"),
        ("retry", "handler_error", "busy"),
        ("crash", "handler_error", "the handler raised RuntimeError"),
        ("exit", "handler_error", "the handler raised SystemExit"),
        ("os exit", "handler_error", "the handler's process ended with exit code 5"),
        ("segfault", "handler_error", "the handler's process was ended by SIGSEGV"),
    ],
)
async def test_j36_a_job_ends_however_its_process_ends(
    server: MemoryServer,
    engine: MemoryEngine,
    work: StartWorker,
    ended: Ended,
    how: str,
    code: str,
    message: str,
) -> None:
    await work(app, engine)
    record = await ended(server.add("fails", {"how": how}, max_attempts=2))
    wanted = Failed if how == "fail" else RetryLater
    outcome = record.first_outcome
    assert isinstance(outcome, wanted), outcome
    assert (outcome.error.code, outcome.error.message) == (code, message)
    if how in ("fail", "retry", "crash"):
        assert outcome.error.partial_json == '"some"'
    if how == "crash":
        assert "process_handlers.py" in outcome.error.detail


@clause("J-36")
async def test_j36_a_job_ends_whatever_bytes_its_texts_have(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    """Id, task and tenant of foreign producers need not be valid UTF-8: such bytes are lone
    surrogates here, which JSON cannot have. The only slot stayed in use."""
    await work(app, engine, slots=1)
    record = await ended(
        server.add("echo", job_id="half \udcff", tenant="\udcfe", traceparent="\udcfd")
    )
    assert isinstance(record.outcome, Done), record.outcome
    texts = ascii(["half \udcff", "echo", "\udcfe"])
    assert json.loads(record.outcome.result_json) == texts
    assert [json.loads(each.data_json) for each in record.events] == [
        {"ascii": ascii("half \udcff")}
    ]
    record = await ended(server.add("raises \udcff", {"how": "\udcfc"}))
    assert isinstance(record.outcome, Failed), record.outcome
    assert "SIGSEGV" in record.outcome.error.message


@clause("J-36")
async def test_j36_a_job_ends_if_its_process_breaks_the_pipe(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    await work(app, engine, slots=1)
    record = await ended(server.add("writes to its pipe"))
    assert isinstance(record.outcome, Failed), record.outcome
    assert record.outcome.error.code == "handler_error"
    assert isinstance((await ended(server.add("add", {"a": 1, "b": 1}))).outcome, Done)


@clause("J-36")
@pytest.mark.parametrize("end", ["timeout", "cancel"])
async def test_j36_a_job_ends_if_its_process_never_reads_it(
    server: MemoryServer,
    engine: MemoryEngine,
    work: StartWorker,
    ended: Ended,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    end: str,
) -> None:
    """A child that hangs while it starts: a payload larger than the pipe is never read. The request
    to stop waited for the payload, in the event loop."""
    began = tmp_path / "began"
    python = tmp_path / "python"
    hang = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(600)"
    write_program(python, sys.executable, "-c", hang, began)
    monkeypatch.setattr(sys, "executable", str(python))
    await work(app, engine, slots=1, grace_s=0.05)
    job = server.add("echo", {"text": "x" * 1_000_000}, timeout_s=0.5 if end == "timeout" else None)
    await wait_until(began.exists)
    if end == "cancel":
        server.cancel_now(job)
    record = await ended(job)
    assert isinstance(record.outcome, Canceled if end == "cancel" else Failed), record.outcome


@clause("J-36")
async def test_j36_a_job_ends_if_there_can_be_no_more_threads(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    both = App()
    both.handler("thread")(lambda ctx: 1)
    both.handler("process", process=True)(add)
    await work(both, engine, slots=2)
    before = threading.stack_size(1 << 46)  # more than there is: no thread starts with it
    try:
        records = [await ended(server.add(task)) for task in ("process", "thread", "thread")]
    finally:
        threading.stack_size(before)
    for record in records:
        assert isinstance(record.outcome, Failed), record.outcome
        assert record.outcome.error.cause_text == "can't start new thread"
    assert (await ended(server.add("thread"))).outcome == Done("1")


@clause("J-36")
async def test_j36_a_process_handler_checks_its_payload(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    await work(app, engine)
    record = await ended(server.add("add", {"a": 1, "b": "two"}, max_attempts=2))
    assert isinstance(record.outcome, Failed)
    assert record.outcome.error.message == "payload.b: expected `int`, got `str`"


@clause("J-36")
@pytest.mark.parametrize("task", ["polite", "polite-async"])
async def test_j36_a_process_handler_gets_a_stop_request(
    server: MemoryServer,
    engine: MemoryEngine,
    work: StartWorker,
    ended: Ended,
    task: str,
    tmp_path: Path,
) -> None:
    await work(app, engine)
    job = server.add(task, {"began": str(tmp_path / "began")})
    await wait_until((tmp_path / "began").exists)
    server.cancel_now(job)
    assert (await ended(job)).outcome == Canceled('"as far as it came"')


@clause("J-36")
async def test_j36_a_process_that_does_not_stop_is_killed_with_its_children(
    server: MemoryServer,
    engine: MemoryEngine,
    work: StartWorker,
    ended: Ended,
    tmp_path: Path,
) -> None:
    await work(app, engine, grace_s=0.05)
    job = server.add("deaf", {"began": str(tmp_path / "began")})
    await wait_until((tmp_path / "began").exists)
    pids = [int(word) for word in (tmp_path / "began").read_text().split()]
    server.cancel_now(job)
    assert (await ended(job)).outcome == Canceled()
    await wait_until(lambda: not any(_alive(pid) for pid in pids))


@clause("J-36")
async def test_j36_late_reports_of_a_process_are_refused(
    server: MemoryServer,
    engine: MemoryEngine,
    work: StartWorker,
    ended: Ended,
    tmp_path: Path,
) -> None:
    await work(app, engine, grace_s=30)
    job = server.add("chatty", {"began": str(tmp_path / "began")})
    await wait_until(lambda: len(server.jobs[job].events) > 100)
    server.cancel_now(job)
    record = await ended(job)
    assert record.outcome == Canceled()
    count = len(record.events)
    # It was stopped by the refusal, long before its grace period ended.
    await ended(server.add("add", {"a": 1, "b": 1}))
    assert len(record.events) == count


@clause("J-40")
async def test_j40_the_job_of_a_process_is_released(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, tmp_path: Path
) -> None:
    worker = await work(app, engine, grace_s=0.05)
    job = server.add("deaf", {"began": str(tmp_path / "began")})
    await wait_until((tmp_path / "began").exists)
    worker.stop()
    worker.stop()
    await wait_until(lambda: server.jobs[job].outcome == Released())
    assert server.jobs[job].state is State.WAITING


@clause("J-36")
def test_j36_processes_die_with_their_worker_also_after_kill_9(tmp_path: Path) -> None:
    source = """
import asyncio, sys
from jobwire.worker import Worker
from tests.worker.memory import MemoryEngine, MemoryServer
from tests.worker.process_handlers import add, app

async def main():
    server = MemoryServer()
    server.add("deaf", {"began": sys.argv[1]})
    await Worker(app, [MemoryEngine(server)]).run()

asyncio.run(main())
"""
    began = tmp_path / "began"
    with Program.script(source, began) as program:
        wait_until_sync(began.exists)
        child = int(began.read_text().split()[0])
        helper = int(began.read_text().split()[1])
        assert _alive(child)
        program.kill()
        wait_until_sync(lambda: not _alive(child), "the child to die")
    psutil.Process(helper).kill()


@clause("J-36")
def test_j36_a_handler_of_the_main_program_runs_in_a_process(tmp_path: Path) -> None:
    """A script that is run as it stands has no module that a child could import."""
    script = tmp_path / "program.py"
    script.write_text("""
import asyncio, os
from jobwire.worker import App, Worker
from tests.support import wait_until
from tests.worker.memory import MemoryEngine, MemoryServer

app = App()

@app.handler("where", process=True)
def where(ctx):
    return __name__

async def main():
    server = MemoryServer()
    job = server.add("where")
    worker = Worker(app, [MemoryEngine(server)])
    running = asyncio.create_task(worker.run())
    await wait_until(lambda: server.jobs[job].outcome)
    print(server.jobs[job].outcome)
    worker.stop()
    await running

if __name__ == "__main__":
    asyncio.run(main())
""")
    root = Path(__file__).parents[2]
    with Program(script, env={"PYTHONPATH": str(root)}) as program:
        line = program.wait_for_line("result_json")
        assert "__jobwire_child__" in line
        assert program.wait() == 0


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
