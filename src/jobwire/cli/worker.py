"""`jobwire worker module:app`: only a worker, with servers that run elsewhere."""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click

from jobwire.cli import options, output
from jobwire.cli.exits import CliExit, Exit, start_failure

if TYPE_CHECKING:
    from jobwire.job.messages import ServedQueue
    from jobwire.settings import Loaded, Settings

_OWN_WIRE: Final = "streams"


@click.command()
@click.argument("app", metavar="[MODULE:APP]", required=False)
@options.setting(
    "--slots",
    "worker.slots",
    metavar="N",
    help_text="Maximum number of running jobs.  [env: JOBWIRE_WORKER_SLOTS]",
)
@options.setting(
    "--queue",
    "worker.queues",
    short="-Q",
    metavar="QUEUES",
    help_text="Read only these queues of the App, as a,b.  [env: JOBWIRE_WORKER_QUEUES]",
)
@options.setting(
    "--exclude-queue",
    "worker.exclude_queues",
    metavar="QUEUES",
    help_text="Do not read these queues.  [env: JOBWIRE_WORKER_EXCLUDE_QUEUES]",
)
@click.option(
    "--tasks", is_flag=True, help="Also run the six tasks, besides the handlers of the App."
)
@options.data_dir
@options.valkey
@options.only
@click.option("--reload", is_flag=True, help="For development: restart when a file changes.")
@click.option("--replaces", type=int, hidden=True, help="Process id of a dead worker, from `up`.")
@options.ready_fd
@options.reloader_fd
def command(
    app: str | None,
    tasks: bool,
    reload: bool,
    replaces: int | None,
    ready_fd: int | None,
    reloader_fd: int | None,
) -> int:
    """Run a worker for the handlers of an App; it needs a running Valkey. The one that `jobwire up`
    has started here is found automatically.

    It also runs the six tasks (chat, plan, code, tool, rag, embed) without an App, if the App has
    tools, and with --tasks.

    \b
    Examples:
      jobwire worker
      jobwire worker shop.jobs:app
      jobwire worker shop.jobs:app -Q mail,reports
      jobwire worker jobs --slots 50 --reload     (`app` in jobs.py)
    """
    if reload:
        from jobwire.cli.reload import run_with_reload

        return run_with_reload(_child_arguments(sys.argv[1:]), ready_fd=ready_fd)

    from jobwire.local.program import ReadyPipe

    with ReadyPipe.of(ready_fd, explain=start_failure) as ready:
        import uvloop

        from jobwire import log
        from jobwire.programs.worker import NoSuchApp, load_app, serve_worker
        from jobwire.systems.system import chosen

        found = options.running_settings()
        settings = _with_local_valkey(found)
        log.setup("worker", settings.logging)
        systems = chosen(found, has_bucket=bool(settings.objects.endpoint), worker=True)
        try:
            loaded = load_app(app)
        except NoSuchApp as error:
            raise CliExit(str(error), Exit.USAGE) from error

        def on_ready(served: "Sequence[ServedQueue]") -> None:
            ready.ready()
            if reloader_fd is not None:
                ReadyPipe(reloader_fd).ready()
            if ready_fd is None:
                output.info(f"worker with {settings.worker.slots} slots; {_described(served)}")

        async def serve() -> None:
            if await serve_worker(
                loaded,
                settings,
                systems,
                tasks=tasks,
                on_ready=on_ready,
                replaces_pid=replaces,
            ):
                # A coroutine that ignores its cancellation would keep the event loop open forever.
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(Exit.OK)

        uvloop.run(serve())
        return Exit.OK


def _described(served: "Sequence[ServedQueue]") -> str:
    """Each queue, and the tasks whose jobs wait in it."""
    return "; ".join(
        f"{each.queue}{'' if each.wire == _OWN_WIRE else f' ({each.wire})'}"
        + (f" → {', '.join(each.tasks)}" if each.tasks else "")
        for each in served
    )


def _child_arguments(arguments: Sequence[str]) -> list[str]:
    """The command line without the options of the reloader itself."""
    kept: list[str] = []
    given = iter(arguments)
    for argument in given:
        if argument == "--ready-fd":
            next(given, None)
        elif argument != "--reload":
            kept.append(argument)
    return kept


def _with_local_valkey(loaded: "Loaded") -> "Settings":
    """Return the settings; without a Valkey address, with that of the endpoints file in the data
    dir: a worker next to `jobwire up` needs no address."""
    from jobwire import endpoints

    settings = loaded.settings
    configured = loaded.is_set("valkey.url") or loaded.is_set("valkey.address")
    running = None if configured else endpoints.read(settings.data_dir)
    if running is None or running.valkey is None:
        return settings
    output.info(f"valkey: from {settings.data_dir}/{endpoints.FILE}")
    return replace(settings, valkey=replace(settings.valkey, url=running.valkey))
