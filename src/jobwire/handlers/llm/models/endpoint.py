"""A model behind an OpenAI-compatible server. One attempt per call.

Made by `factory.py` for configured servers and by `local.py` for the server that it starts.
"""

import codecs
import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, suppress
from typing import Final

from jobwire.handlers.llm.models import (
    ChatRequest,
    Embeddable,
    Embedded,
    Piece,
    replies,
    requests,
)
from jobwire.handlers.llm.models.answers import MAX_ANSWER_BYTES, AnswerParser
from jobwire.handlers.llm.models.errors import NOT_NAMED, ModelError, ModelRefused, NoModel
from jobwire.handlers.llm.models.events import SseReader
from jobwire.handlers.llm.models.server import ModelCall, ModelServer
from jobwire.job.messages import Json

_USAGE_TIMEOUT_S: Final = 5.0
"""How long to wait for the usage after the finish reason."""
_MAX_VECTORS_BYTES: Final = 64 << 20
_MAX_CHANGES: Final = 4
"""Times that a refused request is changed and sent again."""
_MAX_MODELS: Final = 256
"""Models whose changes are remembered."""
_REASONS: Final = re.compile(
    r"(?<![a-z])(r1|qwq|think|thinking|reasoner|reasoning)(?![a-z])", re.IGNORECASE
)
"""Models whose chat templates often have the opening tag: DeepSeek-R1, QwQ, Qwen3-Thinking."""
_EVENT_START: Final = (b"data:", b"event:", b"id:", b"retry:", b":")
_LONGEST_START: Final = 6


class EndpointChat:
    """A chat model on a server."""

    constrained = False

    def __init__(self, server: ModelServer, model: str, *, is_local: bool = False) -> None:
        self._server = server
        self._model = model
        self._is_local = is_local
        self._wants_progress = is_local
        self._changes: dict[str, list[requests.Change]] = {}
        self._reasoning: dict[str, bool] = {}
        """Models that were asked before, and whether their reasoning has no opening tag."""

    async def ask(self, request: ChatRequest) -> AsyncGenerator[Piece, None]:
        """Make one attempt; a refused request is changed by what the refusal names."""
        model = request.model or self._model
        if not model:
            raise NoModel(*NOT_NAMED)
        full = requests.chat_body(request, model, is_local=self._is_local)
        if self._wants_progress:
            # Without it the server writes nothing while it reads a long prompt, and detects a
            # disconnect only afterwards.
            full["return_progress"] = True
            # An answer that is stopped early has no usage otherwise.
            full["timings_per_token"] = True
        changes = list(self._changes.get(model, ()))
        for left in range(_MAX_CHANGES, -1, -1):
            body = requests.changed(full, changes)
            try:
                async with aclosing(self._answer(body, model)) as pieces:
                    async for piece in pieces:
                        # Now: the caller closes this generator at the last piece.
                        self._remember(model, changes)
                        yield piece
            except ModelRefused as refused:
                more = requests.changes_for(body, refused.wrong)
                if not more or not left:
                    raise
                changes += more
            else:
                return

    def _remember(self, model: str, changes: list[requests.Change]) -> None:
        """Keep what this model does not accept, so that the next request is right at once. Not the
        form of the answer: one schema may be refused, and the next one accepted."""
        about_form = ("response_format", requests.JSON_OBJECT)
        changes = [each for each in changes if each not in about_form]
        if changes and (model in self._changes or len(self._changes) < _MAX_MODELS):
            self._changes[model] = changes

    def _remember_reasoning(self, model: str, *, has_lone_close: bool) -> None:
        """Text of a model that ends its reasoning without having begun it is held back next time,
        until the answer begins."""
        if model in self._reasoning or len(self._reasoning) < _MAX_MODELS:
            self._reasoning[model] = has_lone_close

    def _holds_text(self, model: str) -> bool:
        """Whether the text may be reasoning. Before the first answer the name decides: what is sent
        to a client as the answer cannot be taken back."""
        return self._reasoning.get(model, _REASONS.search(model) is not None)

    async def _answer(self, body: dict[str, Json], model: str) -> AsyncGenerator[Piece, None]:
        async with self._server.post("/chat/completions", body) as call:
            self._wants_progress |= call.is_llama
            answer = AnswerParser(model, self._server.label, holds_text=self._holds_text(model))
            first = await _first_bytes(call, self._server.first_s)
            if not first.startswith(_EVENT_START):
                for piece in await self._not_streamed(call, first, answer):
                    yield piece
            else:
                async with aclosing(self._streamed(call, first, answer)) as pieces:
                    async for piece in pieces:
                        yield piece
            if not answer.finish_reason:
                raise self._server.cut("the stream ended without finish_reason")
            for piece in answer.rest():
                yield piece
            self._remember_reasoning(model, has_lone_close=answer.has_lone_close)
            yield answer.end()

    async def _not_streamed(
        self, call: ModelCall, first: bytes, answer: AnswerParser
    ) -> list[Piece]:
        """The pieces of a complete reply; servers without streaming send one."""
        data = first + await call.body(MAX_ANSWER_BYTES)
        if not data.strip() and call.is_event_stream:
            return []
        complete = replies.complete_answer(data)
        if complete is None:
            raise replies.not_a_stream(call.content_type, data, self._server.label)
        return [*answer.pieces(complete)]

    async def _streamed(
        self, call: ModelCall, first: bytes, answer: AnswerParser
    ) -> AsyncGenerator[Piece, None]:
        reader = SseReader()
        chunk: bytes | None = first
        while not answer.is_over:
            if chunk is None:
                for piece in _last_pieces(answer, reader):
                    yield piece
                return
            was_finished = bool(answer.finish_reason)
            for piece in answer.feed(reader.feed(chunk)):
                yield piece
            if answer.finish_reason and not was_finished:
                call.wait(_USAGE_TIMEOUT_S)
            elif not was_finished:
                # K-3: comments and chunks with only a role are signs of life.
                call.wait(self._server.idle_s if answer.has_begun else self._server.first_s)
            if answer.is_over:
                return
            try:
                chunk = await call.chunk()
            except ModelError:
                if answer.finish_reason:  # only the usage is missing
                    return
                raise


