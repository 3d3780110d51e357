"""Webhooks of the provider and of Telegram as self-authenticated routes (P-14, P-30).

They are reached through any host name and without an API key; the provider's signature or token,
or Telegram's secret, admits a request before its body is looked at.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final
from urllib.parse import parse_qsl

from jobwire.api import predictions as api
from jobwire.api.operation import Operation
from jobwire.api.problems import NOT_FOUND, TOO_LARGE
from jobwire.gateway.auth import Principal
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.route import Route, serve
from jobwire.systems.predictions import webhook
from jobwire.systems.predictions.flow import Flow
from jobwire.systems.predictions.providers import WebhookCall
from jobwire.systems.predictions.telegram.bot import TelegramBot, is_telegram, take_body

_TEXT: Final = b"text/plain; charset=utf-8"


def hook_routes(flow: Flow, bot: TelegramBot | None, telegram_secret: str) -> Sequence[Route]:
    """The webhook routes of one bot."""
    routes = [
        _provider_route(flow, "replicate", api.REPLICATE_HOOK),
        _replicate_route_without_task(flow),
        _provider_route(flow, "cog", api.COG_HOOK),
    ]
    if bot is not None:
        routes.append(_telegram_route(bot, telegram_secret))
    return routes


def _provider_route(flow: Flow, provider: str, operation: Operation[None]) -> Route:
    async def take(request: HttpRequest, tid: str) -> Reply:
        return _text(await webhook.take(flow, tid, await request.body(None)))

    return serve(operation, take, verify=_verifier(flow, provider))


def _replicate_route_without_task(flow: Flow) -> Route:
    """As the callback function has it: the task in the query, or found by its prediction."""

    async def take(request: HttpRequest) -> Reply:
        tid = _query(request).get("tid", "")
        return _text(await webhook.take(flow, tid, await request.body(None)))

    return serve(api.REPLICATE_HOOK_WITHOUT_TASK, take, verify=_verifier(flow, "replicate"))


def _verifier(flow: Flow, provider: str) -> Callable[[HttpRequest], Awaitable[Principal]]:
    async def verify(request: HttpRequest) -> Principal:
        tid = request.params[0] if request.params else ""
        headers = _headers(request)
        # O-15: nothing is received from a sender without a proof to check.
        refused = webhook.head_refusal(flow, provider, headers)
        if refused is None:
            signed = flow.deps.provider.signature_headers
            body = await request.buffered_body() if signed else b""
            call = WebhookCall(tid, headers, _query(request), body)
            refused = webhook.refusal(flow, provider, call)
        if refused is None:
            return Principal(flow.deps.tenant, frozenset(), f"hook:{provider}")
        if refused.status == 404:
            raise Problem(NOT_FOUND, refused.text)
        raise Problem(TOO_LARGE if refused.status == 413 else api.BAD_SIGNATURE, refused.text)

    return verify


def _telegram_route(bot: TelegramBot, secret: str) -> Route:
    async def verify(request: HttpRequest) -> Principal:
        if not is_telegram(bot, secret, _headers(request)):
            raise Problem(api.BAD_SIGNATURE, "the secret does not match")
        return Principal(bot.flow.deps.tenant, frozenset(), "hook:telegram")

    async def take(request: HttpRequest) -> Reply:
        return _text(await take_body(bot, await request.body(None)))

    return serve(api.TELEGRAM_HOOK, take, verify=verify)


def _text(answer: webhook.Answer) -> Reply:
    return Reply(answer.text.encode(), answer.status, media_type=_TEXT)


def _headers(request: HttpRequest) -> dict[str, str]:
    return {
        name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.items()
    }


def _query(request: HttpRequest) -> dict[str, str]:
    return dict(parse_qsl(request.scope["query_string"].decode("latin-1"), max_num_fields=64))
