"""The chat page of the demo and its routes; an ordinary feature of the gateway.

The page of the product is at `/page/`, for a look at the tasks behind the chat; each links the
other.
"""

import asyncio
import re
import time
from importlib.resources import files
from typing import Final

import msgspec

from jobwire.api.problems import INVALID, NOT_FOUND
from jobwire.gateway import static_files
from jobwire.gateway.feature import Feature
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.routes import Doc, HotRoute
from jobwire.log import component
from jobwire.objects import ObjectsError
from jobwire.wires.predictions.flow import Flow
from jobwire.wires.predictions.images import sniff
from jobwire.wires.predictions.intent import Photo
from jobwire.wiring.page import page_routes
from jobwire.wiring.predictions.demo.chat import CHAT_ID, DemoChat

_WAIT_S: Final = 20.0
_CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'"
)
_encode = msgspec.json.Encoder().encode
_log = component("predictions")


def chat_feature(chat: DemoChat, flow: Flow, tasks: asyncio.TaskGroup) -> Feature:
    """The page, its script and its calls."""

    async def messages(request: HttpRequest) -> Reply:
        seen = _number(request.query("seen") or "0")
        if seen is None:
            raise Problem(INVALID, "seen must be a number")
        await chat.wait_for_change(seen, _WAIT_S)
        shown = [
            {
                "id": each.id,
                "author": each.author,
                "text": each.text,
                "picture": f"/demo/pictures/{each.id}?r={each.revision}" if each.picture else None,
            }
            for each in chat.messages.values()
        ]
        return Reply(_encode({"revision": chat.revision, "messages": shown}))

    async def picture(request: HttpRequest) -> Reply:
        number = _number(request.params[0])
        message = None if number is None else chat.messages.get(number)
        if message is None or message.picture is None:
            raise Problem(NOT_FOUND, "there is no such picture")
        return Reply(message.picture, media_type=message.mime.encode())

    async def photo(request: HttpRequest) -> Reply:
        body = await request.body(None)
        caption = (request.query("caption") or "")[:1000]
        tid = await send_photo(chat, flow, tasks, body, caption)
        return Reply(_encode({"task": tid}), 202)

    def doc(summary: str, media_type: str = "application/json") -> Doc:
        return Doc(summary=summary, tag="demo", answer=dict, media_type=media_type)

    return Feature(
        name="demo",
        hot=[
            *page_routes("/page"),
            *static_files.routes(
                "/", files("jobwire.wiring.predictions.demo") / "static", csp=_CSP
            ),
            HotRoute("GET", "/demo/messages", "read", messages, doc("The chat")),
            HotRoute(
                "GET", "/demo/pictures/{id}", "read", picture, doc("One picture", "image/png")
            ),
            HotRoute(
                "POST", "/demo/photos", "submit", photo, doc("Send a photo"), max_body=11 << 20
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
    return flow.parts.ids.of_message(flow.parts.bot, CHAT_ID, message.id)


async def _submit(flow: Flow, photo: Photo) -> None:
    try:
        await flow.submit(photo)
    except ObjectsError as error:
        _log.error("photo left to reconcile: %s", error)


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None
