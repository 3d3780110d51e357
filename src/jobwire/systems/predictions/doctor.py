"""Checks of the photo bot for `jobwire doctor` and `jobwire bot doctor`. They change nothing."""

import ipaddress
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

from jobwire.doctor import Finding
from jobwire.net import is_loopback_url, is_public
from jobwire.settings import Loaded
from jobwire.systems.backends import known_buckets
from jobwire.systems.predictions.bot import missing
from jobwire.systems.predictions.json_values import mapping, text
from jobwire.systems.predictions.settings import PredictionsSettings
from jobwire.systems.predictions.signature import secret_bytes
from jobwire.systems.predictions.system import SYSTEM
from jobwire.systems.predictions.telegram.api import ApiRefusal, ApiResult, BotApi


async def examine(loaded: Loaded) -> AsyncIterator[Finding]:
    """Settings, token, webhook."""
    settings = loaded.settings.predictions
    if not settings.telegram_token and not settings.webhook_secret:
        found = "not configured; without an account there is: jobwire bot demo"
        yield Finding("bot", "ok", found)
        return
    faults = missing(settings)
    for fault in faults:
        name, _, problem = fault.partition(": ")
        yield Finding("bot settings", "fault", f"{name} {problem}", fix=f"set {name}")
    if settings.provider == "replicate" and settings.webhook_secret:
        try:
            secret_bytes(settings.webhook_secret)
        except ValueError as error:
            why = "every webhook would be refused"
            yield Finding("bot settings", "fault", str(error), why, "copy it from the provider")
    for finding in _reach(loaded):
        yield finding
    if settings.telegram_token:
        async for finding in _telegram(settings):
            yield finding


def _reach(loaded: Loaded) -> Iterator[Finding]:
    """What Replicate, on the internet, cannot reach: photos by signed URLs, and webhooks."""
    settings = loaded.settings.predictions
    if settings.provider != "replicate" or is_loopback_url(settings.replicate_url):
        return
    for known in known_buckets(loaded, [SYSTEM]):
        url = known.config.public_endpoint or known.config.endpoint
        if (fault := _unreachable(url)) is not None:
            found = f"Replicate cannot fetch photos from {url}: {fault}"
            why = "every prediction would fail"
            fix = "set objects.public_endpoint to the bucket's https address"
            yield Finding("bot reach", "fault", found, why, fix)
    for name in ("callback_url", "public_url"):
        url = getattr(settings, name)
        if url and (fault := _unreachable(url)) is not None:
            found = f"Replicate cannot send webhooks to predictions.{name}: {fault}"
            why = "outcomes would come minutes late, by reconcile"
            yield Finding("bot reach", "fault", found, why, f"set an https address as {name}")


def _unreachable(url: str) -> str | None:
    """Why a server on the internet does not reach an address, as far as the address shows."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme != "https":
        return "it is not https"
    try:
        private = not is_public(ipaddress.ip_address(host))
    except ValueError:
        private = host == "localhost" or "." not in host
    return "its host is on this machine or in a private network" if private else None


async def _telegram(settings: PredictionsSettings) -> AsyncIterator[Finding]:
    api = BotApi(settings.telegram_token, settings.telegram_url)
    me = await api.call("getMe", timeout_s=10)
    if isinstance(me, ApiRefusal):
        found = f"Telegram refuses the token: {me.description}"
        yield Finding("telegram", "fault", found, fix="set predictions.telegram_token")
        return
    if not isinstance(me, ApiResult):
        yield Finding("telegram", "unreachable", me.reason, fix="see predictions.telegram_url")
        return
    yield Finding("telegram", "ok", f"@{text(mapping(me.value).get('username'))}")
    answer = await api.call("getWebhookInfo", timeout_s=10)
    info = mapping(answer.value if isinstance(answer, ApiResult) else None)
    url, wanted = text(info.get("url")), settings.public_url.rstrip("/")
    waiting = info.get("pending_update_count")
    if wanted and url != f"{wanted}/hooks/telegram":
        why = "updates go elsewhere, or wait"
        found = f"the webhook is {url or 'not set'}, expected {wanted}/hooks/telegram"
        yield Finding("telegram webhook", "fault", found, why, "start it: jobwire bot serve")
    elif not wanted and url and not settings.callback_url:
        why = "these settings are those of a polling bot, and a webhook serves the bot"
        found = f"the webhook is {url}; predictions.public_url and callback_url are empty"
        fix = "set CALLBACK_URL (functions) or PUBLIC_URL (bot serve) as the running bot has it"
        yield Finding("telegram webhook", "note", found, why, fix)
    elif settings.callback_url and not wanted and not url:
        why = "Telegram sends updates nowhere"
        fix = "call setWebhook with the address of fn-bot: deploy/functions"
        yield Finding("telegram webhook", "fault", "the webhook is not set", why, fix)
    else:
        found = f"{'set' if url else 'none, updates are polled'}; {waiting} updates wait"
        yield Finding("telegram webhook", "ok", found)
    if error := text(info.get("last_error_message")):
        yield Finding("telegram webhook", "note", f"last error: {error}", fix="see the bot's log")
