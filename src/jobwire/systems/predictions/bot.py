"""The bot from its settings: for the gateway and for the commands of `jobwire bot`."""

from jobwire.objects import Bucket
from jobwire.settings import SettingsError
from jobwire.systems.predictions.build import build_flow
from jobwire.systems.predictions.settings import PredictionsSettings
from jobwire.systems.predictions.telegram.api import BotApi
from jobwire.systems.predictions.telegram.bot import TelegramBot
from jobwire.systems.predictions.telegram.chat import TelegramChat


def is_configured(settings: PredictionsSettings) -> bool:
    """Whether there is a bot; SettingsError if its settings are incomplete."""
    if not settings.telegram_token and not settings.webhook_secret:
        return False
    require_configured(settings)
    return True


def require_configured(settings: PredictionsSettings) -> None:
    """SettingsError if something that a bot needs is not set."""
    if faults := missing(settings):
        raise SettingsError(faults)


def missing(settings: PredictionsSettings) -> list[str]:
    """What a bot still needs, one line each."""
    needed = {"telegram_token": "BotFather shows it", "webhook_secret": "the provider shows it"}
    if settings.provider == "replicate":
        needed |= {"model": "owner/name", "replicate_token": "the API token of Replicate"}
    if settings.public_url:
        needed["telegram_secret"] = "any 32 random letters and digits"  # noqa: S105 - a hint
    return [
        f"predictions.{name}: is required for the bot; {hint}"
        for name, hint in needed.items()
        if not getattr(settings, name)
    ]


def build_bot(settings: PredictionsSettings, bucket: Bucket) -> TelegramBot:
    """Build the bot; SettingsError names a setting that is missing or wrong."""
    require_configured(settings)
    api = BotApi(settings.telegram_token, settings.telegram_url)
    try:
        flow = build_flow(settings, bucket, TelegramChat(api), bot=api.bot_id)
    except ValueError as error:
        raise SettingsError([f"predictions: {error}"]) from error
    return TelegramBot(flow, api)
