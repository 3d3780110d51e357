"""Webhooks of the provider and of Telegram as self-authenticated routes (P-14, P-30).

They are reached through any host name and without an API key; the provider's signature or token,
or Telegram's secret, admits a request before its body is looked at.
"""

from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qsl

from jobwire.api.problems import NOT_FOUND, TOO_LARGE, ProblemKind
from jobwire.gateway.access import SelfAuthenticated
from jobwire.gateway.auth import Principal
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.routes import Doc, HotRoute
from jobwire.wires.predictions import webhook
from jobwire.wires.predictions.flow import Flow
from jobwire.wires.predictions.providers import WebhookCall
from jobwire.wires.predictions.telegram.bot import (
    MAX_UPDATE_BYTES,
    SECRET_HEADER,
    TelegramBot,
    is_telegram,
    take_body,
)

BAD_SIGNATURE: Final = ProblemKind(
    "bad_signature", 401, "this webhook does not carry its sender's signature or secret"
)
_TEXT: Final = b"text/plain; charset=utf-8"
# Read before the signature can be checked; Replicate sends URLs, no pictures.
_MAX_SIGNED: Final = 4 * 1024 * 1024
_ANSWERS: Final = {
    403: "the prediction belongs to another task",
    404: "no such task yet: send it again",
    503: "not recorded: send it again",
}


def hook_routes(flow: Flow, bot: TelegramBot | None, telegram_secret: str) -> Sequence[HotRoute]:
    """The webhook routes of one bot."""
    routes = [_provider_route(flow, "replicate"), _provider_route(flow, "cog")]
    if bot is not None:
        routes.append(_telegram_route(bot, telegram_secret))
    return routes


def _provider_route(flow: Flow, provider: str) -> HotRoute:
    async def verify(request: HttpRequest) -> Principal:
        # cog's proof is in the URL, so nothing is read from a sender without it.
        body = b"" if provider == "cog" else await request.buffered_body()
        call = WebhookCall(_tid(request), _headers(request), _query(request), body)
        refused = webhook.refusal(flow, provider, call)
        if refused is None:
            return Principal(flow.parts.tenant, frozenset(), provider)
        if refused.status == 404:
            raise Problem(NOT_FOUND, refused.text)
        raise Problem(TOO_LARGE if refused.status == 413 else BAD_SIGNATURE, refused.text)

    async def take(request: HttpRequest) -> Reply:
        answer = await webhook.take(flow, _tid(request), await request.body(None))
        return Reply(answer.text.encode(), answer.status, media_type=_TEXT)

    security = (
        {"type": "apiKey", "in": "header", "name": "webhook-signature"}
        if provider == "replicate"
        else {"type": "apiKey", "in": "query", "name": "token"}
    )
    return HotRoute(
        "POST",
        f"/hooks/{provider}/{{tid}}",
        SelfAuthenticated(verify, f"{provider}Webhook", security, (BAD_SIGNATURE, NOT_FOUND)),
        take,
        Doc(
            summary=f"A webhook of {provider}: the outcome of a prediction",
            tag="predictions",
            body=dict,
            body_example={"id": "abc123", "status": "succeeded", "output": ["https://…"]},
            media_type="text/plain",
            also=_ANSWERS,
        ),
        max_body=webhook.MAX_BODY_BYTES if provider == "cog" else _MAX_SIGNED,
    )


def _telegram_route(bot: TelegramBot, secret: str) -> HotRoute:
    async def verify(request: HttpRequest) -> Principal:
        if not is_telegram(bot, secret, _headers(request)):
            raise Problem(BAD_SIGNATURE, "the secret does not match")
        return Principal(bot.flow.parts.tenant, frozenset(), "telegram")

    async def take(request: HttpRequest) -> Reply:
        answer = await take_body(bot, await request.body(None))
        return Reply(answer.text.encode(), answer.status, media_type=_TEXT)

    security = {"type": "apiKey", "in": "header", "name": SECRET_HEADER}
    return HotRoute(
        "POST",
        "/hooks/telegram",
        SelfAuthenticated(verify, "telegramSecret", security, (BAD_SIGNATURE,)),
        take,
        Doc(
            summary="An update of Telegram: a photo, a command, anything else",
            tag="predictions",
            body=dict,
            body_example={"update_id": 1, "message": {}},
            media_type="text/plain",
            also={503: _ANSWERS[503]},
        ),
        max_body=MAX_UPDATE_BYTES,
    )


def _tid(request: HttpRequest) -> str:
    return request.path.rpartition("/")[2]


def _headers(request: HttpRequest) -> dict[str, str]:
    return {
        name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.items()
    }


def _query(request: HttpRequest) -> dict[str, str]:
    return dict(parse_qsl(request.scope["query_string"].decode("latin-1"), max_num_fields=64))