async def _first_bytes(call: ModelCall, first_s: float) -> bytes:
    """The first bytes that are neither white space nor a byte order mark: enough to tell events
    from JSON, whatever the content type says."""
    data = b""
    while not data.startswith((*_EVENT_START, b"{")) and len(data) < _LONGEST_START:
        if (chunk := await call.chunk()) is None:
            break
        call.wait(first_s)
        data = (data + chunk).removeprefix(codecs.BOM_UTF8).lstrip()
    return data


def _last_pieces(answer: AnswerParser, reader: SseReader) -> Iterator[Piece]:
    """The pieces of an incomplete last line."""
    with suppress(ModelError):
        yield from answer.feed(reader.rest())


class EndpointEmbedder:
    """An embedding model on a server."""

    def __init__(self, server: ModelServer, model: str) -> None:
        self._server = server
        self.name = model

    async def embed(
        self, texts: Sequence[Embeddable], model: str = "", dimensions: int | None = None
    ) -> Embedded:
        """Make one attempt."""
        name = model or self.name
        inputs: list[Json] = [each if isinstance(each, str) else [*each] for each in texts]
        body: dict[str, Json] = {"model": name, "input": inputs, "encoding_format": "float"}
        if dimensions is not None:
            body["dimensions"] = dimensions
        async with self._server.post("/embeddings", body) as call:
            data = await call.body(_MAX_VECTORS_BYTES)
        read = replies.vectors(data, len(texts), self._server.label)
        usage = replies.usage(read.usage)
        tokens = usage.total_tokens if usage else 0
        used = read.model if isinstance(read.model, str) and read.model else name
        return Embedded([each.embedding for each in read.data], tokens, used)
