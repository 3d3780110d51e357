"""Parses one answer of a chat model: chunks of a stream, or a complete reply, into pieces."""

from collections.abc import Iterable, Iterator
from secrets import token_hex
from typing import Final

import msgspec

from jobwire.handlers.llm.models import (
    End,
    Piece,
    Reading,
    Reasoning,
    SoFar,
    Usage,
    replies,
)
from jobwire.handlers.llm.models.errors import ModelError, RetryLimit
from jobwire.handlers.llm.models.events import DONE
from jobwire.handlers.llm.models.reasoning import ReasoningFilter
from jobwire.handlers.llm.models.replies import ServerLabel
from jobwire.handlers.llm.models.schemas import Chunk, Delta, ToolCallDelta
from jobwire.job.messages import Json
from jobwire.json_depth import bounded

_FINISH_REASONS: Final = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "tool_call": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
}
"""OpenAI's name for what servers send; any other is `stop`: `eos_token`, `stop_sequence`, …"""
MAX_ANSWER_BYTES: Final = 1 << 20
_MAX_TOOL_CALLS: Final = 128
_decode_raw: Final = bounded(msgspec.json.Decoder(msgspec.Raw).decode)


class AnswerParser:
    """Turns the events of one answer into pieces."""

    def __init__(self, model: str, server: ServerLabel, *, holds_text: bool = False) -> None:
        """`holds_text`: the text may be reasoning until a closing tag is seen."""
        self._model = model
        self._server = server
        self._usage: Usage | None = None
        self._so_far = SoFar(None, "")
        self._refusal = ""
        self._length = 0
        self._filter = ReasoningFilter(holds_text=holds_text)
        self._calls: list[tuple[int | None, dict[str, str]]] = []
        """The calls with their indexes, in order."""
        self.has_begun = False
        """Whether the model writes, not only the server."""
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
        if isinstance(chunk.model, str):
            self._model = chunk.model or self._model
        before = self._so_far
        self._usage = replies.usage(chunk.usage) or self._usage
        usage = self._usage or replies.usage_so_far(chunk.timings) or before.usage
        self._so_far = SoFar(usage, self._model)
        if self._so_far != before:
            yield self._so_far
        if (reading := chunk.prompt_progress) is not None:
            self.has_begun = True
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
            self.has_begun = True
            yield from self._filter.separated()
            yield Reasoning(reasoning)
        if text := replies.text_of(delta.content):
            self._length += len(text)
            self.has_begun = True
            yield from self._filter.feed(text)
        for call in delta.tool_calls or ():
            self.has_begun = True
            self._add_call(call)

    def _add_call(self, call: ToolCallDelta) -> None:
        entry = self._entry(call)
        entry["id"] = entry["id"] or call.id or ""
        if (function := call.function) is not None:
            entry["name"] += function.name or ""
            arguments = function.arguments
            if arguments is not None and not isinstance(arguments, str):
                arguments = msgspec.json.encode(arguments).decode()
            entry["arguments"] += arguments or ""
            self._length += len(arguments or "")

    def _entry(self, call: ToolCallDelta) -> dict[str, str]:
        """The call that a piece belongs to. Servers leave out the index, or send the same for all
        calls: another id, or a name after complete arguments, begins a call too."""
        same = [each for each in self._calls if call.index is None or each[0] == call.index]
        if same:
            entry = same[-1][1]
            is_other = bool(call.id and entry["id"] and call.id != entry["id"])
            names = call.function is not None and call.function.name
            if not is_other and not (names and not call.id and _is_complete(entry["arguments"])):
                return entry
        if len(self._calls) >= _MAX_TOOL_CALLS:
            raise ModelError("backend_bad_response", "the model calls too many functions at once")
        entry = {"id": "", "name": "", "arguments": ""}
        self._calls.append((call.index, entry))
        return entry

    @property
    def has_lone_close(self) -> bool:
        """Whether reasoning ended that had not begun in the text."""
        return self._filter.has_lone_close

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
        if self.finish_reason in ("error", "abort"):
            raise ModelError(
                "backend_stream_cut", "the model's server aborted the answer", RetryLimit.ONCE
            )
        calls = self._tool_calls()
        reason = _FINISH_REASONS.get(self.finish_reason.lower(), "stop")
        if calls and reason == "stop":
            reason = "tool_calls"
        return End(reason, self._usage, self._model, calls)

    def _tool_calls(self) -> list[Json]:
        return [
            {
                "id": call["id"] or f"call_{token_hex(12)}",
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"]},
            }
            for _, call in self._calls
        ]


def _is_complete(arguments: str) -> bool:
    """Whether the arguments are whole: a JSON object."""
    if not arguments.rstrip().endswith("}"):
        return False
    try:
        _decode_raw(arguments)
    except (msgspec.DecodeError, UnicodeError):
        return False
    return True
