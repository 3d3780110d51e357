"""Bodies of the OpenAI-compatible routes, and their translation to payloads of `chat` and `embed`.

Pure. Members that the tasks do not have are passed on in `extra`, which the worker allows by a list
of its own.
"""

import time
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, cast

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

OWN_MODEL: Final = "default"
"""The model that the workers are configured for."""
_PASSED: Final = (
    "messages",
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "response_format",
    "tools",
    "tool_choice",
)
_IGNORED: Final = frozenset({"user", "metadata", "store", "safety_identifier", "prompt_cache_key"})
_OWN: Final = frozenset(
    {"model", "max_tokens", "max_completion_tokens", "stop", "stream", "stream_options", "n"}
)


class StreamOptions(Struct):
    include_usage: bool = False


class ChatCompletionRequest(Struct):
    """The members of a request that are read here; the task validates the others."""

    messages: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    model: str = OWN_MODEL
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: int | None = 1

    def __post_init__(self) -> None:
        if self.n not in (None, 1):
            raise ValueError("`n` must be 1")


class EmbeddingsRequest(Struct):
    """The members of a request for embeddings."""

    input: str | list[str]
    model: str = OWN_MODEL
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: int | None = None


class ErrorDetail(Struct):
    message: str
    type: str
    code: str | None = None
    param: str | None = None


class ErrorAnswer(Struct):
    """An error in OpenAI's form."""

    error: ErrorDetail


class TokenUsage(Struct):
    prompt_tokens: int
    total_tokens: int
    completion_tokens: int | UnsetType = UNSET


class ChatMessage(Struct, omit_defaults=True):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[Any] = []


class CompletionChoice(Struct):
    message: ChatMessage
    finish_reason: str
    index: int = 0


class ChatCompletion(Struct):
    """A complete answer."""

    id: str
    choices: list[CompletionChoice]
    model: str
    created: int
    usage: TokenUsage | None = None
    object: str = "chat.completion"


class ChunkChoice(Struct):
    delta: ChatMessage
    finish_reason: str | None = None
    index: int = 0


class ChatCompletionChunk(Struct, omit_defaults=False):
    """One event of a streamed answer."""

    id: str
    choices: list[ChunkChoice]
    model: str
    created: int
    usage: TokenUsage | None = None
    object: str = "chat.completion.chunk"


class EmbeddingItem(Struct):
    embedding: list[float] | str
    index: int
    object: str = "embedding"


class EmbeddingList(Struct):
    data: list[EmbeddingItem]
    model: str
    usage: TokenUsage
    object: str = "list"


class ModelItem(Struct):
    id: str
    created: int = 0
    owned_by: str = "jobwire"
    object: str = "model"


class ModelList(Struct):
    data: list[ModelItem]
    object: str = "list"


def chat_payload(members: Mapping[str, Any]) -> dict[str, Any]:
    """The payload of `chat` for a request; members with null are left out."""
    given = {name: value for name, value in members.items() if value is not None}
    payload = {name: given[name] for name in _PASSED if name in given}
    payload |= _model(given)
    if (limit := given.get("max_completion_tokens", given.get("max_tokens"))) is not None:
        payload["max_tokens"] = limit
    else:
        payload["max_tokens"] = 4096
    if "stop" in given:
        payload["stop"] = given["stop"]
    known = _OWN | _IGNORED | frozenset(_PASSED)
    if extra := {name: value for name, value in given.items() if name not in known}:
        payload["extra"] = extra
    return payload


def embed_payload(body: EmbeddingsRequest) -> dict[str, Any]:
    """The payload of `embed` for a request."""
    payload: dict[str, Any] = {"input": body.input, "encoding": body.encoding_format or "float"}
    if body.dimensions is not None:
        payload["dimensions"] = body.dimensions
    return payload | _model({"model": body.model})


def _model(given: Mapping[str, Any]) -> dict[str, Any]:
    model = given.get("model", OWN_MODEL)
    return {} if model == OWN_MODEL else {"model": model}


def completion(job_id: str, result: Mapping[str, Any]) -> ChatCompletion:
    """A complete answer from the result of a job."""
    calls = cast("list[Any]", result.get("tool_calls") or [])
    text = str(result.get("text", ""))
    message = ChatMessage("assistant", text if text or not calls else None, tool_calls=calls)
    choice = CompletionChoice(message, str(result.get("finish_reason") or "stop"))
    model = str(result.get("model", ""))
    return ChatCompletion(
        completion_id(job_id), [choice], model, int(time.time()), usage_of(result)
    )


def embeddings(result: Mapping[str, Any]) -> EmbeddingList:
    """Vectors from the result of a job."""
    items = [EmbeddingItem(each, at) for at, each in enumerate(result["vectors"])]
    usage = msgspec.convert(result["usage"], TokenUsage)
    return EmbeddingList(items, str(result.get("model", "")), usage)


def usage_of(result: Mapping[str, Any]) -> TokenUsage | None:
    """The token counts of a result."""
    usage = result.get("usage")
    return msgspec.convert(usage, TokenUsage) if usage else None


def completion_id(job_id: str) -> str:
    """The id of an answer."""
    return f"chatcmpl-{job_id}"
