"""The chat page of the demo and its routes; an ordinary feature of the gateway.

The page of the product is at `/page/`, for a look at the tasks behind the chat; each links the
other.
"""

import asyncio
import re
import time
from importlib.resources import files
from typing import Annotated, Final

from msgspec import Meta, Struct

from jobwire.api.operation import Operation
from jobwire.api.problems import NOT_FOUND
from jobwire.gateway import static_files
from jobwire.gateway.feature import Feature
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.route import serve
from jobwire.log import component
from jobwire.objects import ObjectsError
from jobwire.page.files import page_routes
from jobwire.systems.predictions.demo.chat import CHAT_ID, DemoChat
from jobwire.systems.predictions.flow import Flow
from jobwire.systems.predictions.images import sniff
from jobwire.systems.predictions.intent import Photo

_WAIT_S: Final = 20.0
_CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'"
)
_log = component("predictions")


class ShownMessage(Struct, frozen=True):
    """One line of the chat; `picture` is the path of its picture."""

    id: int
    author: str
    text: str
    picture: str | None


class ShownChat(Struct, frozen=True):
    """The chat, and its revision: the `seen` of the next request."""

    revision: int
    messages: list[ShownMessage]


class SentPhoto(Struct, frozen=True):
    """The id of the task that was made for a photo."""

    task: str


class _Seen(Struct, frozen=True):
    seen: Annotated[
        int, Meta(ge=0, le=999_999_999, description="answer when there is something newer")
    ] = 0


class _Caption(Struct, frozen=True):
    caption: str = ""


_MESSAGES: Final = Operation(
    "GET", "/demo/messages", "read", "The chat", tag="demo", query=_Seen, answer=ShownChat
)
_PICTURE: Final = Operation[None](
    "GET",
    "/demo/pictures/{id}",
    "read",
    "One picture",
    tag="demo",
    media_type="image/*",
    problems=(NOT_FOUND,),
)
_PHOTO: Final = Operation(
    "POST",
    "/demo/photos",
    "submit",
    "Send a photo",
    tag="demo",
    query=_Caption,
    binary=("image/*",),
    max_body=11 << 20,
    answer=SentPhoto,
    status=202,
)


def chat_feature(chat: DemoChat, flow: Flow, tasks: asyncio.TaskGroup) -> Feature:
    """The page, its script and its calls."""

    async def messages(_request: HttpRequest, query: _Seen) -> ShownChat:
        await chat.wait_for_change(query.seen, _WAIT_S)
        shown = [
            ShownMessage(
                each.id,
                each.author,
                each.text,
                f"{_PICTURE.url(str(each.id))}?r={each.revision}" if each.picture else None,
            )
            for each in chat.messages.values()
        ]
        return ShownChat(chat.revision, shown)

    async def picture(_request: HttpRequest, id_: str) -> Reply:
        message = chat.messages.get(int(id_)) if re.fullmatch(r"[0-9]{1,9}", id_) else None
        if message is None or message.picture is None:
            raise Problem(NOT_FOUND, "there is no such picture")
        return Reply(message.picture, media_type=message.mime.encode())

    async def photo(request: HttpRequest, query: _Caption) -> SentPhoto:
        body = await request.body(None)
        return SentPhoto(await send_photo(chat, flow, tasks, body, query.caption[:1000]))

    return Feature(
        name="demo",
        routes=[
            serve(_MESSAGES, messages),
            serve(_PICTURE, picture),
            serve(_PHOTO, photo),
            *page_routes("/page"),
            *static_files.routes(
                "/", files("jobwire.systems.predictions.demo") / "static", csp=_CSP
            ),
        ],
    )


async def send_photo(
    chat: DemoChat, flow: Flow, tasks: asyncio.TaskGroup, body: bytes, caption: str
) -> str:
    """Put the user's photo into the chat and submit it, as an update would; its task id."""
    message = await chat.add("user", caption, body, sniff(body) or "application/octet-stream")
    given = Photo(
        chat_id=CHAT_ID,
        user_id=CHAT_ID,
        message_id=message.id,
        file_id=str(message.id),
        date_s=int(time.time()),
        size=len(body),
        caption=caption,
    )
    tasks.create_task(_submit(flow, given))
    return flow.deps.ids.of_message(flow.deps.bot, CHAT_ID, message.id)


async def _submit(flow: Flow, photo: Photo) -> None:
    try:
        await flow.submit(photo)
    except ObjectsError as error:
        _log.error("photo left to reconcile error=%(error)s", {"error": error})
