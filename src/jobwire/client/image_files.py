"""Reads a photo that is to be uploaded, for both clients."""

import asyncio
from pathlib import Path

from jobwire.client.image_calls import content_type_of

PhotoSource = Path | str | bytes
"""A file, or its content."""


def read(photo: PhotoSource, content_type: str | None) -> tuple[bytes, str, str]:
    """Body, type and name of a photo."""
    if isinstance(photo, bytes):
        if content_type is None:
            raise ValueError("content_type is required for a photo that is given as bytes")
        return photo, content_type, ""
    path = Path(photo)
    return path.read_bytes(), content_type or content_type_of(path.name), path.name


async def aread(photo: PhotoSource, content_type: str | None) -> tuple[bytes, str, str]:
    """The same in a thread: the event loop does not wait for the disk."""
    return await asyncio.to_thread(read, photo, content_type)
