"""Photos uploaded a few at a time, with a live bar of stages for each: `jobwire images put`."""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from jobwire.cli import output, sanitize
from jobwire.cli.exits import CliExit, Exit
from jobwire.cli.program import cli_exit
from jobwire.client import AsyncClient, ClientError, Image, ImageFailed

_AT_A_TIME: Final = 4


class ImageUploads:
    """Uploads files and prints a line for each: its id, or with `follow` the published URL."""

    def __init__(self, files: Sequence[Path], *, follow: bool) -> None:
        self._files = files
        self._follow = follow
        self._code = Exit.OK
        self._bar = _bar()

    async def run(self, client: AsyncClient) -> Exit:
        """Upload all; a photo that fails is reported, and the exit code is that of the first."""
        for file in self._files:
            if not file.is_file():
                raise CliExit(f"{sanitize.line(str(file))} is not a file", Exit.USAGE)
        left = iter(self._files)
        with self._bar as bar:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(_AT_A_TIME, len(self._files))):
                    group.create_task(self._work(left, bar, client))
        return self._code

    async def _work(self, left: Iterator[Path], bar: Progress, client: AsyncClient) -> None:
        for file in left:
            name = sanitize.line(file.name)
            task = bar.add_task(name, total=100, stage="sending")
            try:
                await self._upload(file, client, bar, task)
            except ImageFailed as failed:
                self._refused(name, f"{sanitize.line(failed.message)} ({failed.code})")
                self._code = self._code or Exit.JOB_FAILED
            except (ClientError, OSError) as error:
                refusal = _exit_of(error)
                self._refused(name, refusal.line)
                self._code = self._code or refusal.code
            bar.remove_task(task)

    async def _upload(self, file: Path, client: AsyncClient, bar: Progress, task: TaskID) -> None:
        image_id = await client.images.put(file)
        if not self._follow:
            self._report({"file": str(file), "image_id": image_id}, f"{image_id}  {file.name}")
            return
        async for state in client.images.events(image_id):
            bar.update(task, completed=max(0, state.progress), stage=sanitize.line(state.stage))
        # The record follows the last event within moments.
        image = await client.images.wait(image_id, timeout_s=60.0)
        self._report(_facts(file, image), f"{image.url}  {file.name}{_hidden(image)}")

    def _report(self, facts: dict[str, object], text: str) -> None:
        if output.wants_json():
            output.json_line(facts)
        else:
            self._bar.console.print(sanitize.line(text), soft_wrap=True, markup=False)

    def _refused(self, name: str, text: str) -> None:
        click.echo(f"jobwire: {name}: {text}", err=True)


def _facts(file: Path, image: Image) -> dict[str, object]:
    return {
        "file": str(file),
        "image_id": image.image_id,
        "status": image.status,
        "url": image.url,
        "width": image.width,
        "height": image.height,
        "file_size": image.file_size,
        "sha256": image.sha256,
        "hidden_areas": image.hidden_areas,
        "hidden_part": image.hidden_part,
    }


def _hidden(image: Image) -> str:
    match image.hidden_areas:
        case None:
            return ""
        case 0:
            return "  (nothing was found to hide)"
        case number:
            part = "" if image.hidden_part is None else f", {image.hidden_part:.0%} of the picture"
            return f"  ({number} hidden{part})"


def _exit_of(error: Exception) -> CliExit:
    if isinstance(error, ClientError):
        return cli_exit(error)
    return CliExit(sanitize.line(str(error)), Exit.USAGE)


def _bar() -> Progress:
    """On a terminal only; quiet otherwise."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[stage]}", markup=False),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty() or output.is_static(),
        transient=True,
    )
