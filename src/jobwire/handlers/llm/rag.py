"""The task `rag`: answers a question from documents, and says where it stands.

Documents are cut into sentences; those most like the question are the sources. With a small model
the answer is one of them, as it stands, so a citation is exact by construction. A real one writes
an answer in its own words and names its sources by number; they too are quoted as they stand.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from jobwire.handlers.context import TaskContext
from jobwire.handlers.llm import grammars, index, json_extraction
from jobwire.handlers.llm.embedding import Vector, cosine_similarity, embed_all
from jobwire.handlers.llm.models import Grammar, JsonForm, Message
from jobwire.handlers.llm.payloads import Citation, RagPayload, RagResult
from jobwire.handlers.llm.sentences import Sentence, sentences
from jobwire.handlers.llm.streaming import TokenEmitter
from jobwire.handlers.llm.task_deps import TaskDeps
from jobwire.job.errors import Fail

NOT_SAID: Final = "The sources do not say."
_NEAR: Final = 0.1
"""Sources whose scores are this close are as good as each other."""
_MOST_GIVEN: Final = 1_000
_MOST_KEPT: Final = 5_000


class RagSource(NamedTuple):
    """A sentence that may hold the answer."""

    sentence: Sentence
    score: float

    def citation(self) -> Citation:
        return Citation(self.sentence.document, self.sentence.text, self.score)


async def rag(ctx: TaskContext, payload: RagPayload, kit: TaskDeps) -> RagResult:
    """Find the sources, then ask the model about them."""
    sources = await _sources(ctx, payload, kit)
    items = [
        {"id": each.sentence.document, "score": each.score, "text": each.sentence.text}
        for each in sources
    ]
    await ctx.emit("sources", {"items": items}, step="rag.retrieve")
    if sources[0].score < kit.settings.rag_min_score:
        return RagResult(NOT_SAID, [], found=False)
    answer = _picked if kit.models.chat().led else _written
    return await answer(ctx, payload, kit, sources)


async def _sources(ctx: TaskContext, payload: RagPayload, kit: TaskDeps) -> list[RagSource]:
    """The sentences that are like the question, the likest first."""
    given = payload.documents or ()
    if payload.index is not None:
        given = index.documents(kit.settings, payload.index)
    found = sentences(given)
    most = _MOST_GIVEN if payload.index is None else _MOST_KEPT
    if not found:
        raise Fail("rag_no_documents", "give `documents` with text, or the name of an `index`")
    if len(found) > most:
        raise Fail("embed_too_many", f"{len(found)} sentences; a question takes at most {most}")
    vectors = await _vectors(ctx, payload, kit, [each.text for each in found])
    asked = await embed_all(ctx, kit, payload, [payload.question], step="rag.embed")
    scores = await asyncio.to_thread(_scores, asked.vectors[0], vectors)
    ranked = sorted(zip(found, scores, strict=True), key=lambda pair: -pair[1])
    return [RagSource(sentence, round(score, 4)) for sentence, score in ranked[: payload.top_k]]


async def _vectors(
    ctx: TaskContext, payload: RagPayload, kit: TaskDeps, texts: Sequence[str]
) -> Sequence[Vector]:
    if payload.index is None:
        return (await embed_all(ctx, kit, payload, texts, step="rag.embed")).vectors
    cache = index.VectorCache(kit.settings, kit.models.embedder().name, texts)
    kept = await asyncio.to_thread(cache.load)
    if kept is None:
        kept = (await embed_all(ctx, kit, payload, texts, step="rag.embed")).vectors
        await asyncio.to_thread(cache.save, kept)
    return kept


def _scores(asked: Vector, vectors: Sequence[Vector]) -> list[float]:
    return [cosine_similarity(asked, each) for each in vectors]


# ── with a small model ───────────────────────────────────────────────────────────────────────────


async def _picked(
    ctx: TaskContext, payload: RagPayload, kit: TaskDeps, sources: Sequence[RagSource]
) -> RagResult:
    """The likest source; where others are nearly as like, the model picks. It is worse at that than
    the comparison of vectors, so it is asked only where those cannot tell."""
    near = [each for each in sources if each.score >= sources[0].score - _NEAR]
    teller, picked = TokenEmitter(ctx), near[0]
    if len(near) == 1:
        await teller.emit(picked.sentence.text)
    else:
        answer = await kit.answer(ctx, payload, *_choice(payload.question, near, teller))
        _check_whole(answer.finish_reason, payload)
        picked = next(each for each in near if each.sentence.text == answer.text)
    return RagResult(picked.sentence.text, [picked.citation()], found=True)


def _choice(
    question: str, near: Sequence[RagSource], teller: TokenEmitter
) -> tuple[list[Message], TokenEmitter, Grammar]:
    texts = [each.sentence.text for each in near]
    listed = "\n".join(f"- {text}" for text in texts)
    ask = f"Sources:\n{listed}\n\nQuestion: {question}\nCopy the source that answers it."
    system = "You answer with one of the sources, word for word."
    messages = [Message("system", system), Message("user", ask)]
    return messages, teller, Grammar(grammars.one_of(texts))


# ── with a real model ────────────────────────────────────────────────────────────────────────────


async def _written(
    ctx: TaskContext, payload: RagPayload, kit: TaskDeps, sources: Sequence[RagSource]
) -> RagResult:
    listed = "\n".join(f"[{n}] {each.sentence.text}" for n, each in enumerate(sources, 1))
    system = (
        "You answer a question from numbered sources only, briefly. If they do not answer it, give "
        f'the answer "{NOT_SAID}" and no sources. Answer with JSON only: '
        '{"answer": "…", "sources": [1]}'
    )
    ask = f"{listed}\n\nQuestion: {payload.question}"
    messages = [Message("system", system), Message("user", ask)]
    teller = TokenEmitter(ctx, shown=lambda text: json_extraction.growing_string(text, "answer"))
    answer = await kit.answer(ctx, payload, messages, teller, _form(len(sources)))
    _check_whole(answer.finish_reason, payload)
    read = json_extraction.an_object(answer.text)
    said = read.get("answer") if read else None
    numbers = read.get("sources") if read else None
    if not isinstance(said, str) or not said.strip() or not isinstance(numbers, list):
        raise Fail("output_invalid", "the model did not answer with an answer and its sources")
    wanted = list(dict.fromkeys(n for n in numbers if isinstance(n, int)))
    cited = [sources[n - 1].citation() for n in wanted if 1 <= n <= len(sources)]
    return RagResult(said.strip(), cited, found=bool(cited))


def _check_whole(finish_reason: str, payload: RagPayload) -> None:
    if finish_reason == "length":
        raise Fail(
            "output_truncated",
            f"the answer is longer than max_tokens={payload.max_tokens} allows; ask for more",
        )


def _form(count: int) -> JsonForm:
    return JsonForm(
        "answer",
        {
            "type": "object",
            "properties": {
                "answer": {"type": "string"},
                "sources": {
                    "type": "array",
                    "items": {"type": "integer", "enum": [*range(1, count + 1)]},
                    "maxItems": count,
                },
            },
            "required": ["answer", "sources"],
            "additionalProperties": False,
        },
    )
