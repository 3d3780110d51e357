"""The task `embed`: texts to vectors, for search and comparison."""

import base64
import sys
from array import array
from typing import Final

from jobwire.handlers.context import TaskContext
from jobwire.handlers.llm.embedding import Vector, embed_all
from jobwire.handlers.llm.payloads import EmbedPayload, EmbedResult, EmbedUsage
from jobwire.handlers.llm.task_deps import TaskDeps
from jobwire.job.errors import Fail

_MOST_TEXTS: Final = 64
_DIGITS: Final = 6
_LARGEST: Final = 1_000_000
"""Bytes of a result, with room for what is around the vectors."""


async def embed(ctx: TaskContext, payload: EmbedPayload, kit: TaskDeps) -> EmbedResult:
    """A vector for each text."""
    texts = [payload.input] if isinstance(payload.input, str) else payload.input
    if not 1 <= len(texts) <= _MOST_TEXTS:
        raise Fail("embed_too_many", f"{len(texts)} texts; a job takes 1 to {_MOST_TEXTS}")
    made = await embed_all(ctx, kit, payload, texts, step="embed.batch", model=payload.model)
    dim = len(made.vectors[0])
    _check_size(len(texts), dim, payload.encoding)
    usage = EmbedUsage(made.tokens, made.tokens)
    if payload.encoding == "base64":
        return EmbedResult(made.model, dim, [_packed(each) for each in made.vectors], usage)
    rounded = [[round(number, _DIGITS) for number in each] for each in made.vectors]
    return EmbedResult(made.model, dim, rounded, usage)


def _check_size(count: int, dim: int, encoding: str) -> None:
    number = 16 / 3 if encoding == "base64" else _DIGITS + 5
    if count * dim * number > _LARGEST:
        other = "fewer texts" if encoding == "base64" else "fewer texts, or encoding=base64"
        raise Fail(
            "embed_too_many", f"{count} vectors of {dim} numbers are too large a result; {other}"
        )


def _packed(vector: Vector) -> str:
    """32-bit floats, little end first, as base64."""
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode()
