"""The task `embed`: computes vectors of texts."""

import base64
import sys
from array import array
from collections.abc import Sequence
from typing import Final

from jobwire.handlers.context import TaskContext
from jobwire.handlers.llm.models import Embeddable
from jobwire.handlers.llm.payloads import EmbedPayload, EmbedResult, EmbedUsage
from jobwire.handlers.llm.task_deps import TaskDeps
from jobwire.handlers.llm.vectors import Vector, embed_all
from jobwire.job.errors import Fail

_MAX_TEXTS: Final = 64
_DIGITS: Final = 6
_MAX_RESULT_BYTES: Final = 1_000_000
"""Below the limit of a result, with space for the other members."""


async def embed(ctx: TaskContext, payload: EmbedPayload, deps: TaskDeps) -> EmbedResult:
    """Compute a vector for each text."""
    texts: Sequence[Embeddable] = (
        [payload.input] if isinstance(payload.input, str) else payload.input
    )
    if not 1 <= len(texts) <= _MAX_TEXTS:
        raise Fail("embed_too_many", f"{len(texts)} texts; a job takes 1 to {_MAX_TEXTS}")
    embedded = await embed_all(
        *(ctx, deps, payload, texts),
        step="embed.batch",
        model=payload.model,
        dimensions=payload.dimensions,
    )
    dim = len(embedded.vectors[0])
    _check_size(len(texts), dim, payload.encoding)
    usage = EmbedUsage(embedded.tokens, embedded.tokens)
    if payload.encoding == "base64":
        return EmbedResult(embedded.model, dim, [_base64(each) for each in embedded.vectors], usage)
    rounded = [[round(number, _DIGITS) for number in each] for each in embedded.vectors]
    return EmbedResult(embedded.model, dim, rounded, usage)


def _check_size(count: int, dim: int, encoding: str) -> None:
    number = 16 / 3 if encoding == "base64" else _DIGITS + 5
    if count * dim * number > _MAX_RESULT_BYTES:
        fix = (
            "send fewer texts"
            if encoding == "base64"
            else "send fewer texts, or use encoding=base64"
        )
        raise Fail(
            "embed_too_many", f"{count} vectors of {dim} numbers exceed the size of a result; {fix}"
        )


def _base64(vector: Vector) -> str:
    """The vector as little-endian 32-bit floats in base64."""
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode()
