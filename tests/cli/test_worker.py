"""`jobwire worker`: only a worker, for the handlers of an App."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from jobwire.cli.exits import Exit
from jobwire.cli.main import main
from jobwire.job.messages import JobId, JobRequest, Submitted
from jobwire.local import LocalValkey, free_port
from jobwire.systems.jobs.contract import Status
from jobwire.systems.jobs.queue import StreamsQueue
from jobwire.valkey import Connection
from tests.cli.runner import clean_env, jobwire
from tests.support import Program, clause, wait_until, wait_until_sync

APP = """
import logging
import time
from jobwire import App, Context, Fail, Retry
from jobwire.job.retry import Backoff

app = App()
empty = App()
log = logging.getLogger("shop")

@app.handler("greet")
async def greet(ctx: Context) -> str:
    log.info("greeting")
    return f"hello, {ctx.payload['name']}"

@app.handler("elsewhere", process=True)
def elsewhere(ctx: Context) -> str:
    log.info("greeting from another process")
    return f"hello, {ctx.payload['name']}"

@app.handler("forever")
def forever(ctx: Context) -> None:
    log.info("begun")
    while True:
        time.sleep(0.05)

@app.handler("failing", timeout_s=0.2, backoff=Backoff(base_s=0.001, cap_s=0.001))
async def failing(ctx: Context) -> None:
    raise RuntimeError("again")

@app.handler("slow", timeout_s=0.2)
async def slow(ctx: Context) -> None:
    import asyncio
    await asyncio.sleep(60)

@app.handler("deaf")
async def deaf(ctx: Context) -> None:
    import asyncio
    log.info("begun")
    while True:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            pass
"""

SPANS = """
import contextlib
from jobwire import App
@contextlib.asynccontextmanager
async def lifespan():
    open("/absent/file")
    yield
