"""Entry points of the photo bot as cloud functions: `bot`, `callback`, `reconcile` (P-23).

    jobwire.functions.bot          behind the URL that Telegram calls
    jobwire.functions.callback     behind the URL that the provider calls
    jobwire.functions.reconcile    behind a timer

Settings come from the environment, and are read at the first call of an instance. No web framework,
no Valkey and no settings file are loaded, for a fast cold start. See docs/predictions.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from jobwire import log
from jobwire.log import LoggingSettings
from jobwire.objects import Bucket, ObjectsError
from jobwire.objects.settings import ROLE_KEYS, ObjectsSettings
from jobwire.redaction import register_secrets
from jobwire.settings.environment import from_environment
from jobwire.settings.schema import sections
from jobwire.settings.values import secrets_of
from jobwire.systems.predictions.build import build_flow
from jobwire.systems.predictions.functions import Functions, Response, response
from jobwire.systems.predictions.settings import PredictionsSettings
from jobwire.systems.predictions.telegram.api import BotApi
from jobwire.systems.predictions.telegram.bot import TelegramBot
from jobwire.systems.predictions.telegram.chat import TelegramChat
from jobwire.systems.predictions.webhook import Answer

__all__ = ["bot", "callback", "reconcile"]


@dataclass(frozen=True, slots=True)
class FunctionSettings:
    """The sections that the functions read."""

    objects: ObjectsSettings = field(default_factory=ObjectsSettings)
    predictions: PredictionsSettings = field(default_factory=PredictionsSettings)
    logging: LoggingSettings = field(default_factory=lambda: LoggingSettings(format="json"))


def bot(event: object, context: object = None) -> Response:  # noqa: ARG001 - the clouds' signature
    """Take an update of Telegram."""
    return _answer(lambda functions: functions.bot(event))


def callback(event: object, context: object = None) -> Response:  # noqa: ARG001 - the clouds' signature
    """Take a webhook of the provider."""
    return _answer(lambda functions: functions.callback(event))


def reconcile(event: object, context: object = None) -> Response:
    """Finish what was left half done; called by a timer."""
    return _answer(lambda functions: functions.reconcile(event, context))


def _answer(call: Callable[[Functions], Response]) -> Response:
    """Without valid settings: one line in the log, and no traceback for the caller."""
    try:
        functions = _functions()
    except (ValueError, ObjectsError) as error:
        log.component("predictions").error("not configured: %s", error)
        return response(Answer(500, "not configured"))
    return call(functions)


@cache
def _functions() -> Functions:
    """Built once for all calls of an instance."""
    settings = from_environment(FunctionSettings, _with_role(os.environ))
    log.setup("functions", settings.logging)
    objects, predictions = settings.objects, settings.predictions
    register_secrets(secrets_of(settings, [*sections(FunctionSettings)]))
    if predictions.bucket:
        objects = replace(objects, bucket=predictions.bucket)
    if not predictions.telegram_token:
        raise ValueError("predictions.telegram_token: is required; set TELEGRAM_BOT_TOKEN")
    api = BotApi(predictions.telegram_token, predictions.telegram_url)
    flow = build_flow(predictions, Bucket(objects.config()), TelegramChat(api), bot=api.bot_id)
    return Functions(TelegramBot(flow, api), predictions.telegram_secret)


def _with_role(environ: Mapping[str, str]) -> Mapping[str, str]:
    """The environment with the keys of the function's role, where no others are set."""
    if environ.get("JOBWIRE_OBJECTS_ACCESS_KEY") or environ.get("MINIO_ACCESS_KEY_ID"):
        return environ
    names = {theirs: f"JOBWIRE_OBJECTS_{ours.upper()}" for theirs, ours in ROLE_KEYS.items()}
    return {**environ, **{ours: environ.get(theirs, "") for theirs, ours in names.items()}}
