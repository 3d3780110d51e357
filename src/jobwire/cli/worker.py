"""`jobwire worker module:app`: only a worker, against servers that run elsewhere."""

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from jobwire.cli import options, output
from jobwire.cli.exits import CliExit, Exit

if TYPE_CHECKING:
    from jobwire.settings import Loaded, Settings


@click.command()
@click.argument("app", metavar="[MODULE:APP]", required=False)
@click.option("--slots", metavar="N", help="Jobs held at a time.  [env: JOBWIRE_WORKER_SLOTS]")
@click.option("--tasks", is_flag=True, help="The six tasks too, beside the handlers of the App.")
@options.valkey
@click.option("--reload", is_flag=True, help="For development: start again when a file changes.")
@click.option("--ready-fd", type=int, hidden=True, help="Where to say that we are ready.")
@click.pass_context
def command(
    context: click.Context,
    app: str | None,
    slots: str | None,
    tasks: bool,
    valkey: str | None,
    reload: bool,
    ready_fd: int | None,
) -> None:
    """Run a worker for the handlers of an App; it needs a Valkey that runs already. One that
    `jobwire up` has started here is found by itself.

    It has the six tasks (chat, plan, code, tool, rag, embed) without an App, for one with tools,
    and with --tasks.

    \b
    Examples:
      jobwire worker
      jobwire worker shop.jobs:app
      jobwire worker jobs --slots 50 --reload     (`app` in jobs.py)
    """
    if reload:
        from jobwire.cli.reload import run_again_and_again

        run_again_and_again([word for word in sys.argv[1:] if word != "--reload"])
        return

    from jobwire.local.program import ReadyPipe

    with ReadyPipe.of(ready_fd, explain=_explain) as ready:
        import uvloop

        from jobwire import log
        from jobwire.wiring.worker import NoSuchApp, load_app, serve_worker

        settings = _on_the_server_here(
            options.settings(
                context, worker__slots=("--slots", slots), valkey__url=("--valkey", valkey)
            )
        )
        log.setup("worker", settings.logging)
        try:
            loaded = load_app(app)
        except NoSuchApp as error:
            raise CliExit(str(error), Exit.USAGE) from error

        def on_ready() -> None:
            ready.ready()
            if ready_fd is None:
                count = settings.worker.slots
                output.say(f"worker with {count} slots for {', '.join(sorted(loaded.handlers))}")

        async def serve() -> None:
            if await serve_worker(loaded, settings, tasks=tasks, on_ready=on_ready):
                # A coroutine that does not listen would keep the event loop here for ever.
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(Exit.OK)

        uvloop.run(serve())


def _on_the_server_here(loaded: "Loaded") -> "Settings":
    """The settings. Where they name no server it is that of the program whose card lies in the data
    dir, if one runs here: a worker of one's own beside `jobwire up` needs no address."""
    from jobwire import endpoints

    settings = loaded.settings
    named = loaded.is_given("valkey.url") or loaded.is_given("valkey.address")
    card = None if named else endpoints.read(settings.data_dir)
    if card is None:
        return settings
    output.say(f"valkey: the one of the program in {settings.data_dir}")
    return replace(settings, valkey=replace(settings.valkey, url=card.valkey))


def _explain(error: Exception) -> str:
    from jobwire.cli.failures import lines_and_code

    return "; ".join(lines_and_code(error)[0])
