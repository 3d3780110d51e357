"""`client.images`: photos uploaded, followed and read; for both clients."""

import asyncio
import builtins
import contextlib
import time
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from jobwire.client import http, image_calls
from jobwire.client.errors import ClientError, Unreachable, from_response
from jobwire.client.image_calls import Image, ImagePage, ImageProgress, content_type_of
from jobwire.client.retry_budget import RetryBudget
from jobwire.client.sse import Parser
from jobwire.job.ids import random_fraction

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

    def __init__(self, client: "AsyncClient", transport: httpx.AsyncClient) -> None:
        self._client = client
        self._http = transport

    async def put(self, photo: Source, *, content_type: str | None = None) -> str:
        """Upload a photo; returns its id once it is accepted."""
        body, kind, name = await asyncio.to_thread(_read, photo, content_type)
        return await self._client.execute(image_calls.put(body, kind, name, self._budget()))

    async def publish(
        self, photo: Source, *, content_type: str | None = None, timeout_s: float | None = None
    ) -> Image:
        """Upload a photo and wait until it is ready; raises ImageFailed or TimedOut."""
        image_id = await self.put(photo, content_type=content_type)
        return await self.wait(image_id, timeout_s)

    async def get(self, image_id: str) -> Image:
        """Return the image as it is now."""
        return await self._client.execute(image_calls.get(image_id, self._budget()))

    async def wait(self, image_id: str, timeout_s: float | None = None) -> Image:
        """Wait until the image is ready; raises ImageFailed or TimedOut."""
        return await self._client.execute(image_calls.wait(image_id, self._budget(), timeout_s))

    async def list(self, *, limit: int | None = None, cursor: str | None = None) -> ImagePage:
        """Return a page of images, newest first; its `cursor` is for the next page."""
        return await self._client.execute(image_calls.list_images(limit, cursor, self._budget()))

    async def delete(self, image_id: str) -> None:
        """Delete the image in all its versions; one that is in work is canceled."""
        await self._client.execute(image_calls.delete(image_id, self._budget()))

    async def events(self, image_id: str) -> AsyncGenerator[ImageProgress]:
        """Yield the states of an image until it is ready or has failed, over any number of lost
        connections; a state that was seen is not repeated."""
        follow = _Following(image_id, self._budget(), self._client.url)
        while not follow.ended:
            try:
                async with contextlib.aclosing(self._connection(follow)) as states:
                    async for state in states:
                        yield state
                failure: ClientError = follow.closed()
            except ClientError as error:
                failure = error
            if not follow.ended:
                await asyncio.sleep(follow.pause_s(failure))

    async def _connection(self, follow: "_Following") -> AsyncGenerator[ImageProgress]:
        try:
            async with self._http.stream(
                "GET", follow.path, headers=follow.headers, timeout=http.STREAM_TIMEOUT
            ) as response:
                if response.status_code != 200:
                    follow.refused(response, await response.aread())
                    return
                parser = Parser()
                async for chunk in response.aiter_bytes():
                    for state in follow.new_states(parser, chunk):
                        yield state
        except httpx.HTTPError as error:
            raise http.as_unreachable(error, self._client.url) from None

    def _budget(self) -> RetryBudget:
        return RetryBudget(self._client.patience_s)


class Images:
    """`with Client() as client: image = client.images.publish("a.jpg")`."""

    def __init__(self, client: "Client", transport: httpx.Client) -> None:
        self._client = client
        self._http = transport

    def put(self, photo: Source, *, content_type: str | None = None) -> str:
        """Upload a photo; returns its id once it is accepted."""
        body, kind, name = _read(photo, content_type)
        return self._client.execute(image_calls.put(body, kind, name, self._budget()))

    def publish(
        self, photo: Source, *, content_type: str | None = None, timeout_s: float | None = None
    ) -> Image:
        """Upload a photo and wait until it is ready; raises ImageFailed or TimedOut."""
        return self.wait(self.put(photo, content_type=content_type), timeout_s)

    def get(self, image_id: str) -> Image:
        """Return the image as it is now."""
        return self._client.execute(image_calls.get(image_id, self._budget()))

    def wait(self, image_id: str, timeout_s: float | None = None) -> Image:
        """Wait until the image is ready; raises ImageFailed or TimedOut."""
        return self._client.execute(image_calls.wait(image_id, self._budget(), timeout_s))

    def list(self, *, limit: int | None = None, cursor: str | None = None) -> ImagePage:
        """Return a page of images, newest first; its `cursor` is for the next page."""
        return self._client.execute(image_calls.list_images(limit, cursor, self._budget()))

    def delete(self, image_id: str) -> None:
        """Delete the image in all its versions; one that is in work is canceled."""
        self._client.execute(image_calls.delete(image_id, self._budget()))

    def events(self, image_id: str) -> Generator[ImageProgress]:
        """Yield the states of an image until it is ready or has failed, over any number of lost
        connections; a state that was seen is not repeated."""
        follow = _Following(image_id, self._budget(), self._client.url)
        while not follow.ended:
            try:
                with contextlib.closing(self._connection(follow)) as states:
                    yield from states
                failure: ClientError = follow.closed()
            except ClientError as error:
                failure = error
            if not follow.ended:
                time.sleep(follow.pause_s(failure))

    def _connection(self, follow: "_Following") -> Generator[ImageProgress]:
        try:
            with self._http.stream(
                "GET", follow.path, headers=follow.headers, timeout=http.STREAM_TIMEOUT
            ) as response:
                if response.status_code != 200:
                    follow.refused(response, response.read())
                    return
                parser = Parser()
                for chunk in response.iter_bytes():
                    yield from follow.new_states(parser, chunk)
        except httpx.HTTPError as error:
            raise http.as_unreachable(error, self._client.url) from None

    def _budget(self) -> RetryBudget:
        return RetryBudget(self._client.patience_s)


class _Following:
    """The states of one image over any number of connections. Pure but for the clock."""

    def __init__(self, image_id: str, budget: RetryBudget, url: str) -> None:
        self.path = f"{image_calls.image_path(image_id)}/events"
        self._budget = budget
        self._url = url
        self._last: ImageProgress | None = None
        self.ended = False

    @property
    def headers(self) -> dict[str, str]:
        return http.stream_headers(self._last.updated_at if self._last else None)

    def refused(self, response: httpx.Response, body: bytes) -> None:
        """The gateway answered something else than a stream."""
        if response.status_code == 204:
            self.ended = True
            return
        raise from_response(response.status_code, body, http.retry_after_s(response))

    def new_states(self, parser: Parser, chunk: bytes) -> builtins.list[ImageProgress]:
        """The states that are new."""
        self._budget.responded()
        new: builtins.list[ImageProgress] = []
        for state in image_calls.progress_of(parser.feed(chunk)):
            if state != self._last and not self.ended:
                self._last, self.ended = state, state.is_last
                new.append(state)
        return new

    def closed(self) -> Unreachable:
        """The gateway closed the stream before the end of the image."""
        return Unreachable(f"{self._url} ended the stream of events")

    def pause_s(self, failure: ClientError) -> float:
        """Seconds until the next try; raises the failure when the budget is used up."""
        pause_s = self._budget.pause_s(failure, time.monotonic(), random_fraction())
        if pause_s is None:
            raise failure
        return pause_s
