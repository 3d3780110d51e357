"""Real models for the tests: one of this process, one behind llama.cpp's own server.

Both are small, run on one thread, and run with a lower priority (`nice`).
"""

from __future__ import annotations

import contextlib
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from jobwire.handlers.llm import LlmSettings, register
from jobwire.handlers.llm.models.factory import Models
from jobwire.maintenance import Maintenance
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Connection
from jobwire.worker import App, Worker
from tests.handlers.llm.local_worker import Fleet, StartFleet
from tests.handlers.llm.recorder import Bench
from tests.support import Plain, Program
from tests.support.shared_server import Facts, shared_server
from tests.support.workers import started, stopped

KEY = "a-key-for-tests"


@pytest.fixture(scope="session")
def common_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """One folder for all parallel workers."""
    folder = tmp_path_factory.getbasetemp()
    return folder if worker_id == "master" else folder.parent


@pytest.fixture(scope="session")
def cache_dir(common_folder: Path) -> Path:
    """Where the embedding model is converted to, once."""
    return common_folder / "llm-cache"


@pytest.fixture(scope="session")
def local_models(cache_dir: Path) -> Iterator[Models]:
    """The small models, loaded when first asked."""
    models = Models(LlmSettings(cache_dir=cache_dir))
    yield models
    models.close()


@pytest.fixture
def local(local_models: Models, cache_dir: Path) -> Bench:
    """The six tasks on the local models."""
    return Bench(LlmSettings(cache_dir=cache_dir), models=local_models)


@pytest.fixture(scope="session")
def llama(common_folder: Path, cache_dir: Path) -> Iterator[Facts]:
    """llama.cpp's own HTTP server, with a chat model and with an embedding model."""

    @contextlib.contextmanager
    def start(_home: Path) -> Generator[Facts]:
        script = Path(__file__).with_name("llama_server.py")
        with Program(script, str(cache_dir), KEY) as program:
            chat, embed = program.wait_for_line("listening").split()[1:]
            yield {"chat": chat, "embed": embed}

    with shared_server(common_folder, "llama", start, _answers) as facts:
        yield facts


@pytest.fixture
def llama_settings(llama: Facts, cache_dir: Path) -> LlmSettings:
    return LlmSettings(
        base_url=f"{llama['chat']}/v1",
        api_key=KEY,
        model="smollm2",
        embed_base_url=f"{llama['embed']}/v1",
        embed_api_key=KEY,
        embed_model="minilm",
        cache_dir=cache_dir,
    )


@pytest.fixture
def over_http(llama_settings: LlmSettings) -> Bench:
    """The six tasks on a real OpenAI-compatible server."""
    return Bench(llama_settings)


@pytest.fixture
def bench_at() -> Callable[..., Bench]:
    """The six tasks on a server at this URL, with settings of the test's own."""

    def make(url: str, **settings: object) -> Bench:
        return Bench(LlmSettings(base_url=url, model="tester", api_key=KEY, **settings))  # pyright: ignore[reportArgumentType] - each test gives its own

    return make


@pytest_asyncio.fixture
async def start(connection: Connection, plain: Plain) -> AsyncIterator[StartFleet]:
    """Starts workers; they are stopped with the test."""
    async with contextlib.AsyncExitStack() as stack:

        async def begin(
            settings: LlmSettings, models: Models | None = None, app: App | None = None
        ) -> Fleet:
            app = App() if app is None else app
            register(app, settings, models)
            engine = StreamsEngine(connection, StreamsSettings())
            worker = Worker(
                app, [engine], background=[lambda: Maintenance(engine.maintenance()).run()]
            )
            stack.push_async_callback(stopped, worker, await started(worker))
            return Fleet(connection, plain)

        yield begin


def _answers(facts: Facts) -> bool:
    with contextlib.suppress(urllib.error.URLError):
        for url in facts.values():
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                pass
        return True
    return False
