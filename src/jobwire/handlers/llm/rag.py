"""The task `rag`: answers a question from documents, with citations.

Documents are split into sentences; those most similar to the question are the sources. With a small
model the answer is one of them, unchanged. A larger model writes an answer and names its sources by
number. Either way citations are unchanged sentences.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from jobwire.handlers.context import TaskContext
from jobwire.handlers.llm import grammars, index, json_extraction
from jobwire.handlers.llm.models import Grammar, JsonForm, Message
from jobwire.handlers.llm.payloads import Citation, RagPayload, RagResult
from jobwire.handlers.llm.sentences import Sentence, sentences
from jobwire.handlers.llm.streaming import TokenEmitter
from jobwire.handlers.llm.task_deps import TaskDeps
from jobwire.handlers.llm.vectors import Vector, cosine_similarity, embed_all
from jobwire.job.errors import Fail
from jobwire.job.messages import Json

NO_ANSWER: Final = "The sources do not say."
_SCORE_MARGIN: Final = 0.1
"""Sources with scores this close to the best are equally good."""
_MAX_SENTENCES: Final = 1_000
_MAX_INDEX_SENTENCES: Final = 5_000


class RagSource(NamedTuple):
    """A sentence that may contain the answer."""

    sentence: Sentence
    score: float

    def citation(self) -> Citation:
        return Citation(self.sentence.document, self.sentence.text, self.score)


async def rag(ctx: TaskContext, payload: RagPayload, deps: TaskDeps) -> RagResult:
    """Retrieve the sources, then answer from them."""
    sources = await _sources(ctx, payload, deps)
    items = [
        {"id": each.sentence.document, "score": each.score, "text": each.sentence.text}
        for each in sources
    ]
    await ctx.emit("sources", {"items": items}, step="rag.retrieve")
    if sources[0].score < deps.settings.rag_min_score:
        return RagResult(NO_ANSWER, [], found=False)
    answer = _selected if deps.models.chat().constrained else _written
    return await answer(ctx, payload, deps, sources)


async def _sources(ctx: TaskContext, payload: RagPayload, deps: TaskDeps) -> list[RagSource]:
    """The sentences most similar to the question, best first."""
    documents = payload.documents or ()
    if payload.index is not None:
        documents = index.documents(deps.settings, payload.index)
    found = sentences(documents)
    limit = _MAX_SENTENCES if payload.index is None else _MAX_INDEX_SENTENCES
    if not found:
        raise Fail("rag_no_documents", "give `documents` with text, or the name of an `index`")
    if len(found) > limit:
        raise Fail("embed_too_many", f"{len(found)} sentences; a question takes at most {limit}")
    vectors = await _vectors(ctx, payload, deps, [each.text for each in found])
    question = await embed_all(ctx, deps, payload, [payload.question], step="rag.embed")
    scores = await asyncio.to_thread(_scores, question.vectors[0], vectors)
    ranked = sorted(zip(found, scores, strict=True), key=lambda pair: -pair[1])
    return [RagSource(sentence, round(score, 4)) for sentence, score in ranked[: payload.top_k]]


async def _vectors(
    ctx: TaskContext, payload: RagPayload, deps: TaskDeps, texts: Sequence[str]
) -> Sequence[Vector]:
    if payload.index is None:
        return (await embed_all(ctx, deps, payload, texts, step="rag.embed", keep=True)).vectors
    cache = index.VectorCache(deps.settings, deps.models.embedder().name, texts)
    cached = await asyncio.to_thread(cache.load)
    if cached is None:
        found = await embed_all(ctx, deps, payload, texts, step="rag.embed", keep=True)
        cached = found.vectors
        await asyncio.to_thread(cache.save, cached)
    return cached


def _scores(question: Vector, vectors: Sequence[Vector]) -> list[float]:
    return [cosine_similarity(question, each) for each in vectors]


# ── with a small model ────────────────────────────────────────────────────────────────────────────


async def _selected(
    ctx: TaskContext, payload: RagPayload, deps: TaskDeps, sources: Sequence[RagSource]
) -> RagResult:
    """The most similar source; among close scores the model selects. It is worse at that than the
    comparison of vectors, so it decides only where scores are close."""
    near = [each for each in sources if each.score >= sources[0].score - _SCORE_MARGIN]
    emitter, selected = TokenEmitter(ctx), near[0]
    usage, model = None, ""
    if len(near) == 1:
        await emitter.emit(selected.sentence.text)
    else:
        answer = await deps.answer(ctx, payload, *_choice(payload.question, near, emitter))
        answer.check_complete("answer")
        usage, model = answer.usage, answer.model
        named = [each for each in near if each.sentence.text == answer.text]
        if not named:  # cut by a stop text of the caller
            raise Fail("output_invalid", "the model did not return one of the sources; omit `stop`")
        selected = named[0]
    citations = [selected.citation()]
    return RagResult(selected.sentence.text, citations, found=True, usage=usage, model=model)


def _choice(
    question: str, near: Sequence[RagSource], emitter: TokenEmitter
) -> tuple[list[Message], TokenEmitter, Grammar]:
    texts = [each.sentence.text for each in near]
    listed = "\n".join(f"- {text}" for text in texts)
    ask = f"Sources:\n{listed}\n\nQuestion: {question}\nCopy the source that answers it."
    system = "You answer with one of the sources, word for word."
    messages = [Message("system", system), Message("user", ask)]
    return messages, emitter, Grammar(grammars.one_of(texts))


# ── with a larger model ───────────────────────────────────────────────────────────────────────────


async def _written(
    ctx: TaskContext, payload: RagPayload, deps: TaskDeps, sources: Sequence[RagSource]
) -> RagResult:
    listed = "\n".join(f"[{n}] {each.sentence.text}" for n, each in enumerate(sources, 1))
    system = (
        "You answer a question from numbered sources only, briefly. If they do not answer it, give "
        f'the answer "{NO_ANSWER}" and no sources. Answer with JSON only: '
        '{"answer": "…", "sources": [1]}'
    )
    ask = f"{listed}\n\nQuestion: {payload.question}"
    messages = [Message("system", system), Message("user", ask)]
    emitter = TokenEmitter(ctx, visible=lambda text: json_extraction.growing_string(text, "answer"))
    answer = await deps.answer(ctx, payload, messages, emitter, _form(len(sources)))
    answer.check_complete("answer")
    read = json_extraction.json_object(answer.text)
    text = read.get("answer") if read else None
    numbers = read.get("sources") if read else None
    if not isinstance(text, str) or not text.strip() or not isinstance(numbers, list):
        raise Fail("output_invalid", "the model did not return an answer with its sources")
    wanted = list(dict.fromkeys(n for n in numbers if isinstance(n, int)))
    cited = [sources[n - 1].citation() for n in wanted if 1 <= n <= len(sources)]
    return RagResult(text.strip(), cited, found=bool(cited), usage=answer.usage, model=answer.model)


def _form(count: int) -> JsonForm:
    number: Json = {"type": "integer", "enum": [*range(1, count + 1)]}
    sources: Json = {"type": "array", "items": number, "maxItems": count}
    schema = grammars.object_schema({"answer": {"type": "string"}, "sources": sources})
    return JsonForm("answer", schema)
