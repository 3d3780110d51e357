"""Where images are kept, by the settings: the keys on the server, and the spool."""

from pathlib import Path
from typing import TYPE_CHECKING

from jobwire.settings import Settings
from jobwire.systems.images.contract import ImageKeys
from jobwire.systems.images.status import ImageStatus

if TYPE_CHECKING:
    from jobwire.valkey import Connection


def image_status(settings: Settings, connection: "Connection") -> ImageStatus:
    """The keys of images, by the sections `images` and `streams` of the settings."""
    streams = settings.streams
    keys = ImageKeys(
        settings.images.key_prefix, streams.result_stream, streams.upload_guard_key_prefix
    )
    return ImageStatus(
        connection,
        keys,
        group=streams.consumer_group,
        guard_ttl_s=streams.upload_guard_ttl.total_seconds(),
    )


def spool_folder(settings: Settings) -> Path:
    """The folder of accepted uploads."""
    return Path(settings.images.spool_dir or settings.data_dir / "images" / "spool")
