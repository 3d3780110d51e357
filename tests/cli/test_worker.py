"""`jobwire worker`: only a worker, for the handlers of an App."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from jobwire.job.life import State
from jobwire.job.messages import JobId, Order, Submitted
from jobwire.local import LocalValkey, free_port
from jobwire.valkey import Connection
from jobwire.wires.streams.queue import StreamsQueue
from tests.cli.running import clean_env, jobwire
from tests.support import Program, clause, wait_until, wait_until_sync

APP = """
import logging
import time
from jobwire import App, Context, Fail, Retry

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


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(APP)
    return tmp_path


def start(valkey: LocalValkey, folder: Path, *words: str, **variables: str) -> Program:
    env = clean_env(JOBWIRE_VALKEY_URL=valkey.url, JOBWIRE_LOGGING_FORMAT="json", **variables)
    return Program("-m", "jobwire", "worker", *words, env=env, cwd=folder)


async def submit(queue: StreamsQueue, task: str, **payload: object) -> JobId:
    answer = await queue.submit(Order(task, json.dumps(payload)))
    assert isinstance(answer, Submitted)
    return answer.job_id


@clause("O-2")
async def test_it_runs_an_app_of_the_working_directory(
    valkey: LocalValkey, connection: Connection, shop: Path
) -> None:
    queue = StreamsQueue(connection)
    with start(valkey, shop, "shop:app", "--slots", "3") as program:
        said = await asyncio.to_thread(
            program.wait_for_line, "worker with 3 slots for deaf, elsewhere, forever, greet"
        )
        assert said
        for task in ("greet", "elsewhere"):
            job = await submit(queue, task, name="you")

            async def done(job: JobId = job) -> bool:
                snapshot = await queue.get(job)
                assert snapshot is not None
                return snapshot.state is State.DONE

            await wait_until(done)
            snapshot = await queue.get(job)
            assert snapshot is not None
            assert snapshot.result_json == '"hello, you"'
            # Whatever a handler logs carries the job's id, wherever it runs.
            word = "from another process" if task == "elsewhere" else '"greeting"'
            line = json.loads(await asyncio.to_thread(program.wait_for_line, word))
            assert (line["job_id"], line["service"], line["logger"]) == (job, "worker", "shop")
        program.terminate()
        assert await asyncio.to_thread(program.wait) == 0


@clause("O-5")
async def test_its_runs_are_spans_where_traces_are_asked_for(
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
async def test_a_handler_that_never_ends_does_not_keep_it_alive(
    valkey: LocalValkey, connection: Connection, shop: Path, task: str
) -> None:
    queue = StreamsQueue(connection)
    with start(valkey, shop, "shop", JOBWIRE_WORKER_DRAIN="100ms") as program:
        await asyncio.to_thread(program.wait_for_line, "worker with")
        job = await submit(queue, task)
        await asyncio.to_thread(program.wait_for_line, "begun")
        program.terminate()
        assert await asyncio.to_thread(program.wait) == 0
        snapshot = await queue.get(job)
        assert snapshot is not None
        assert snapshot.state is State.WAITING
        assert "would not end" in program.output


@clause("O-2")
@pytest.mark.parametrize(
    ("app", "line"),
    [
        ("nowhere:app", "there is no module 'nowhere' here"),
        ("shop:wrong", "shop:wrong is no App; did you mean shop:app?"),
        ("broken", "broken cannot be loaded: ZeroDivisionError: division by zero"),
        ("needs", "absent_library is not installed"),
        ("shop:empty", "shop:empty has no handlers"),
        ("silent", "silent: tool wave: needs a docstring that says what it is for"),
    ],
)
def test_what_cannot_be_run_is_one_line(shop: Path, app: str, line: str) -> None:
    (shop / "broken.py").write_text("1 / 0\n")
    (shop / "needs.py").write_text("import absent_library\n")
    (shop / "silent.py").write_text(
        "from jobwire import App\napp = App()\n@app.tool\ndef wave(): pass\n"
    )
    done = jobwire("worker", app, cwd=shop)
    assert done.returncode == 2
    (said,) = done.stderr.splitlines()
    assert line in said


@clause("O-2")
def test_a_server_that_is_not_there_is_waited_for_then_one_line_and_exit_3(shop: Path) -> None:
    source = (
        "import sys; from jobwire.wiring import ground; from jobwire.cli.main import main\n"
        "ground.PATIENCE_S = 0.3\n"
        "sys.exit(main(['worker', 'shop', '--valkey', sys.argv[1]]))"
    )
    address = f"127.0.0.1:{free_port()}"
    with Program("-c", source, f"valkey://{address}", env=clean_env(), cwd=shop) as program:
        assert program.wait() == 3
        assert "trying again" in program.output
        assert address in program.lines[-1]


@clause("O-2", "O-12")
def test_o12_the_server_of_a_program_that_runs_here_is_found(
    valkey: LocalValkey, shop: Path
) -> None:
    (shop / ".jobwire").mkdir()
    (shop / ".jobwire" / "endpoints.json").write_text(
        json.dumps({"http": "", "valkey": valkey.url, "s3": None, "pids": {}, "version": "0"})
    )
    words = ("-m", "jobwire", "worker", "shop:app")
    with Program(*words, env=clean_env(), cwd=shop) as program:
        program.wait_for_line("worker with")
        assert program.lines[0] == "valkey: the one of the program in .jobwire"
        program.terminate()
        assert program.wait() == 0
    named = clean_env(JOBWIRE_VALKEY_ADDRESS=f"127.0.0.1:{free_port()}")
    with Program(*words, env=named, cwd=shop) as program:
        program.wait_for_line("cannot connect")
        assert ".jobwire" not in program.output, "who names a server means it"


@clause("O-2")
def test_reload_starts_again_when_a_file_changes(valkey: LocalValkey, shop: Path) -> None:
    with start(valkey, shop, "shop:app", "--reload") as program:
        program.wait_for_line("worker with 10 slots for deaf, elsewhere, forever, greet")
        (shop / "shop.py").write_text(APP + '\n@app.handler("new")\nasync def new(ctx): ...\n')
        program.wait_for_line("for deaf, elsewhere, forever, greet, new")
        (shop / "shop.py").write_text("this is no Python\n")
        program.wait_for_line("cannot be loaded: SyntaxError")
        (shop / "shop.py").write_text(APP)
        wait_until_sync(lambda: program.output.count("for deaf, elsewhere, forever, greet\n") == 2)
        program.terminate()
        assert program.wait() == 0
