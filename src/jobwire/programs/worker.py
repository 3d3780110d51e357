"""Builds a worker: an App of handlers on the queues of the chosen systems."""

import asyncio
import contextlib
import logging
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from jobwire import user_frames
from jobwire.handlers.llm import check_tools
from jobwire.job.engine import Engine
from jobwire.job.messages import ServedQueue
from jobwire.local.listen import listen
from jobwire.maintenance import Maintenance
from jobwire.programs.traces import traces
from jobwire.settings import Settings, SettingsError
from jobwire.systems.backends import open_backends, retry_start
from jobwire.systems.system import Background, System, WorkerContext, import_from_here
from jobwire.worker import App, Worker
from jobwire.worker.settings import WorkerSettings
from jobwire.worker.worker import engine_routes

_log: Final = logging.getLogger("jobwire.worker")


class NoSuchApp(Exception):
    """The argument names no App."""


def load_app(name: str | None) -> App:
    """Import the App at `module:attribute`, also from the working directory; without a name, return
    an empty App."""
    if not name:  # empty: a unit file passes a variable that is not set
        return App("default")
    module_name, _, attribute = name.partition(":")
    try:
        module = import_from_here(module_name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and user_frames.is_jobwire(error.__traceback__):
            raise  # an extra of jobwire
        raise NoSuchApp(_load_failure(module_name, error)) from error
    attribute = attribute or "app"
    app = getattr(module, attribute, None)
    if not isinstance(app, App):
        apps = [key for key, value in vars(module).items() if isinstance(value, App)]
        hint = f"did you mean {module_name}:{apps[0]}?" if apps else "write `app = App()` in it"
        raise NoSuchApp(f"{module_name}:{attribute} is not an App; {hint}")
    if app.is_empty and not app.tools:
        raise NoSuchApp(f"{name} has no handlers; register one with @app.handler('name')")
    try:
        check_tools(app.tools)
    except TypeError as error:
        raise NoSuchApp(f"{name}: {error}") from error
    _check_queue(app, module_name, attribute, vars(module).values())
    return app


def _check_queue(app: App, module_name: str, attribute: str, others: Iterable[object]) -> None:
    """J-53: its queue. Earlier releases named it after what the command was given."""
    if app.is_named:
        return
    former = module_name if attribute == "app" else f"{module_name}.{attribute}"
    app.former_name = former if former != app.name else ""
    apps = [each for each in others if isinstance(each, App) and each is not app]
    if any(each.name == app.name and not each.is_empty for each in apps):
        _log.warning(
            "two Apps share a queue queue=%(queue)s app=%(app)s; give each a name of its own",
            {"queue": app.name, "app": attribute},
        )


def _load_failure(module_name: str, error: BaseException) -> str:
    """Why the module cannot be imported, with the user's own line."""
    frame = user_frames.last(error.__traceback__)
    missing = isinstance(error, ModuleNotFoundError)
    if missing and frame is None and f"{module_name}.".startswith(f"{error.name}."):
        return f"there is no module {error.name!r} here ({Path.cwd()})"
    if isinstance(error, SyntaxError) and error.filename:
        place = f" ({error.filename}:{error.lineno})"
        reason = f"SyntaxError: {error.msg}"
    else:
        place = f" ({frame.tb_frame.f_code.co_filename}:{frame.tb_lineno})" if frame else ""
        reason = f"{type(error).__name__}: {error}"
    hint = f"; install it into the environment of jobwire ({sys.prefix})" if missing else ""
    return f"{module_name} cannot be loaded: {reason}{place}{hint}"


async def serve_worker(
    app: App,
    settings: Settings,
    systems: Sequence[System],
    *,
    tasks: bool,
    on_ready: Callable[[Sequence[ServedQueue]], None],
    replaces_pid: int | None = None,
) -> int:
    """Run a worker until SIGTERM or SIGINT; a second signal releases all jobs at once.

    With `tasks` it also runs the systems' own tasks; it always does for an App that has tools or no
    handlers. Returns the number of handlers that did not end: only the exit of the process ends
    those.
    """
    async with contextlib.AsyncExitStack() as stack:
        background: list[Background] = []
        if tasks or app.tools or app.is_empty:
            for system in systems:
                if system.tasks is not None:
                    background += stack.enter_context(system.tasks(app, settings))
        limits = settings.worker
        app = app.wrapped(
            lambda handler: replace(
                handler,
                timeout_limit_s=limits.max_timeout.total_seconds(),
                attempt_limit=limits.max_attempts,
            )
        )
        if stack.enter_context(traces("worker")):
            from jobwire.worker.tracing import traced  # late: an extra

            app = traced(app)
        backends = await stack.enter_async_context(
            open_backends(settings, systems, "jobwire-worker")
        )
        known_queues: set[str] = set()
        served = [
            system.engines(
                WorkerContext(settings, backends.of(system), app, replaces_pid, known_queues)
            )
            for system in systems
            if system.engines
        ]
        _check_selected(settings.worker, known_queues)
        engines = [
            engine
            for parts in served
            for engine in parts.engines
            if any(routes.all for routes in engine_routes(app, engine).values())
        ]
        if not engines:
            raise SettingsError(
                ["queues.names: there is no queue to serve; name one, or register a handler"]
            )
        queues = [queue for parts in served for queue in parts.served]
        for parts in served:
            if parts.describe_process is not None:
                parts.describe_process(queues)
        maintained: Counter[str] = Counter()
        try:
            worker = Worker(
                app,
                engines,
                slots=settings.worker.slots,
                drain_s=settings.worker.drain.total_seconds(),
                max_block_s=settings.worker.max_block_s,
                background=[
                    *background,
                    *(partial(_maintain, engine, maintained) for engine in engines),
                    *(work for parts in served for work in parts.background),
                ],
                on_ready=partial(on_ready, queues),
                retry_start=partial(retry_start, "valkey"),
            )
        except ValueError as error:  # a handler that its queue cannot run
            raise SettingsError([str(error)]) from error
        if settings.worker.metrics_port:
            stack.enter_context(_health(worker, settings.worker, maintained))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, worker.stop)
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, worker.pause)
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, worker.resume)
        await worker.run()
        return worker.left_behind


def _check_selected(worker: WorkerSettings, known: Set[str]) -> None:
    for name, selected in (("queues", worker.queues), ("exclude_queues", worker.exclude_queues)):
        for queue in selected:
            if queue not in known:
                have = ", ".join(sorted(known)) or "none"
                problem = f"no handler has the queue {queue!r}; queues of the App: {have}"
                raise SettingsError([f"worker.{name}: {problem}"])
    if known and not {*(worker.queues or known)} - {*worker.exclude_queues}:
        raise SettingsError(["worker.exclude_queues: no queue of the App is left"])


async def _maintain(engine: Engine, maintained: Counter[str]) -> None:
    # Asked for here, after the registration, which has a maintenance task of its own.
    await Maintenance(engine.maintenance(), done=maintained).run()


def _health(
    worker: Worker, settings: WorkerSettings, maintained: Mapping[str, int]
) -> contextlib.AbstractContextManager[None]:
    from jobwire.worker.collector import WorkerCollector, metrics_app  # late: an extra
    from jobwire.worker.health_server import health_app, serving

    listening = listen(settings.metrics_host, settings.metrics_port, "worker.metrics_port")
    metrics = metrics_app(WorkerCollector(worker.metrics, lambda: worker.slots, maintained))
    max_stall_s = settings.lease.total_seconds()
    return serving(listening, health_app(worker, metrics, max_stall_s=max_stall_s))
