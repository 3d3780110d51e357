"""`client.images`: photos uploaded, followed and read; for both clients."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import TYPE_CHECKING

from jobwire.client import image_calls
from jobwire.client.event_cursor import ImageEventCursor
from jobwire.client.image_calls import Image, ImagePage, ImageProgress, content_type_of

if TYPE_CHECKING:
    from jobwire.client.aio import AsyncClient
    from jobwire.client.sync import Client

Source = Path | str | bytes
"""A file, or its content."""


def _read(photo: Source, content_type: str | None) -> tuple[bytes, str, str]:
    """Body, type and name of a photo."""
    if isinstance(photo, bytes):
        if content_type is None:
            raise ValueError("content_type is required for a photo that is given as bytes")
        return photo, content_type, ""
    path = Path(photo)
    return path.read_bytes(), content_type or content_type_of(path.name), path.name


class AsyncImages:
    """`async with AsyncClient() as client: image = await client.images.publish("a.jpg")`."""

    def __init__(self, client: "AsyncClient") -> None:
        self._client = client

    async def put(self, photo: Source, *, content_type: str | None = None) -> str:
        """Upload a photo; returns its id once it is accepted."""
        body, kind, name = await asyncio.to_thread(_read, photo, content_type)
        return await self._client.execute(image_calls.put, body, kind, name)

    async def publish(
        self, photo: Source, *, content_type: str | None = None, timeout_s: float | None = None
    ) -> Image:
        """Upload a photo and wait until it is ready; raises ImageFailed or TimedOut."""
        image_id = await self.put(photo, content_type=content_type)
        return await self.wait(image_id, timeout_s)

    async def get(self, image_id: str) -> Image:
        """Return the image as it is now."""
        return await self._client.execute(image_calls.get, image_id)

    async def wait(self, image_id: str, timeout_s: float | None = None) -> Image:
        """Wait until the image is ready; raises ImageFailed or TimedOut."""
        return await self._client.execute(image_calls.wait, image_id, timeout_s)

    async def list(self, *, limit: int | None = None, cursor: str | None = None) -> ImagePage:
        """Return a page of images, newest first; its `cursor` is for the next page."""
        return await self._client.execute(image_calls.list_images, limit, cursor)

    async def delete(self, image_id: str) -> None:
        """Delete the image in all its versions; one that is in work is canceled."""
        await self._client.execute(image_calls.delete_image, image_id)

    def events(self, image_id: str) -> AsyncGenerator[ImageProgress]:
        """Yield the states of an image until it is ready or has failed, over any number of lost
        connections; a state that was seen is not repeated."""
        path = f"{image_calls.image_path(image_id)}/events"
        return self._client.follow(path, ImageEventCursor())


class Images:
    """`with Client() as client: image = client.images.publish("a.jpg")`."""

    def __init__(self, client: "Client") -> None:
        self._client = client

    def put(self, photo: Source, *, content_type: str | None = None) -> str:
        """Upload a photo; returns its id once it is accepted."""
        body, kind, name = _read(photo, content_type)
        return self._client.execute(image_calls.put, body, kind, name)

    def publish(
        self, photo: Source, *, content_type: str | None = None, timeout_s: float | None = None
    ) -> Image:
        """Upload a photo and wait until it is ready; raises ImageFailed or TimedOut."""
        return self.wait(self.put(photo, content_type=content_type), timeout_s)

    def get(self, image_id: str) -> Image:
        """Return the image as it is now."""
        return self._client.execute(image_calls.get, image_id)

    def wait(self, image_id: str, timeout_s: float | None = None) -> Image:
        """Wait until the image is ready; raises ImageFailed or TimedOut."""
        return self._client.execute(image_calls.wait, image_id, timeout_s)

    def list(self, *, limit: int | None = None, cursor: str | None = None) -> ImagePage:
        """Return a page of images, newest first; its `cursor` is for the next page."""
        return self._client.execute(image_calls.list_images, limit, cursor)

    def delete(self, image_id: str) -> None:
        """Delete the image in all its versions; one that is in work is canceled."""
        self._client.execute(image_calls.delete_image, image_id)

    def events(self, image_id: str) -> Generator[ImageProgress]:
        """Yield the states of an image until it is ready or has failed, over any number of lost
        connections; a state that was seen is not repeated."""
        path = f"{image_calls.image_path(image_id)}/events"
        return self._client.follow(path, ImageEventCursor())
