# Written from aio_images.py by tools/sync_client.py; change that file instead.
"""`client.images`: photos uploaded, followed and read."""

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from jobwire.api import images
from jobwire.client import image_calls, image_files
from jobwire.client.event_cursor import ImageEventCursor
from jobwire.client.image_files import PhotoSource
from jobwire.client.messages import Image, ImagePage, ImageProgress

if TYPE_CHECKING:
    from jobwire.client.sync import Client


class Images:
    """`with Client() as client: image = client.images.publish("a.jpg")`."""

    def __init__(self, client: "Client") -> None:
        self._client = client

    def put(self, photo: PhotoSource, *, content_type: str | None = None) -> str:
        """Upload a photo; returns its id once it is accepted."""
        body, kind, name = image_files.read(photo, content_type)
        return self._client.execute(image_calls.put, body, kind, name)

    def publish(
        self, photo: PhotoSource, *, content_type: str | None = None, timeout_s: float | None = None
    ) -> Image:
        """Upload a photo and wait until it is ready; raises ImageFailed or TimedOut."""
        image_id = self.put(photo, content_type=content_type)
        return self.wait(image_id, timeout_s)

    def get(self, image_id: str) -> Image:
        """Return the image as it is now."""
        return self._client.call(images.GET, image_id)

    def wait(self, image_id: str, timeout_s: float | None = None) -> Image:
        """Wait until the image is ready; raises ImageFailed or TimedOut."""
        return self._client.execute(image_calls.wait, image_id, timeout_s)

    def list(self, *, limit: int | None = None, cursor: str | None = None) -> ImagePage:
        """Return a page of images, newest first; its `cursor` is for the next page."""
        return self._client.call(images.LIST, limit=limit, cursor=cursor)

    def delete(self, image_id: str) -> None:
        """Delete the image in all its versions; one that is being processed is canceled."""
        self._client.call(images.DELETE, image_id)

    def approve(self, image_id: str) -> None:
        """Publish a photo that waits for a reviewer; needs the scope `admin`."""
        self._client.call(images.APPROVE, image_id)

    def reject(self, image_id: str) -> None:
        """Reject a photo that waits for a reviewer; needs the scope `admin`."""
        self._client.call(images.REJECT, image_id)

    def hide(
        self, image_id: str, areas: Sequence[images.AreaToHide], *, show_doubtful: bool = False
    ) -> None:
        """Hide areas of a photo that waits for a reviewer; needs the scope `admin`. Detected areas
        that are not certain are left visible with `show_doubtful`."""
        body = {"areas": list(areas), "show_doubtful": show_doubtful}
        self._client.call(images.AREAS, image_id, body=body)

    def events(self, image_id: str) -> Generator[ImageProgress]:
        """Yield the states of an image until it is ready or has failed, over any number of lost
        connections; a state that was seen is not repeated."""
        return self._client.follow(images.EVENTS.url(image_id), ImageEventCursor())
