"""Parses one answer of a chat model: chunks of a stream, or a complete reply, into pieces. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from jobwire.handlers.llm.models import End, Piece, Reading, Reasoning, Usage, replies
from jobwire.handlers.llm.models.errors import ModelError, RetryLimit
from jobwire.handlers.llm.models.events import DONE
from jobwire.handlers.llm.models.reasoning import ReasoningFilter
from jobwire.handlers.llm.models.replies import ServerLabel
from jobwire.handlers.llm.models.schemas import Chunk, Delta, ToolCallDelta
from jobwire.job.messages import Json

MAX_ANSWER_BYTES: Final = 1 << 20
_MAX_TOOL_CALLS: Final = 128


class AnswerParser:
    """Turns the events of one answer into pieces."""

    def __init__(self, model: str, server: ServerLabel) -> None:
        self._model = model
        self._server = server
        self._usage: Usage | None = None
        self._refusal = ""
        self._length = 0
        self._filter = ReasoningFilter()
        self._calls: dict[int, dict[str, str]] = {}
        self.has_begun = False
        self.finish_reason = ""
        """Empty until the server has sent it."""
        self.is_over = False

    def feed(self, events: Iterable[bytes]) -> Iterator[Piece]:
        """Yield the pieces of these events."""
        for data in events:
            if data == DONE:
                self.is_over = True
                return
            yield from self.pieces(replies.chunk(data, self._server))

    def pieces(self, chunk: Chunk) -> Iterator[Piece]:
        """Yield the pieces of one chunk."""
        self.has_begun = True
        if isinstance(chunk.model, str):
            self._model = chunk.model or self._model
        self._usage = replies.usage(chunk.usage) or self._usage
        if (reading := chunk.prompt_progress) is not None:
            yield Reading(reading.processed, reading.total)
        for choice in chunk.choices or ():
            if choice.index:
                continue
            if (delta := choice.delta or choice.message) is not None:
                yield from self._delta(delta)
            self.finish_reason = choice.finish_reason or self.finish_reason
        if self._length > MAX_ANSWER_BYTES:
            raise ModelError("backend_bad_response", "the model's answer is longer than 1 MiB")

    def _delta(self, delta: Delta) -> Iterator[Piece]:
        self._refusal += delta.refusal or ""
        reasoning = replies.text_of(delta.reasoning_content) or replies.text_of(delta.reasoning)
        if reasoning:
            self._length += len(reasoning)
            yield Reasoning(reasoning)
        if text := replies.text_of(delta.content):
            self._length += len(text)
            yield from self._filter.feed(text)
        for call in delta.tool_calls or ():
            self._add_call(call)

    def _add_call(self, call: ToolCallDelta) -> None:
        if call.index not in self._calls and len(self._calls) >= _MAX_TOOL_CALLS:
            raise ModelError("backend_bad_response", "the model calls too many functions at once")
        entry = self._calls.setdefault(call.index, {"id": "", "name": "", "arguments": ""})
        entry["id"] = call.id or entry["id"]
        if (function := call.function) is not None:
            entry["name"] += function.name or ""
            arguments = function.arguments
            if arguments is not None and not isinstance(arguments, str):
                arguments = msgspec.json.encode(arguments).decode()
            entry["arguments"] += arguments or ""
            self._length += len(arguments or "")

    def rest(self) -> Iterator[Piece]:
        """Yield the text that was held back, before the end."""
        yield from self._filter.rest()

    def end(self) -> End:
        """The last piece."""
        if self._refusal:
            refusal = self._server.quote(self._refusal)
            raise ModelError("content_filtered", f"the model refused to answer: {refusal}")
        if self.finish_reason == "content_filter":
            raise ModelError("content_filtered", "the model's server filtered its answer")
        if self.finish_reason == "error":
            raise ModelError(
                "backend_stream_cut", "the model's server aborted the answer", RetryLimit.ONCE
            )
        return End(self.finish_reason, self._usage, self._model, self._tool_calls())

    def _tool_calls(self) -> list[Json]:
        return [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"]},
            }
            for _, call in sorted(self._calls.items())
        ]
