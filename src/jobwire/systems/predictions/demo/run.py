"""The demo as one program: S3 server, cog, gateway with the chat page; nothing outlives it."""

import asyncio
import contextlib
import secrets
import signal
import socket
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jobwire import __version__
from jobwire.gateway.app import Gateway
from jobwire.gateway.server import HttpServer
from jobwire.gateway.settings import GatewaySettings
from jobwire.gateway.sse_connections import SseConnections
from jobwire.local.listen import listen
from jobwire.local.s3 import LocalS3
from jobwire.objects import Bucket
from jobwire.systems.predictions.build import build_flow
from jobwire.systems.predictions.demo.chat import DemoChat
from jobwire.systems.predictions.demo.cog import CogServer, environment, user_cache
from jobwire.systems.predictions.demo.pages import chat_feature, send_photo
from jobwire.systems.predictions.demo.sample import sample_photo
from jobwire.systems.predictions.feature import running
from jobwire.systems.predictions.flow import Flow
from jobwire.systems.predictions.http import feature
from jobwire.systems.predictions.listing import find_task
from jobwire.systems.predictions.settings import PredictionsSettings

_ONCE_S: Final = 120.0
_STOP_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """How the demo is run; `notify` takes lines for the user."""

    data_dir: Path
    port: int = 0
    cog_python: Path | None = None
    """A Python that has cog; without it one is made."""
    notify: Callable[[str], None] = lambda _: None


@dataclass(slots=True)
class Demo:
    """The running demo."""

    url: str
    chat: DemoChat
    flow: Flow
    tasks: asyncio.TaskGroup


async def serve(options: DemoOptions, on_ready: Callable[[str], None]) -> None:
    """Run the demo until SIGINT or SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with demo(options) as started:
        on_ready(started.url)
        await stop.wait()


async def send_once(options: DemoOptions, photo: bytes | None) -> dict[str, object]:
    """Send one photo through and describe its outcome."""
    async with demo(options) as started, asyncio.timeout(_ONCE_S):
        chat, flow = started.chat, started.flow
        tid = await send_photo(chat, flow, started.tasks, photo or sample_photo(), "")
        seen = 0
        while True:
            view = await find_task(flow.deps.records, tid)
            if view is not None and view.state == "delivered":
                break
            await chat.wait_for_change(seen, 0.2)
            seen = chat.revision
        results = [each for each in chat.messages.values() if each.author == "bot"]
        return {
            "status": view.status,
            "pictures": sum(each.picture is not None for each in results),
            "texts": [each.text for each in results if each.text],
            "prediction_id": view.id,
            "input_key": view.input_key,
            "output_key": view.output_key,
            "error": view.error,
        }


@contextlib.asynccontextmanager
async def demo(options: DemoOptions) -> AsyncGenerator[Demo]:
    """Start everything; stop it in the opposite order."""
    options.data_dir.mkdir(parents=True, exist_ok=True)
    python = options.cog_python or await asyncio.to_thread(
        environment, user_cache(), options.notify
    )
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(listen("127.0.0.1", options.port))
        cog = CogServer(python, options.data_dir / "model")
        stack.callback(cog.stop)
        store = stack.enter_context(LocalS3(options.data_dir / "s3", bucket="bot-demo"))
        await asyncio.to_thread(cog.wait_ready)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        settings = PredictionsSettings(
            provider="cog",
            model="jobwire/cartoon",
            cog_url=cog.url,
            webhook_secret=secrets.token_hex(32),
            public_url=url,
            allow_loopback=True,
            max_per_hour=0,
        )
        async with _serving(settings, Bucket(store.config), listening, url) as started:
            yield started


@contextlib.asynccontextmanager
async def _serving(
    settings: PredictionsSettings, bucket: Bucket, listening: socket.socket, url: str
) -> AsyncGenerator[Demo]:
    chat = DemoChat()
    # Each run is a bot of its own: its message ids begin anew, and so must its task ids.
    flow = build_flow(settings, bucket, chat, bot=f"demo-{secrets.token_hex(4)}")
    gateway_settings = GatewaySettings()
    async with asyncio.TaskGroup() as tasks, running(flow, None, settings):
        streams = SseConnections(gateway_settings)
        features = [feature(bucket, "", flow), chat_feature(chat, flow, tasks)]
        gateway = Gateway(gateway_settings, features, streams, version=__version__)
        ready = asyncio.Event()
        server = HttpServer(gateway, gateway_settings, ready.set)
        serving = tasks.create_task(server.run_until_stopped(listening))
        await ready.wait()
        try:
            yield Demo(url, chat, flow, tasks)
        finally:
            server.stop()  # the webhook that delivered the picture is still being answered
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_S):
                    await asyncio.shield(serving)
            server.stop()
            await serving
