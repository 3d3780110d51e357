"""The task id of a message: a keyed hash, so a redelivered update makes the same one (P-1).

The id rides in the webhook URL and, as a UUID, in the input key. It is not a secret: a webhook is
authenticated by its provider's signature or token.
"""

from __future__ import annotations

import hmac
from base64 import b32decode, b32encode
from typing import Final
from uuid import UUID

_ID_BYTES: Final = 20  # 32 characters of base32, no padding


class TaskIds:
    """Derives ids and tokens from one secret."""

    def __init__(self, secret: str) -> None:
        if not secret:
            raise ValueError("predictions need a secret: set predictions.webhook_secret")
        self._key = secret.encode()

    def of_message(self, bot: str, chat_id: int, message_id: int) -> str:
        """The task id of a photo in a chat."""
        return self._id(f"message:{bot}:{chat_id}:{message_id}")

    def of_prediction(self, prediction_id: str) -> str:
        """The task id of a task that another program submitted."""
        return self._id(f"prediction:{prediction_id}")

    def webhook_token(self, tid: str) -> str:
        """The token in the webhook URL of a provider that does not sign."""
        return hmac.digest(self._key, f"webhook:{tid}".encode(), "sha256").hex()

    def _id(self, text: str) -> str:
        digest = hmac.digest(self._key, text.encode(), "sha256")
        return b32encode(digest[:_ID_BYTES]).decode().lower()


def uuid_of(tid: str) -> str:
    """The first 128 bits of a task id as a UUID: the name of the input object."""
    return str(UUID(bytes=b32decode(tid.upper())[:16]))
