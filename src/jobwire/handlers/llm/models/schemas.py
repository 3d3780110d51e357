"""The JSON that OpenAI-compatible servers send, as far as it is read; other members are ignored."""

import msgspec


class ErrorBody(msgspec.Struct):
    """The `error` member when it is an object."""

    message: str | None = None
    type: str | None = None
    code: str | int | None = None


class Delta(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None


class ChatChoice(msgspec.Struct):
    delta: Delta | None = None
    finish_reason: str | None = None
    index: int = 0


class Progress(msgspec.Struct):
    """llama.cpp's progress in processing the prompt."""

    total: int
    processed: int


class UsageBody(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None


class Chunk(msgspec.Struct):
    """One event of a streamed answer."""

    choices: list[ChatChoice] | None = None
    usage: UsageBody | None = None
    model: str | None = None
    prompt_progress: Progress | None = None
    error: ErrorBody | str | None = None


class VectorBody(msgspec.Struct):
    embedding: list[float]
    index: int = 0


class VectorsBody(msgspec.Struct):
    """The response to an embeddings request."""

    data: list[VectorBody]
    usage: UsageBody | None = None
    model: str | None = None


class ErrorReply(msgspec.Struct):
    """An error response: most servers send `error`, some its members, some `detail`."""

    error: ErrorBody | str | None = None
    message: str | None = None
    type: str | None = None
    code: str | int | None = None
    detail: object = None
