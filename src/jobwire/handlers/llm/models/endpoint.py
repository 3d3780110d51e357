"""A model behind an OpenAI-compatible server. One attempt per call.

Made by `factory.py` for configured servers and by `local.py` for the server that it starts.
"""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, suppress
from typing import Final

from jobwire.handlers.llm.models import (
    ChatRequest,
    Embedded,
    End,
    Piece,
    Reading,
    Text,
    Usage,
    replies,
    requests,
)
from jobwire.handlers.llm.models.errors import (
    NOT_NAMED,
    ModelError,
    ModelRefused,
    NoModel,
    RetryLimit,
)
from jobwire.handlers.llm.models.events import SseReader
from jobwire.handlers.llm.models.schemas import Chunk
from jobwire.handlers.llm.models.server import ModelServer
from jobwire.job.messages import Json

_USAGE_TIMEOUT_S: Final = 5.0
"""How long to wait for the usage after the finish reason."""
_MAX_ANSWER_BYTES: Final = 1 << 20
_MAX_VECTORS_BYTES: Final = 64 << 20
_DONE: Final = b"[DONE]"


class EndpointChat:
    """A chat model on a server."""

    constrained = False

    def __init__(self, server: ModelServer, model: str, *, is_local: bool = False) -> None:
        self._server = server
        self._model = model
        self._is_local = is_local
        self._wants_progress = is_local

    async def ask(self, request: ChatRequest) -> AsyncGenerator[Piece, None]:
        """Make one attempt; a rejected request is sent once more without extensions."""
        model = request.model or self._model
        if not model:
            raise NoModel(*NOT_NAMED)
        body = requests.chat_body(request, model, is_local=self._is_local)
        if self._wants_progress:
            # Without it the server writes nothing while it reads a long prompt, and detects a
            # disconnect only afterwards.
            body["return_progress"] = True
        try:
            async with aclosing(self._answer(body, model)) as pieces:
                async for piece in pieces:
                    yield piece
            return
        except ModelRefused as refused:
            body = requests.without_extensions(body, refused.wrong)
        async with aclosing(self._answer(body, model)) as pieces:
            async for piece in pieces:
                yield piece

    async def _answer(self, body: dict[str, Json], model: str) -> AsyncGenerator[Piece, None]:
        async with self._server.post("/chat/completions", body) as call:
            self._wants_progress |= call.is_llama
            if call.content_type != "text/event-stream":
                data = await call.body(_MAX_ANSWER_BYTES)
                raise replies.not_a_stream(call.content_type, data, self._server.label)
            reader, answer = SseReader(), _AnswerParser(model)
            while not answer.is_over:
                try:
                    chunk = await call.chunk()
                except ModelError:
                    if answer.finish_reason:  # only the usage is missing
                        break
                    raise
                if chunk is None:
                    with suppress(ModelError):  # an incomplete last line
                        for piece in answer.feed(reader.rest()):
                            yield piece
                    break
                was_finished = bool(answer.finish_reason)
                for piece in answer.feed(reader.feed(chunk)):
                    yield piece
                if answer.finish_reason and not was_finished:
                    call.wait(_USAGE_TIMEOUT_S)
                elif answer.has_begun and not was_finished:
                    call.wait(self._server.idle_s)
            if not answer.finish_reason:
                raise self._server.cut("the stream ended without finish_reason")
            yield answer.end()


class _AnswerParser:
    """Turns the events of one answer into pieces."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._usage: Usage | None = None
        self._refusal = ""
        self._length = 0
        self.has_begun = False
        self.finish_reason = ""
        """Empty until the server has sent it."""
        self.is_over = False

    def feed(self, events: Iterator[bytes]) -> Iterator[Piece]:
        """Yield the pieces of these events."""
        for data in events:
            if data == _DONE:
                self.is_over = True
                return
            yield from self._pieces(replies.chunk(data))

    def _pieces(self, chunk: Chunk) -> Iterator[Piece]:
        self.has_begun = True
        self._model = chunk.model or self._model
        self._usage = replies.usage(chunk.usage) or self._usage
        if (reading := chunk.prompt_progress) is not None:
            yield Reading(reading.processed, reading.total)
        for choice in chunk.choices or ():
            if choice.index != 0:
                continue
            if (delta := choice.delta) is not None:
                self._refusal += delta.refusal or ""
                if delta.content:
                    self._length += len(delta.content)
                    yield Text(delta.content)
            self.finish_reason = choice.finish_reason or self.finish_reason
        if self._length > _MAX_ANSWER_BYTES:
            raise ModelError("backend_bad_response", "the model's answer is longer than 1 MiB")

    def end(self) -> End:
        """The last piece."""
        if self._refusal:
            refusal = replies.quote(self._refusal.encode())
            raise ModelError("content_filtered", f"the model refused to answer: {refusal}")
        if self.finish_reason == "content_filter":
            raise ModelError("content_filtered", "the model's server filtered its answer")
        if self.finish_reason == "error":
            raise ModelError(
                "backend_stream_cut", "the model's server aborted the answer", RetryLimit.ONCE
            )
        return End(self.finish_reason, self._usage, self._model)


class EndpointEmbedder:
    """An embedding model on a server."""

    def __init__(self, server: ModelServer, model: str) -> None:
        self._server = server
        self.name = model

    async def embed(self, texts: Sequence[str], model: str = "") -> Embedded:
        """Make one attempt."""
        name = model or self.name
        body: dict[str, Json] = {"model": name, "input": list(texts), "encoding_format": "float"}
        async with self._server.post("/embeddings", body) as call:
            data = await call.body(_MAX_VECTORS_BYTES)
        read = replies.vectors(data, len(texts))
        usage = replies.usage(read.usage)
        tokens = usage.total_tokens if usage else 0
        return Embedded([each.embedding for each in read.data], tokens, read.model or name)
