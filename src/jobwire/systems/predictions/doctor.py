"""Checks of the photo bot for `jobwire doctor` and `jobwire bot doctor`. They change nothing."""

from collections.abc import AsyncIterator

from jobwire.doctor import Finding
from jobwire.settings import Loaded
from jobwire.systems.predictions.bot import missing
from jobwire.systems.predictions.json_values import mapping, text
from jobwire.systems.predictions.settings import PredictionsSettings
from jobwire.systems.predictions.signature import secret_bytes
from jobwire.systems.predictions.telegram.api import ApiRefusal, ApiResult, BotApi


async def examine(loaded: Loaded) -> AsyncIterator[Finding]:
    """Settings, token, webhook."""
    settings = loaded.settings.predictions
    if not settings.telegram_token and not settings.webhook_secret:
        yield Finding(
            "bot", "note", "not configured", fix="try it without an account: jobwire bot demo"
        )
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
    if settings.telegram_token:
        async for finding in _telegram(settings):
            yield finding


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
    elif not wanted and url:
        why = "Telegram refuses polling while a webhook is set"
        found = f"the webhook is {url}, and predictions.public_url is empty"
        yield Finding("telegram webhook", "note", found, why, "jobwire bot poll --delete-webhook")
    else:
        found = f"{'set' if url else 'none, updates are polled'}; {waiting} updates wait"
        yield Finding("telegram webhook", "ok", found)
    if error := text(info.get("last_error_message")):
        yield Finding("telegram webhook", "note", f"last error: {error}", fix="see the bot's log")
