"""Computes vectors in batches with progress events. Used by `embed`, `rag` and `tool`."""

import base64
import math
from array import array
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from jobwire.handlers.context import TaskContext
from jobwire.handlers.llm.generation import AnswerTimeout, with_retries
from jobwire.handlers.llm.models import Embeddable, Embedded
from jobwire.handlers.llm.models.errors import ModelError
from jobwire.handlers.llm.payloads import Common
from jobwire.handlers.llm.streaming import emit_progress
from jobwire.handlers.llm.task_deps import TaskDeps
from jobwire.job.errors import Fail

_BATCH: Final = 16

_MAX_PACKED: Final = 200_000
_MAX_ALL_PACKED: Final = 3_000_000
"""Characters of the vectors of a batch, and of a job, in its record: below the limits of steps."""

Vector = Sequence[float]


class PackedVectors(NamedTuple):
    """Vectors of a batch as the record of a job has them: numbers of four bytes, in base64. Empty
    where they would be too large."""

    data: str
    width: int
    tokens: int
    model: str


async def embed_all(
    ctx: TaskContext,
    deps: TaskDeps,
    payload: Common,
    texts: Sequence[Embeddable],
    *,
    step: str,
    model: str = "",
    dimensions: int | None = None,
    keep: bool = False,
) -> Embedded:
    """Compute the vectors of all texts; raises Fail or Retry. With `keep` each batch is a step of
    the job: a run after a crash or a retry does not compute it again."""
    embedder = deps.models.embedder(model)
    vectors: list[Vector] = []
    tokens, name, kept = 0, model or embedder.name, 0

    async def log_retry(error: ModelError, wait: float) -> None:
        data = {"level": "warning", "message": error.message, "wait_s": round(wait, 2)}
        await ctx.emit("log", data, step=step)

    for start in range(0, len(texts), _BATCH):
        batch = texts[start : start + _BATCH]

        async def once(_timeout: AnswerTimeout, batch: Sequence[Embeddable] = batch) -> Embedded:
            return await embedder.embed(batch, model, dimensions)

        async def compute(once: Callable[[AnswerTimeout], Awaitable[Embedded]] = once) -> Embedded:
            return await with_retries(once, log_retry, deps.limit_s(payload))

        if keep:
            about = (embedder.name, model, dimensions, batch)
            # Of other texts, as after a change of an index, it is another step.
            digest = sha256(msgspec.json.encode(about)).hexdigest()[:32]
            recorded = f"{step}-{start}-{digest}"
            embedded, size = await _kept(ctx, recorded, compute, _MAX_ALL_PACKED - kept)
            kept += size
        else:
            embedded = await compute()
        vectors += embedded.vectors
        tokens += embedded.tokens
        name = embedded.model
        if len(texts) > _BATCH:
            await emit_progress(ctx, step, "texts embedded", len(vectors), len(texts))
    return Embedded(vectors, tokens, name)


async def _kept(
    ctx: TaskContext, name: str, compute: Callable[[], Awaitable[Embedded]], left: int
) -> tuple[Embedded, int]:
    """The vectors of a step and how many characters they have in the record, of which so many are
    left. Vectors that do not fit are not recorded."""
    computed: list[Embedded] = []

    async def packed() -> PackedVectors:
        computed.append(await compute())
        return _pack(computed[0], min(_MAX_PACKED, left))

    try:
        found = await ctx.step(name, packed)
    except Fail as failed:
        # A wire without records; or vectors of former texts have filled the record.
        if failed.code != "step_too_large" and (computed or failed.code != "unsupported"):
            raise
        return computed[0] if computed else await compute(), 0
    if found.data:
        return _unpack(found), len(found.data)
    return computed[0] if computed else await compute(), 0


def _pack(embedded: Embedded, limit: int) -> PackedVectors:
    width = len(embedded.vectors[0])
    numbers = array("f", [number for vector in embedded.vectors for number in vector])
    data = base64.b64encode(numbers.tobytes()).decode()
    fits = len(data) <= limit
    return PackedVectors(data if fits else "", width, embedded.tokens, embedded.model)


def _unpack(packed: PackedVectors) -> Embedded:
    numbers = array("f", base64.b64decode(packed.data)).tolist()
    width = packed.width
    vectors = [numbers[at : at + width] for at in range(0, len(numbers), width)]
    return Embedded(vectors, packed.tokens, packed.model)


def cosine_similarity(a: Vector, b: Vector) -> float:
    """From -1 to 1; 1 for vectors of the same direction, 0 for orthogonal ones."""
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    size = math.hypot(*a) * math.hypot(*b)
    return dot / size if size else 0.0
