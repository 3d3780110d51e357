"""A worker, put together: an app of handlers on the queues that it serves."""

import asyncio
import contextlib
import importlib
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from jobwire.duties import Duties
from jobwire.settings import Settings
from jobwire.wires.streams.calendar import StreamsCalendar
from jobwire.wires.streams.engine import StreamsEngine
from jobwire.wiring.ground import reach
from jobwire.worker import App, Worker
from jobwire.worker.scheduler import Scheduler


class NoSuchApp(Exception):
    """What was named is no app; says what to do."""


def load_app(name: str) -> App:
    """The app at `module:attribute`; modules of the working directory are found, too."""
    module_name, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise NoSuchApp(f"there is no module {error.name!r} here ({here})") from error
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise NoSuchApp(
            f"{module_name} cannot be loaded: {type(error).__name__}: {error} "
            f"({last.filename}:{last.lineno})"
        ) from error
    app = getattr(module, attribute or "app", None)
    if not isinstance(app, App):
        apps = [key for key, value in vars(module).items() if isinstance(value, App)]
        hint = f"did you mean {module_name}:{apps[0]}?" if apps else "write `app = App()` in it"
        raise NoSuchApp(f"{module_name}:{attribute or 'app'} is no App; {hint}")
    if not app.handlers:
        raise NoSuchApp(f"{name} has no handlers; register one with @app.handler('name')")
    return app


async def serve_worker(app: App, settings: Settings, *, on_ready: Callable[[], None]) -> int:
    """Run a worker until SIGTERM or SIGINT; a second one gives everything back now.

    How many handlers would not end: only the end of the process ends those.
    """
    async with contextlib.AsyncExitStack() as ground:
        connection = await reach(settings.valkey.config(), "jobwire-worker")
        ground.push_async_callback(connection.close)
        jobs = replace(settings.jobs, lease_s=settings.worker.lease.total_seconds())
        engine = StreamsEngine(connection, jobs)
        worker = Worker(
            app,
            [engine],
            slots=settings.worker.slots,
            drain_s=settings.worker.drain.total_seconds(),
            beside=[
                # Asked for when it has entered: only then is a worker's card among them.
                lambda: Duties(engine.duties()).run(),
                Scheduler(app.crons, StreamsCalendar(connection, jobs)).run,
            ],
            on_ready=on_ready,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, worker.stop)
        await worker.run()
        return worker.left_behind
