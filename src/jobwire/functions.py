"""Entry points of the photo bot as cloud functions: `bot`, `callback`, `reconcile` (P-23).

    jobwire.functions.bot          behind the URL that Telegram calls
    jobwire.functions.callback     behind the URL that the provider calls
    jobwire.functions.reconcile    behind a timer

Settings come from the environment, and are read at the first call of an instance. No web framework,
no Valkey and no settings file are loaded, for a fast cold start. See docs/predictions.md.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from jobwire import log
from jobwire.log import LoggingSettings
from jobwire.objects import Bucket
from jobwire.objects.settings import ObjectsSettings
from jobwire.settings.environment import from_environment
from jobwire.wires.predictions.build import build_flow
from jobwire.wires.predictions.functions import Functions, Response
from jobwire.wires.predictions.settings import PredictionsSettings
from jobwire.wires.predictions.telegram.api import BotApi
from jobwire.wires.predictions.telegram.bot import TelegramBot
from jobwire.wires.predictions.telegram.chat import TelegramChat

__all__ = ["bot", "callback", "reconcile"]


@dataclass(frozen=True, slots=True)
class FunctionSettings:
    """The sections that the functions read."""

    objects: ObjectsSettings = field(default_factory=ObjectsSettings)
    predictions: PredictionsSettings = field(default_factory=PredictionsSettings)
    logging: LoggingSettings = field(default_factory=lambda: LoggingSettings(format="json"))


def bot(event: object, context: object = None) -> Response:  # noqa: ARG001 - the clouds' signature
    """Take an update of Telegram."""
    return _functions().bot(event)


def callback(event: object, context: object = None) -> Response:  # noqa: ARG001 - the clouds' signature
    """Take a webhook of the provider."""
    return _functions().callback(event)


def reconcile(event: object, context: object = None) -> Response:
    """Finish what was left half done; called by a timer."""
    return _functions().reconcile(event, context)


@cache
def _functions() -> Functions:
    """Built once for all calls of an instance."""
    settings = from_environment(FunctionSettings, os.environ)
    log.setup("functions", settings.logging)
    objects = _with_role(settings.objects, os.environ)
    if settings.predictions.bucket:
        objects = replace(objects, bucket=settings.predictions.bucket)
    api = BotApi(settings.predictions.telegram_token, settings.predictions.telegram_url)
    if not settings.predictions.telegram_token:
        raise ValueError("predictions.telegram_token: is required; set TELEGRAM_BOT_TOKEN")
    flow = build_flow(
        settings.predictions, Bucket(objects.config()), TelegramChat(api), bot=api.bot_id
    )
    return Functions(TelegramBot(flow, api), settings.predictions.telegram_secret)


def _with_role(objects: ObjectsSettings, environ: Mapping[str, str]) -> ObjectsSettings:
    """The keys of the function's role or service account, where no others are set."""
    if objects.access_key:
        return objects
    return replace(
        objects,
        access_key=environ.get("AWS_ACCESS_KEY_ID", ""),
        secret_key=environ.get("AWS_SECRET_ACCESS_KEY", ""),
        session_token=environ.get("AWS_SESSION_TOKEN", ""),
    )
