"""Computes vectors in batches with progress events. Used by `embed`, `rag` and `tool`."""

import math
from collections.abc import Sequence
from typing import Final

from jobwire.handlers.context import TaskContext
from jobwire.handlers.llm.generation import AnswerTimeout, with_retries
from jobwire.handlers.llm.models import Embeddable, Embedded
from jobwire.handlers.llm.models.errors import ModelError
from jobwire.handlers.llm.payloads import Common
from jobwire.handlers.llm.streaming import emit_progress
from jobwire.handlers.llm.task_deps import TaskDeps

_BATCH: Final = 16

Vector = Sequence[float]


async def embed_all(
    ctx: TaskContext,
    deps: TaskDeps,
    payload: Common,
    texts: Sequence[Embeddable],
    *,
    step: str,
    model: str = "",
    dimensions: int | None = None,
) -> Embedded:
    """Compute the vectors of all texts; raises Fail or Retry."""
    embedder = deps.models.embedder(model)
    vectors: list[Vector] = []
    tokens, name = 0, model or embedder.name

    async def log_retry(error: ModelError, wait: float) -> None:
        data = {"level": "warning", "message": error.message, "wait_s": round(wait, 2)}
        await ctx.emit("log", data, step=step)

    for start in range(0, len(texts), _BATCH):
        batch = texts[start : start + _BATCH]

        async def once(_timeout: AnswerTimeout, batch: Sequence[Embeddable] = batch) -> Embedded:
            return await embedder.embed(batch, model, dimensions)

        embedded = await with_retries(once, log_retry, deps.limit_s(payload))
        vectors += embedded.vectors
        tokens += embedded.tokens
        name = embedded.model
        if len(texts) > _BATCH:
            await emit_progress(ctx, step, "texts embedded", len(vectors), len(texts))
    return Embedded(vectors, tokens, name)


def cosine_similarity(a: Vector, b: Vector) -> float:
    """From -1 to 1; 1 for vectors of the same direction, 0 for orthogonal ones."""
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    size = math.hypot(*a) * math.hypot(*b)
    return dot / size if size else 0.0
