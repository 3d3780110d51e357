"""The JSON that OpenAI-compatible servers send, as far as it is read; other members are ignored.

Members that servers fill in different ways are `object`; `replies.py` reads each form.
"""

import msgspec


class ErrorBody(msgspec.Struct):
    """The `error` member when it is an object."""

    message: object = None
    type: object = None
    code: object = None
    status: object = None
    detail: object = None


class ToolCallFunction(msgspec.Struct):
    name: str | None = None
    arguments: object = None
    """JSON as text, in pieces; some servers send an object."""


class ToolCallDelta(msgspec.Struct):
    """A piece of a call of one of the caller's functions."""

    index: int | None = None
    id: str | None = None
    function: ToolCallFunction | None = None


class Delta(msgspec.Struct):
    content: object = None
    """Text, or a list of parts."""
    refusal: str | None = None
    reasoning_content: object = None
    reasoning: object = None
    tool_calls: list[ToolCallDelta] | None = None


class ChatChoice(msgspec.Struct):
    delta: Delta | None = None
    message: Delta | None = None
    """In place of `delta`: in a complete answer, and in streams of some servers."""
    finish_reason: str | None = None
    index: int | None = 0


class Progress(msgspec.Struct):
    """llama.cpp's progress in processing the prompt."""

    total: int
    processed: int


class Chunk(msgspec.Struct):
    """One event of a streamed answer, or a complete answer."""

    choices: list[ChatChoice] | None = None
    usage: object = None
    model: object = None
    prompt_progress: Progress | None = None
    timings: object = None
    """llama.cpp's counts, with every chunk if they are requested."""
    error: object = None


class VectorBody(msgspec.Struct):
    embedding: list[float]
    index: int = 0


class VectorsBody(msgspec.Struct):
    """The response to an embeddings request."""

    data: list[VectorBody]
    usage: object = None
    model: object = None


class ErrorReply(msgspec.Struct):
    """An error response: most servers send `error`, some its members, some `detail`."""

    error: object = None
    message: object = None
    type: object = None
    code: object = None
    detail: object = None
