"""`jobwire images`: photos made fit to publish."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from jobwire.cli import options, output
from jobwire.cli.exits import CliExit, Exit

if TYPE_CHECKING:
    from jobwire.wiring.photo import PhotoOptions


@click.group()
def command() -> None:
    """Photos made fit to publish: upright, without metadata, faces hidden.

    \b
    Examples:
      jobwire images process holiday.jpg holiday.webp
      jobwire images process *.jpg published/ --show
    """


@command.command("process")
@click.argument("sources", metavar="IN…", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.argument("target", metavar="OUT", type=click.Path())
@click.option(
    "--show", is_flag=True, help="Also write NAME.show.webp: what was found, before and after."
)
@click.option(
    "--detect",
    multiple=True,
    default=["faces"],
    metavar="NAME",
    show_default=True,
    help="What to hide; `none` hides nothing.",
)
@click.option(
    "--fill",
    type=click.Choice(["surroundings", "grey"]),
    default="surroundings",
    show_default=True,
    help="What a hidden area is filled with.",
)
@click.option("--size", default=1920, show_default=True, help="Pixels of the longer side, at most.")
@click.option("--quality", default=80, show_default=True, help="Of the WebP file, 1 to 100.")
@click.option("--max-mb", default=64, show_default=True, help="Refuse larger files.")
@click.option("--max-megapixels", default=50.0, show_default=True, help="Refuse larger photos.")
@click.option("--workers", default=0, help="Worker processes.  [default: one per core]")
@options.as_json
@options.quiet
@options.no_progress
def process(
    sources: tuple[Path, ...],
    target: str,
    show: bool,
    workers: int,
    as_json: bool,
    **given: object,
) -> int:
    """Hide faces, remove metadata, turn upright and write WebP. No server is needed.

    OUT is a file, or a folder for several photos. A photo that fails is reported and the others
    are processed; then the exit status is 1.

    \b
    Examples:
      jobwire images process holiday.jpg holiday.webp
      jobwire images process *.jpg published/ --show
    """
    from jobwire.cli.images_batch import PhotoBatch, plan
    from jobwire.wiring.photo import SetupError

    plans, chosen = plan(sources, target, show=show), _photo_options(given)
    try:
        failed = asyncio.run(PhotoBatch(plans, chosen, workers, as_json=as_json).run())
    except SetupError as error:
        raise CliExit(error.message, Exit.USAGE) from error
    return Exit.JOB_FAILED if failed else Exit.OK


def _photo_options(given: dict[str, object]) -> "PhotoOptions":
    from jobwire.wiring.photo import PhotoOptions

    detect = cast("tuple[str, ...]", given["detect"])
    if "none" in detect:
        if len(detect) > 1:
            raise CliExit("--detect none cannot be combined with a detector", Exit.USAGE)
        output.info("jobwire: warning: nothing is detected, so faces stay visible (--detect none)")
        detect = ()
    return PhotoOptions(
        detect=detect,
        fill="grey" if given["fill"] == "grey" else "surroundings",
        long_side=cast(int, given["size"]),
        quality=cast(int, given["quality"]),
        max_bytes=cast(int, given["max_mb"]) << 20,
        max_megapixels=cast(float, given["max_megapixels"]),
    )
