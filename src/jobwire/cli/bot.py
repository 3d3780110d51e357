"""`jobwire bot`: the photo bot in Telegram, and a demo of it without any account."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobwire.cli import options, output, sanitize
from jobwire.cli.exits import CliExit, Exit

if TYPE_CHECKING:
    from jobwire.systems.predictions.commands import TaskView


@click.group()
def command() -> None:
    """The photo bot: a user sends a photo and gets the model's picture back.

    \b
    Examples:
      jobwire bot demo
      jobwire bot poll
      jobwire bot tasks
    """


@command.command("serve")
@options.port
@options.host
def serve() -> None:
    """Take updates and webhooks by HTTP at `predictions.public_url`; sets Telegram's webhook.

    \b
    Examples:
      jobwire bot serve --host 0.0.0.0 --port 8443
    """
    from jobwire import log
    from jobwire.local.listen import listen, url_of
    from jobwire.settings import SettingsError
    from jobwire.systems.system import chosen

    loaded = options.settings(systems=("bot serve", "predictions"))
    settings = loaded.settings
    log.setup("bot", settings.logging)
    if not settings.predictions.public_url:
        raise SettingsError(
            ["predictions.public_url: is required by bot serve; without one: jobwire bot poll"]
        )
    systems = chosen(loaded, has_bucket=bool(settings.objects.endpoint))
    listening = listen(settings.gateway.host, settings.gateway.port)

    import uvloop

    from jobwire.programs.gateway import serve_gateway
    from jobwire.systems.predictions.bot import require_configured

    require_configured(settings.predictions)

    def on_ready() -> None:
        output.info(f"bot on {url_of(listening)}")

    uvloop.run(serve_gateway(settings, systems, listening, on_ready=on_ready))


@command.command("poll")
@click.option("--delete-webhook", is_flag=True, help="Remove the bot's webhook at Telegram first.")
@options.data_dir
def poll(delete_webhook: bool) -> None:
    """Ask Telegram for updates; no public address is needed. One poller works at a time.

    \b
    Examples:
      jobwire bot poll
    """
    from jobwire import log
    from jobwire.systems.predictions import commands

    loaded = options.running_settings()
    log.setup("bot", loaded.settings.logging)

    def on_ready() -> None:
        output.info("polling for updates; stop with Ctrl-C")

    try:
        asyncio.run(commands.poll(loaded, delete_webhook=delete_webhook, on_ready=on_ready))
    except commands.PollingRefused as error:
        raise CliExit(str(error), Exit.REFUSED) from error


@command.command("reconcile")
@options.data_dir
@options.as_json
def reconcile() -> None:
    """Finish what was left half done: one pass, as a timer makes it.

    \b
    Examples:
      jobwire bot reconcile
    """
    from jobwire.systems.predictions import commands

    loaded = options.running_settings()
    output.facts(asyncio.run(commands.run_pass(loaded)))


@command.command("tasks")
@click.argument("task_id", metavar="[ID]", required=False)
@click.option("--limit", default=20, type=click.IntRange(1, 100), show_default=True, help="Tasks.")
@click.option("--after", default="", metavar="ID", help="Continue after this task.")
@options.data_dir
@options.as_json
def tasks(task_id: str | None, limit: int, after: str) -> None:
    """Show the bot's tasks, or one of them with the state of its work.

    \b
    Examples:
      jobwire bot tasks
      jobwire bot tasks ufawqhfynnddngldkgtslldrkq --json
    """
    from dataclasses import asdict

    from jobwire.systems.predictions import commands

    loaded = options.running_settings()
    if task_id is not None:
        view = asyncio.run(commands.show(loaded, task_id))
        if view is None:
            raise CliExit(f"there is no task {sanitize.line(task_id)}", Exit.NOT_FOUND)
        output.facts(asdict(view))
        return
    page = asyncio.run(commands.tasks(loaded, limit=limit, after=after))
    output.listing(
        page.tasks,
        ("prediction", "status", "chat", "created", "error"),
        _task_row,
        json_of=asdict,
        empty="no tasks",
    )
    if page.next:
        output.info(f"more: --after {page.next}")


def _task_row(task: "TaskView") -> tuple[str, ...]:
    created, error = task.created_at or "", task.error or ""
    return tuple(map(sanitize.line, (task.id, task.status, str(task.chat_id), created, error)))


@command.command("doctor")
@options.data_dir
@options.as_json
def doctor() -> int:
    """Check the bot: its settings, its token, its webhook, its bucket.

    \b
    Examples:
      jobwire bot doctor
    """
    from jobwire.cli.doctor import all_findings, show_findings
    from jobwire.systems.predictions import commands

    return show_findings(asyncio.run(all_findings(commands.examine(options.running_settings()))))


@command.command("demo")
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="Port; 0: any free port.")
@click.option("--once", is_flag=True, help="Process one photo, print the outcome, exit.")
@click.option(
    "--photo", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="With --once."
)
@click.option(
    "--cog-python",
    type=click.Path(path_type=Path, exists=True),
    help="A Python that has cog; default: one is made in the cache.",
)
@options.data_dir
@options.as_json
def demo(port: int, once: bool, photo: Path | None, cog_python: Path | None) -> int:
    """Try the bot without any account: a real cog model here, and a chat page in your browser.

    \b
    Examples:
      jobwire bot demo
      jobwire bot demo --once --json
    """
    from jobwire import log
    from jobwire.systems.predictions.demo.run import DemoOptions, send_once
    from jobwire.systems.predictions.demo.run import serve as serve_demo

    loaded = options.settings()
    log.setup("bot", loaded.settings.logging)
    chosen = DemoOptions(
        data_dir=(loaded.settings.data_dir / "demo").absolute(),
        port=port,
        cog_python=cog_python.absolute() if cog_python else None,
        notify=output.info,
    )
    if not once:
        asyncio.run(serve_demo(chosen, lambda url: click.echo(f"open {url}   (stop: Ctrl-C)")))
        return Exit.OK
    outcome = asyncio.run(send_once(chosen, photo.read_bytes() if photo else None))
    output.facts(outcome)
    return Exit.OK if outcome["status"] == "succeeded" else Exit.JOB_FAILED