app = App(lifespan=lifespan)
@app.handler("x")
async def x(ctx): ...
"""

TASKS = ("deaf", "elsewhere", "failing", "forever", "greet", "slow")
"""The tasks of APP, sorted as the worker prints them."""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(APP)
    return tmp_path


def start(valkey: LocalValkey, folder: Path, *arguments: str, **variables: str) -> Program:
    env = clean_env(JOBWIRE_VALKEY_URL=valkey.url, JOBWIRE_LOGGING_FORMAT="json", **variables)
    return Program("-m", "jobwire", "worker", *arguments, env=env, cwd=folder)


async def submit(queue: StreamsQueue, task: str, **payload: object) -> JobId:
    answer = await queue.submit(JobRequest(task, json.dumps(payload), queue="shop"))
    assert isinstance(answer, Submitted)
    return answer.job_id


@clause("O-2")
async def test_the_worker_runs_an_app_of_the_working_directory(
    valkey: LocalValkey, connection: Connection, shop: Path
) -> None:
    queue = StreamsQueue(connection)
    with start(valkey, shop, "shop:app", "--slots", "3") as program:
        await asyncio.to_thread(
            program.wait_for_line, f"worker with 3 slots; shop → {', '.join(TASKS)}"
        )
        for task in ("greet", "elsewhere"):
            job = await submit(queue, task, name="you")

            async def done(job: JobId = job) -> bool:
                record = await queue.record(job)
                assert record is not None
                return record.status is Status.DONE

            await wait_until(done)
            record = await queue.record(job)
            assert record is not None
            assert record.result_json == '"hello, you"'
            # The log lines of a handler carry the job's id, in a process too.
            word = "from another process" if task == "elsewhere" else '"greeting"'
            line = json.loads(await asyncio.to_thread(program.wait_for_line, word))
            assert (line["job_id"], line["service"], line["logger"]) == (job, "worker", "shop")
        program.terminate()
        assert await asyncio.to_thread(program.wait) == 0


@clause("J-35", "J-57")
async def test_j57_attempts_and_timeout_of_a_job_are_limited_by_the_worker(
    valkey: LocalValkey, connection: Connection, shop: Path
) -> None:
    """A job with 1,000 attempts of 30 days would otherwise hold a slot as long."""
    queue = StreamsQueue(connection)
    limits = {"JOBWIRE_WORKER_MAX_ATTEMPTS": "3", "JOBWIRE_WORKER_MAX_TIMEOUT": "0.3s"}
    with start(valkey, shop, "shop", **limits) as program:
        await asyncio.to_thread(program.wait_for_line, "worker with")
        ended: dict[str, tuple[str, int]] = {}
        for task in ("failing", "slow"):
            attempts = 1000 if task == "failing" else 1
            request = JobRequest(
                task, "{}", max_attempts=attempts, timeout_s=2_592_000, queue="shop"
            )
            answer = await queue.submit(request)
            assert isinstance(answer, Submitted)

            async def is_over(job: JobId = answer.job_id) -> bool:
                record = await queue.record(job)
                return record is not None and record.status is Status.ERROR

            await wait_until(is_over)
            record = await queue.record(answer.job_id)
            assert record is not None
            ended[task] = (json.loads(record.error_json)["code"], record.attempt)
        assert ended == {"failing": ("handler_error", 3), "slow": ("timeout", 1)}
        program.terminate()
        assert await asyncio.to_thread(program.wait) == 0


@clause("O-3")
async def test_o03_the_password_is_not_on_the_command_line(
    valkey: LocalValkey, connection: Connection, shop: Path
) -> None:
    secret = shop / "secret.txt"
    secret.write_text(f"{valkey.password}\n")
    url = f"valkey://jobwire@{valkey.address}/0"
    words = ("-m", "jobwire", "worker", "shop", "--valkey", url)
    file = ("--valkey-password-file", str(secret))
    with Program(*words, *file, env=clean_env(), cwd=shop, cold=True) as program:
        await asyncio.to_thread(program.wait_for_line, "worker with")
        command = psutil.Process(program.pid).cmdline()
        assert "--valkey-password-file" in command
        assert not [word for word in command if valkey.password in word]
        assert "warning" not in program.output
        program.terminate()
        await asyncio.to_thread(program.wait)
    whole = ("-m", "jobwire", "worker", "shop", "--valkey", valkey.url)
    with Program(*whole, env=clean_env(), cwd=shop) as program:
        await asyncio.to_thread(program.wait_for_line, "a password on the command line")
        assert valkey.password not in program.output
    for content in (None, " \n"):
        if content is None:
            secret.unlink()
        else:
            secret.write_text(content)
        refused = jobwire("worker", "shop", "--valkey", url, *file, cwd=shop)
        assert refused.returncode == 2
        assert "valkey.password_file" in refused.stderr
    helped = jobwire("worker", "--help", cwd=shop).stdout
    assert "password@" not in helped
    assert "--valkey-password-file" in helped


@clause("O-5")
async def test_runs_are_exported_as_spans(
    valkey: LocalValkey, connection: Connection, shop: Path
) -> None:
    queue = StreamsQueue(connection)
    got: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            got.append((self.path, self.rfile.read(length)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - its name

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{collector.server_port}"
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "NO_PROXY": "*"}
        with start(valkey, shop, "shop", **variables) as program:
            await asyncio.to_thread(program.wait_for_line, "worker with")
            job = await submit(queue, "greet", name="you")
            await asyncio.to_thread(program.wait_for_line, '"greeting"')
            program.terminate()
            assert await asyncio.to_thread(program.wait) == 0
        collector.shutdown()
    spans = b"".join(body for path, body in got if path == "/v1/traces")
    assert b"process greet" in spans
    assert job.encode() in spans


@clause("O-2", "J-40")
@pytest.mark.parametrize("task", ["forever", "deaf"])
async def test_a_handler_that_never_ends_does_not_keep_the_worker_alive(
    valkey: LocalValkey, connection: Connection, shop: Path, task: str
) -> None:
    queue = StreamsQueue(connection)
    with start(valkey, shop, "shop", JOBWIRE_WORKER_DRAIN="100ms") as program:
        await asyncio.to_thread(program.wait_for_line, "worker with")
        job = await submit(queue, task)
        await asyncio.to_thread(program.wait_for_line, "begun")
        program.terminate()
        assert await asyncio.to_thread(program.wait) == 0
        record = await queue.record(job)
        assert record is not None
        assert record.status is Status.QUEUED
        assert "did not stop" in program.output


@clause("O-2")
@pytest.mark.usefixtures("own_logging")
def test_an_app_that_cannot_be_loaded_is_one_line(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, source in {
        "broken": "1 / 0\n",
        "far": "import json\njson.loads('')\n",
        "needs": "import absent_library\n",
        "typo": "a = 1\ndef f(:\n",
        "leaves": "import sys\nsys.exit(3)\n",
        "silent": "from jobwire import App\napp = App()\n@app.tool\ndef wave(): pass\n",
    }.items():
        (shop / f"{name}.py").write_text(source)
    monkeypatch.chdir(shop)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for app, texts in {
        "nowhere:app": ["there is no module 'nowhere' here"],
        "shop:wrong": ["shop:wrong is not an App; did you mean shop:app?"],
        "broken": ["broken cannot be loaded: ZeroDivisionError: division by zero", "broken.py:1)"],
        "far": ["far cannot be loaded: JSONDecodeError", "far.py:2)"],
        "needs": ["No module named 'absent_library'", "needs.py:1); install it into the environ"],
        "typo": ["SyntaxError: invalid syntax (", "typo.py:2)"],
        "leaves": ["leaves cannot be loaded: SystemExit: 3", "leaves.py:2)"],
        "shop:empty": ["shop:empty has no handlers"],
        "silent": ["silent: tool wave: needs a docstring, its description for the model"],
    }.items():
        code = main(["worker", app])
        (error,) = capsys.readouterr().err.splitlines()
        assert code == Exit.USAGE, error
        assert [text for text in texts if text not in error] == [], error


@clause("O-2")
def test_a_fault_of_the_users_setup_is_a_usage_error(valkey: LocalValkey, shop: Path) -> None:
    (shop / "spans.py").write_text(SPANS)
    with start(valkey, shop, "spans:app") as program:
        assert program.wait() == Exit.USAGE
        assert "spans.py:6: FileNotFoundError" in program.lines[-1]
    source = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from jobwire.cli.main import main; sys.exit(main(['worker', 'shop']))"
    )
    port = str(free_port())
    env = clean_env(JOBWIRE_VALKEY_URL=valkey.url, JOBWIRE_WORKER_METRICS_PORT=port)
    with Program("-c", source, env=env, cwd=shop) as light:
        assert light.wait() == Exit.USAGE
        fault = "worker.metrics_port needs prometheus-client: pip install 'jobwire[metrics]'"
        assert light.lines[-1] == f"jobwire: {fault}"


@clause("O-2", "D-23")
@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ("on_failure='no-task'", "handler 'work': on_failure='no-task' is not a task of this App"),
        (
            "queue='mails', wire='bullmq', uses={'durable'}",
            "handler 'work' uses durable, which the queue 'mails' (bullmq) does not have",
        ),
    ],
)
def test_a_handler_that_its_queue_cannot_run_is_a_usage_error(
    valkey: LocalValkey, shop: Path, options: str, fault: str
) -> None:
    """Regression: it was an internal error of jobwire."""
    (shop / "wrong.py").write_text(
        f"from jobwire import App\napp = App('wrong')\n@app.handler('work', {options})\n"
        "def work(ctx): pass\n"
    )
    with start(valkey, shop, "wrong:app") as program:
        assert program.wait() == Exit.USAGE
        assert program.lines[-1].startswith(f"jobwire: {fault}")


@clause("O-2")
def test_a_missing_server_is_waited_for_then_one_line_and_exit_3(shop: Path) -> None:
    source = (
        "import sys; from jobwire.systems import backends; from jobwire.cli.main import main\n"
        "backends.START_TIMEOUT_S = 4\n"  # also on a busy machine longer than one attempt
        "sys.exit(main(['worker', 'shop', '--valkey', sys.argv[1]]))"
    )
    address = f"127.0.0.1:{free_port()}"
    with Program("-c", source, f"valkey://{address}", env=clean_env(), cwd=shop) as program:
        assert program.wait() == 3
        assert "; will retry" in program.output
        assert address in program.lines[-1]


@clause("O-2", "O-12")
def test_o12_the_server_of_the_endpoints_file_is_used(valkey: LocalValkey, shop: Path) -> None:
    (shop / ".jobwire").mkdir()
    (shop / ".jobwire" / "endpoints.json").write_text(
        json.dumps({"http": "", "valkey": valkey.url, "s3": None, "pids": {}, "version": "0"})
    )
    command = ("-m", "jobwire", "worker", "shop:app")
    with Program(*command, env=clean_env(), cwd=shop) as program:
        program.wait_for_line("worker with")
        assert program.lines[0] == "valkey: from .jobwire/endpoints.json"
        program.terminate()
        assert program.wait() == 0
    configured = clean_env(JOBWIRE_VALKEY_ADDRESS=f"127.0.0.1:{free_port()}")
    with Program(*command, env=configured, cwd=shop) as program:
        program.wait_for_line("cannot connect")
        assert ".jobwire" not in program.output, "a configured address has precedence"


@clause("O-2")
def test_reload_restarts_when_a_file_changes(valkey: LocalValkey, shop: Path) -> None:
    with start(valkey, shop, "shop:app", "--reload") as program:
        first = f"worker with 10 slots; shop → {', '.join(TASKS)}\n"
        program.wait_for_line(first.strip())
        (shop / "shop.py").write_text(APP + '\n@app.handler("new")\nasync def new(ctx): ...\n')
        program.wait_for_line(f"→ {', '.join(sorted([*TASKS, 'new']))}")
        (shop / "shop.py").write_text("this is no Python\n")
        program.wait_for_line("cannot be loaded: SyntaxError")
        (shop / "shop.py").write_text(APP)
        wait_until_sync(lambda: program.output.count(first) == 2)
        program.terminate()
        assert program.wait() == 0
