"""A provider's prediction object in our words: its state, and the forms of its output (P-21). Pure.

A status that we do not know means "not finished": providers add new ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, cast

from jobwire.systems.predictions.contract import FAILED, SUCCEEDED, TaskErrorCode, is_prediction_id
from jobwire.systems.predictions.images import is_data_url
from jobwire.systems.predictions.intent import News, Outcome, Output
from jobwire.systems.predictions.json_values import text

MAX_OUTPUTS: Final = 10
_DEPTH: Final = 4
_LONGEST_URL: Final = 4096  # it is kept in the intent
_LONGEST_TEXT: Final = 4096
_FAILURES: Final = {
    "failed": TaskErrorCode.PROVIDER_FAILED,
    "canceled": TaskErrorCode.CANCELED,
    "aborted": TaskErrorCode.TIMEOUT,
}
_CONTENT: Final = re.compile(r"nsfw|safety|sensitive content|flagged|content polic", re.IGNORECASE)


def news_of(prediction: Mapping[str, object] | None) -> News | None:
    """The news in a prediction object; None if it has no usable id."""
    prediction_id = text((prediction or {}).get("id"))
    if prediction is None or not is_prediction_id(prediction_id):
        return None
    given = prediction.get("input")
    return News(
        prediction_id=prediction_id,
        running=prediction.get("status") == "processing",
        outcome=_outcome(prediction),
        input_text=json.dumps(given) if given else "",
    )


def output_urls(output: object) -> tuple[str, ...]:
    """Every URL in a string, a list, or an object, in order; at most ten."""
    found: list[str] = []
    _collect(output, found, _DEPTH)
    return tuple(dict.fromkeys(found))[:MAX_OUTPUTS]


def output_text(output: object) -> str:
    """The text that a model wrote, in one piece or many, as long as a message may be; empty if it
    is none."""
    pieces = cast("list[object]", output) if isinstance(output, list) else [output]
    if not all(isinstance(piece, str) and not is_data_url(piece) for piece in pieces):
        return ""
    written = text("".join(cast("list[str]", pieces))).strip()
    return written if len(written) <= _LONGEST_TEXT else f"{written[: _LONGEST_TEXT - 1]}…"


def _outcome(prediction: Mapping[str, object]) -> Outcome | None:
    status = prediction.get("status")
    if status == "succeeded":
        urls = output_urls(prediction.get("output"))
        if urls:
            return Outcome(SUCCEEDED, outputs=tuple(Output(url=url) for url in urls))
        if written := output_text(prediction.get("output")):
            return Outcome(SUCCEEDED, outputs=(Output(text=written),))
        # Replicate keeps a prediction's data for an hour and its record forever.
        if prediction.get("data_removed") or prediction.get("output") is None:
            return Outcome(FAILED, code=TaskErrorCode.OUTPUT_EXPIRED)
        return Outcome(FAILED, code=TaskErrorCode.OUTPUT_REFUSED, message="the output has no URL")
    if isinstance(status, str) and status in _FAILURES:
        message = text(prediction.get("error"))
        code = _FAILURES[status]
        if code is TaskErrorCode.PROVIDER_FAILED and _CONTENT.search(message):
            code = TaskErrorCode.CONTENT_REFUSED
        return Outcome(FAILED, code=code, message=message[:500] or None)
    return None


def _collect(output: object, found: list[str], depth: int) -> None:
    if isinstance(output, str):
        fits = len(output) <= _LONGEST_URL or is_data_url(output)
        if fits and re.match(r"https?://|data:", output, re.IGNORECASE):
            found.append(text(output))
    elif depth and isinstance(output, list):
        for each in cast("list[object]", output):
            _collect(each, found, depth - 1)
    elif depth and isinstance(output, dict):
        for each in cast("dict[str, object]", output).values():
            _collect(each, found, depth - 1)
