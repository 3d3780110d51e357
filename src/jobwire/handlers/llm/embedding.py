"""Texts to vectors, a batch at a time, told as `progress`. Used by every task that compares."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from jobwire.handlers.context import TaskContext
from jobwire.handlers.llm.generation import with_retries
from jobwire.handlers.llm.models import Embedded
from jobwire.handlers.llm.models.errors import ModelError
from jobwire.handlers.llm.payloads import Common
from jobwire.handlers.llm.task_deps import TaskDeps

_BATCH: Final = 16

Vector = Sequence[float]


@dataclass(frozen=True, slots=True)
class Vectors:
    """In the order of the texts."""

    vectors: list[Vector]
    tokens: int
    model: str


async def embed_all(
    ctx: TaskContext,
    kit: TaskDeps,
    payload: Common,
    texts: Sequence[str],
    *,
    step: str,
    model: str = "",
) -> Vectors:
    """All of them; Fail or Retry where that cannot be."""
    embedder = kit.models.embedder()
    vectors: list[Vector] = []
    tokens, name = 0, model or embedder.name

    async def one_more(trouble: ModelError, wait: float) -> None:
        told = {"level": "warning", "message": trouble.message, "wait_s": round(wait, 2)}
        await ctx.emit("log", told, step=step)

    for start in range(0, len(texts), _BATCH):
        batch = texts[start : start + _BATCH]

        async def once(batch: Sequence[str] = batch) -> Embedded:
            return await embedder.embed(batch, model)

        done = await with_retries(once, one_more, kit.limit_s(payload))
        vectors += done.vectors
        tokens += done.tokens
        name = done.model
        if len(texts) > _BATCH:
            await ctx.emit("progress", _so_far(len(vectors), len(texts)), step=step)
    return Vectors(vectors, tokens, name)


def _so_far(done: int, total: int) -> dict[str, object]:
    percent = 100 * done // total
    return {"percent": percent, "message": "texts embedded", "done": done, "total": total}


def cosine_similarity(one: Vector, other: Vector) -> float:
    """How alike two vectors are: 1 the same, 0 nothing in common."""
    dot = sum(a * b for a, b in zip(one, other, strict=True))
    size = math.hypot(*one) * math.hypot(*other)
    return dot / size if size else 0.0
