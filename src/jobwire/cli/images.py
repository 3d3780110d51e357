"""`jobwire images`: photos made fit to publish."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from jobwire.cli import options, output, sanitize
from jobwire.cli.exits import CliExit, Exit, start_failure
from jobwire.cli.program import each, with_client

if TYPE_CHECKING:
    from jobwire.client import Image
    from jobwire.settings import Settings


@click.group()
def command() -> None:
    """Photos made fit to publish: upright, without metadata, faces hidden.

    \b
    Examples:
      jobwire images put photo.jpg --follow
      jobwire images process holiday.jpg holiday.webp     (without a server)
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
    "--sensitivity",
    type=click.Choice(["balanced", "strict"]),
    default="balanced",
    show_default=True,
    help="How hard to look for faces; strict finds more, for several times the CPU.",
)
@click.option(
    "--fill",
    type=click.Choice(["surroundings", "grey"]),
    default="surroundings",
    show_default=True,
    help="What a hidden area is filled with.",
)
@click.option("--size", default=1920, show_default=True, help="Pixels of the longer side, at most.")
@click.option(
    "--quality", default=80, show_default=True, help="Quality of the WebP file, 1 to 100."
)
@click.option("--max-mb", default=64, show_default=True, help="Refuse larger files.")
@click.option("--max-megapixels", default=64.0, show_default=True, help="Refuse larger photos.")
@click.option("--workers", default=0, help="Worker processes.  [default: one per core]")
@options.as_json
@options.quiet
@options.no_progress
def process(
    sources: tuple[Path, ...],
    target: str,
    show: bool,
    detect: tuple[str, ...],
    sensitivity: Literal["balanced", "strict"],
    fill: Literal["surroundings", "grey"],
    size: int,
    quality: int,
    max_mb: int,
    max_megapixels: float,
    workers: int,
) -> int:
    """Hide faces, remove metadata, turn upright and write WebP. No server is needed.

    OUT is a file, or a folder for several photos. A photo that fails is reported and the others
    are processed; then the exit code is 1.

    \b
    Examples:
      jobwire images process holiday.jpg holiday.webp
      jobwire images process *.jpg published/ --show
    """
    from jobwire.cli.images_batch import PhotoBatch, plan
    from jobwire.programs.photo import PhotoOptions, SetupError

    plans = plan(sources, target, show=show)
    if "none" in detect:
        if len(detect) > 1:
            raise CliExit("--detect none cannot be combined with a detector", Exit.USAGE)
        output.info("jobwire: warning: nothing is detected, so faces stay visible (--detect none)")
        detect = ()
    chosen = PhotoOptions(
        detect=detect,
        sensitivity=sensitivity,
        fill=fill,
        long_side=size,
        quality=quality,
        max_bytes=max_mb << 20,
        max_megapixels=max_megapixels,
    )
    try:
        failed = asyncio.run(PhotoBatch(plans, chosen, workers).run())
    except SetupError as error:
        raise CliExit(error.message, Exit.USAGE) from error
    return Exit.JOB_FAILED if failed else Exit.OK


