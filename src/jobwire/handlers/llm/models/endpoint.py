"""A model behind an OpenAI-compatible server.

Used by the tasks through the seam, and by `local.py` for the server that it starts. One try a call.
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
from jobwire.handlers.llm.models.errors import NOT_NAMED, Again, ModelError, ModelRefused, NoModel
from jobwire.handlers.llm.models.events import EventReader
from jobwire.handlers.llm.models.schemas import Chunk
from jobwire.handlers.llm.models.server import ModelServer
from jobwire.job.messages import Json

_LAST_WORDS_S: Final = 5.0
"""How long to wait for the usage once the answer itself is complete."""
_LONGEST_ANSWER: Final = 1 << 20
_LONGEST_VECTORS: Final = 64 << 20
_DONE: Final = b"[DONE]"


class EndpointChat:
    """A model that answers questions."""

    def __init__(
        self, server: ModelServer, model: str, *, led: bool = False, is_ours: bool = False
    ) -> None:
        self._server = server
        self._model = model
        self._is_ours = is_ours
        self._tells_progress = is_ours
        self.led = led

    async def ask(self, ask: ChatRequest) -> AsyncGenerator[Piece, None]:
        """One try; where the server refuses the way it is written, once more in a plainer way."""
        model = ask.model or self._model
        if not model:
            raise NoModel(*NOT_NAMED)
        body = requests.body(ask, model, is_ours=self._is_ours)
        if self._tells_progress:
            # Without it a long prompt is read in silence, and a cancel is noticed only after it.
            body["return_progress"] = True
        try:
            async with aclosing(self._answer(body, model)) as pieces:
                async for piece in pieces:
                    yield piece
            return
        except ModelRefused as refused:
            body = requests.plainer(body, refused.wrong)
        async with aclosing(self._answer(body, model)) as pieces:
            async for piece in pieces:
                yield piece

    async def _answer(self, body: dict[str, Json], model: str) -> AsyncGenerator[Piece, None]:
        async with self._server.post("/chat/completions", body) as call:
            self._tells_progress |= call.is_llama
            if call.content_type != "text/event-stream":
                data = await call.body(_LONGEST_ANSWER)
                raise replies.not_a_stream(call.content_type, data, self._server.who)
            reader, answer = EventReader(), _Answer(model)
            while not answer.is_over:
                try:
                    chunk = await call.chunk()
                except ModelError:
                    if answer.finish_reason:  # only the usage is missing
                        break
                    raise
                if chunk is None:
                    with suppress(ModelError):  # a line that was cut
                        for piece in answer.hear(reader.rest()):
                            yield piece
                    break
                was_finished = bool(answer.finish_reason)
                for piece in answer.hear(reader.feed(chunk)):
                    yield piece
                if answer.finish_reason and not was_finished:
                    call.wait(_LAST_WORDS_S)
                elif answer.has_begun and not was_finished:
                    call.wait(self._server.idle_s)
            if not answer.finish_reason:
                raise self._server.cut("the answer ended without its end")
            yield answer.end()


class _Answer:
    """What an answer's events have said so far."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._usage: Usage | None = None
        self._refusal = ""
        self._length = 0
        self.has_begun = False
        self.finish_reason = ""
        """Why it ended; empty as long as it has not."""
        self.is_over = False

    def hear(self, events: Iterator[bytes]) -> Iterator[Piece]:
        """Take in events; gives what they bring."""
        for data in events:
            if data == _DONE:
                self.is_over = True
                return
            yield from self._hear(replies.chunk(data))

    def _hear(self, chunk: Chunk) -> Iterator[Piece]:
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
        if self._length > _LONGEST_ANSWER:
            raise ModelError("backend_bad_response", "the model's answer has no end")

    def end(self) -> End:
        """The last piece."""
        if self._refusal:
            said = replies.quote(self._refusal.encode())
            raise ModelError("content_filtered", f"the model will not answer: {said}")
        if self.finish_reason == "content_filter":
            raise ModelError("content_filtered", "the model's server filtered its answer")
        if self.finish_reason == "error":
            raise ModelError("backend_stream_cut", "the model's server gave up", Again.ONCE)
        return End(self.finish_reason, self._usage, self._model)


class EndpointEmbedder:
    """A model that turns texts into vectors."""

    def __init__(self, server: ModelServer, model: str) -> None:
        self._server = server
        self.name = model

    async def embed(self, texts: Sequence[str], model: str = "") -> Embedded:
        """One try."""
        name = model or self.name
        body: dict[str, Json] = {"model": name, "input": list(texts), "encoding_format": "float"}
        async with self._server.post("/embeddings", body) as call:
            data = await call.body(_LONGEST_VECTORS)
        read = replies.vectors(data, len(texts))
        used = replies.usage(read.usage)
        tokens = used.total_tokens if used else 0
        return Embedded([each.embedding for each in read.data], tokens, read.model or name)
