"""The section `predictions` of the settings: the photo bot."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Literal

_TOKEN: Final = re.compile(r"[0-9]{1,20}:[A-Za-z0-9_-]{1,200}")
_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{1,256}")


@dataclass(frozen=True, slots=True)
class PredictionsSettings:
    """The model, and the limits of the photo bot."""

    provider: Literal["replicate", "cog"] = "replicate"
    """The provider of the model: `replicate`, or your own `cog` server."""
    model: str = field(default="", metadata={"env": "REPLICATE_MODEL"})
    """The model: `owner/name` or `owner/name:version`."""
    replicate_token: str = field(default="", repr=False, metadata={"env": "REPLICATE_API_TOKEN"})
    """API token of Replicate."""
    replicate_url: str = "https://api.replicate.com"
    """Address of Replicate's API."""
    cog_url: str = "http://127.0.0.1:5000"
    """Address of the cog server."""
    input_field: str = "image"
    """Name of the model's input that takes the photo."""
    webhook_secret: str = field(
        default="", repr=False, metadata={"env": "REPLICATE_WEBHOOK_SECRET"}
    )
    """Signing secret of the provider's webhooks; task ids are derived from it too."""
    telegram_token: str = field(default="", repr=False, metadata={"env": "TELEGRAM_BOT_TOKEN"})
    """Token of the Telegram bot; empty: no bot."""
    telegram_secret: str = field(
        default="", repr=False, metadata={"env": "TELEGRAM_WEBHOOK_SECRET"}
    )
    """Secret that Telegram sends with each update; required for its webhook."""
    telegram_url: str = "https://api.telegram.org"
    """Address of the Bot API; another one for a server of your own."""
    public_url: str = field(default="", metadata={"env": "PUBLIC_URL"})
    """Public address for webhooks of the provider; empty: outcomes are polled."""
    callback_url: str = field(default="", metadata={"env": "CALLBACK_URL"})
    """Public address of the callback function, where it has one of its own; else `public_url`."""
    groups: Literal["addressed", "all", "never"] = "addressed"
    """Photos in groups: those that address the bot (`addressed`), `all`, or `never` any."""
    owner_chat: int = 0
    """Your chat with the bot, by Telegram's id: it is told of pictures that were not delivered."""
    tenant: str = ""
    """The tenant that the bot's tasks belong to."""
    bucket: str = ""
    """The bucket of the tasks; empty: `objects.bucket`."""
    max_image_mb: int = field(default=10, metadata={"env": "MAX_IMAGE_MB"})
    """Largest photo, in MB of 1,048,576 bytes."""
    memory_mb: int = 24
    """Memory for the pictures that a process works on at the same time, in MB."""
    max_in_flight: int = 5
    """Tasks of one chat at a time; 0: without limit."""
    max_album: int = 5
    """Photos of one album that are processed; 0: without limit."""
    max_per_hour: int = 60
    """Photos of one user in an hour; 0: without limit."""
    deadline_s: int = 600
    """Seconds that the provider may take for one picture."""
    reconcile_every: timedelta = timedelta(minutes=1)
    """Pause between two passes over unfinished tasks."""
    allow_loopback: bool = False
    """Fetch outputs from this machine too, by http; for a provider that runs here."""

    def check(self) -> Iterator[tuple[str, str]]:
        """Yield each fault: the field, and what is wrong with it."""
        if self.max_image_mb < 1:
            yield "max_image_mb", "must be at least 1"
        if self.memory_mb < 1:
            yield "memory_mb", "must be at least 1"
        for name in ("max_in_flight", "max_album", "max_per_hour"):
            if getattr(self, name) < 0:
                yield name, "must be 0 or more"
        if not timedelta(seconds=1) <= self.reconcile_every <= timedelta(minutes=30):
            yield "reconcile_every", "must be 1s to 30m: outputs live for an hour"
        if not 10 <= self.deadline_s <= 86_400:
            yield "deadline_s", "must be 10 to 86400"
        for name in ("public_url", "callback_url", "telegram_url", "replicate_url"):
            value: str = getattr(self, name)
            if value and not value.startswith(("https://", "http://")):
                yield name, "must begin with https://"
        if self.telegram_token and not _TOKEN.fullmatch(self.telegram_token):
            yield "telegram_token", "must be digits, a colon and the rest, as BotFather shows it"
        if self.telegram_secret and not _SECRET.fullmatch(self.telegram_secret):
            yield "telegram_secret", "must be 1 to 256 of A-Z, a-z, 0-9, _ and -"