@command.command("put")
@click.argument("files", metavar="FILE…", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--follow", is_flag=True, help="Wait for the published photo and print its URL.")
@options.no_progress
@options.common
def put(files: tuple[Path, ...], follow: bool) -> int:
    """Upload photos; they are published without faces and metadata.

    \b
    Examples:
      jobwire images put photo.jpg --follow
      jobwire images put *.jpg --json | jq -r .image_id
    """
    from jobwire.cli.images_put import ImageUploads

    return with_client(ImageUploads(files, follow=follow).run)


@command.command("get")
@click.argument("image_id")
@options.as_json
@options.data_dir
def get(image_id: str) -> int:
    """Show an image: its state, and the URL of the published photo.

    \b
    Examples:
      jobwire images get 0b7c1d52-7d0e-4c55-9a0f-2f6d1c1f7a10
    """
    image = with_client(lambda client: client.images.get(image_id))
    output.facts(_image_facts(image))
    return Exit.JOB_FAILED if image.status == "failed" else Exit.OK


@command.command("list")
@options.page("images")
@options.common
def list_(limit: int, cursor: str | None) -> None:
    """List images, newest first.

    \b
    Examples:
      jobwire images list --json | jq -r .url
    """
    page = with_client(lambda client: client.images.list(limit=limit, cursor=cursor))
    output.listing(
        page.images,
        ("state", "id", "file", "size"),
        _image_row,
        json_of=_image_facts,
        empty="no images",
    )
    if page.cursor:
        output.info(f"more: jobwire images list --cursor {sanitize.line(page.cursor)}")


@command.command("delete")
@click.argument("image_ids", metavar="IMAGE_ID…", nargs=-1, required=True)
@options.data_dir
def delete(image_ids: tuple[str, ...]) -> int:
    """Delete images in all their versions; those being processed are canceled.

    \b
    Examples:
      jobwire images delete 0b7c1d52-7d0e-4c55-9a0f-2f6d1c1f7a10
    """
    return with_client(lambda client: each(image_ids, client.images.delete))


@command.command("approve")
@click.argument("image_ids", metavar="IMAGE_ID…", nargs=-1, required=True)
@options.data_dir
def approve(image_ids: tuple[str, ...]) -> int:
    """Publish photos that wait for a reviewer; needs the scope `admin`.

    \b
    Examples:
      jobwire images approve 0b7c1d52-7d0e-4c55-9a0f-2f6d1c1f7a10
    """
    return with_client(lambda client: each(image_ids, client.images.approve))


@command.command("reject")
@click.argument("image_ids", metavar="IMAGE_ID…", nargs=-1, required=True)
@options.data_dir
def reject(image_ids: tuple[str, ...]) -> int:
    """Reject photos that wait for a reviewer: they are deleted; needs the scope `admin`.

    \b
    Examples:
      jobwire images reject 0b7c1d52-7d0e-4c55-9a0f-2f6d1c1f7a10
    """
    return with_client(lambda client: each(image_ids, client.images.reject))


def _image_row(image: "Image") -> tuple[str, ...]:
    size = f"{image.width} × {image.height}" if image.width else ""
    state = "in review" if image.held else image.status
    return state, sanitize.line(image.image_id), sanitize.line(image.filename), size


def _image_facts(image: "Image") -> dict[str, object]:
    import msgspec

    return {
        name: value for name, value in msgspec.to_builtins(image).items() if value not in (None, "")
    }


@command.command("api")
@options.port
@options.host
@options.valkey
@options.ready_fd
def api(ready_fd: int | None) -> None:
    """Run only the API of images; uploads go to `jobwire images gateway`.

    \b
    Examples:
      jobwire images api --valkey valkey://localhost:6379
    """
    _serve("api", ready_fd)


@command.command("gateway")
@options.setting(
    "--port",
    "images.port",
    metavar="PORT",
    help_text="Port to listen on.  [env: JOBWIRE_IMAGES_PORT]",
)
@options.setting(
    "--host", "images.host", metavar="ADDRESS", help_text="Address to listen on; needs no API keys."
)
@options.valkey
@options.ready_fd
def gateway(ready_fd: int | None) -> None:
    """Run only the upload gateway, with its photo workers.

    It shares Valkey, the bucket and the public key of the tokens with the API.

    \b
    Examples:
      jobwire images gateway --host 0.0.0.0
    """
    _serve("gateway", ready_fd)


@command.command("keys")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=".")
def keys(folder: Path) -> None:
    """Make the key pair of upload tokens: private for the API, public for the upload gateway.

    \b
    Examples:
      jobwire images keys /etc/jobwire
    """
    from jobwire.private_files import write_private
    from jobwire.systems.images.key_files import PRIVATE_FILE, PUBLIC_FILE, new_key_pair

    private, public = new_key_pair()
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / PRIVATE_FILE).exists():
        raise CliExit(f"{folder / PRIVATE_FILE} exists; remove it first", Exit.REFUSED)
    write_private(folder / PRIVATE_FILE, private)
    (folder / PUBLIC_FILE).write_bytes(public)
    output.columns(
        [
            ("images.token_private_key", str(folder / PRIVATE_FILE)),
            ("images.token_public_key", str(folder / PUBLIC_FILE)),
        ]
    )


@command.command("bucket")
def bucket() -> None:
    """Make the bucket of images, with versioning on. Does nothing if it is there.

    \b
    Examples:
      MINIO_ENDPOINT=localhost:9000 S3_BUCKET=follow-images jobwire images bucket
    """
    from dataclasses import replace

    from jobwire.objects.creation import create_bucket
    from jobwire.objects.signed import SignedCalls

    settings = options.settings().settings
    _require_endpoint(settings)
    config = settings.objects.config()
    config = replace(config, bucket=settings.images.bucket or config.bucket)
    is_new = asyncio.run(create_bucket(SignedCalls(config)))
    output.info(f"{config.where} {'was created' if is_new else 'exists'}; versioning is on")


def _require_endpoint(settings: "Settings") -> None:
    if not settings.objects.endpoint:
        raise CliExit("objects.endpoint: is required by images", Exit.USAGE)


def _serve(side: str, ready_fd: int | None) -> None:
    """Run one side of images as a gateway of its own."""
    from jobwire.local.program import ReadyPipe

    with ReadyPipe.of(ready_fd, explain=start_failure) as ready:
        from dataclasses import replace

        from jobwire import log
        from jobwire.local.listen import listen, url_of
        from jobwire.systems.images.system import API, UPLOADS, missing_libraries

        settings = options.settings().settings
        log.setup(f"images {side}", settings.logging)
        if missing := missing_libraries():
            raise CliExit(
                f"{', '.join(missing)} is not installed; run: pip install 'jobwire[images]'",
                Exit.USAGE,
            )
        _require_endpoint(settings)
        if side == "gateway":
            address = replace(
                settings.gateway, host=settings.images.host, port=settings.images.port, keys=()
            )
            settings = replace(settings, gateway=address)
        listening = listen(settings.gateway.host, settings.gateway.port)

        import uvloop

        from jobwire.programs.gateway import serve_gateway
        from jobwire.programs.photo import SetupError

        def on_ready() -> None:
            ready.ready()
            output.info(f"images {side} on {url_of(listening)}")
            if side == "gateway" and not settings.images.detectors:
                output.info("nothing is detected: faces stay visible (images.detect is none)")

        systems = [UPLOADS if side == "gateway" else API]
        try:
            uvloop.run(serve_gateway(settings, systems, listening, on_ready=on_ready))
        except SetupError as error:
            raise CliExit(f"images: {error.message}", Exit.USAGE) from error
