"""What `api/predictions.py` writes again is what the wire has."""

from __future__ import annotations

from typing import get_args

from jobwire.api import predictions as api
from jobwire.systems.predictions import listing, newest_tasks, webhook
from jobwire.systems.predictions.telegram import bot


def test_the_words_and_limits_of_the_api_are_those_of_the_wire() -> None:
    assert get_args(api.StatusFilter) == get_args(newest_tasks.StatusFilter)
    assert api.MAX_PAGE == listing.MAX_PAGE
    assert api.MAX_WEBHOOK_BYTES == webhook.MAX_BODY_BYTES
    assert (api.MAX_UPDATE_BYTES, api.SECRET_HEADER) == (bot.MAX_UPDATE_BYTES, bot.SECRET_HEADER)
