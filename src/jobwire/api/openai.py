"""The operations for clients of OpenAI's API, in its form: requests, answers and errors.

A request may have members that are not declared here: those that the task has are passed on, the
others are ignored, as OpenAI's servers do (K-2).
"""

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from jobwire.api.jobs import (
    INVALID_PAYLOAD,
    MAX_JOB_BODY,
    PAYLOAD_TOO_LARGE,
    QUEUE_FULL,
    UNKNOWN_TASK,
)
from jobwire.api.operation import Operation
from jobwire.api.problems import UNAVAILABLE, ProblemKind

OWN_MODEL: Final = "default"
"""The model that the workers are configured for."""

MAX_EMBEDDINGS_BODY: Final = 8 << 20
MAX_INPUTS: Final = 2_048

# ── requests ─────────────────────────────────────────────────────────────────────────────────────


class StreamOptions(Struct):
    include_usage: bool | None = False


class ChatCompletionRequest(Struct):
    """The members of a request that are read here; the task validates the others."""

    messages: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    model: str | None = OWN_MODEL
    stream: bool | None = False
    stream_options: StreamOptions | None = None


class EmbeddingsRequest(Struct):
    """The members of a request for embeddings."""

    input: str | Annotated[list[Any], Meta(min_length=1, max_length=8_192)]
    """A text, its tokens, or a list of up to 2,048 texts or lists of tokens."""
    model: str | None = OWN_MODEL
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: int | None = None


# ── answers ──────────────────────────────────────────────────────────────────────────────────────


class ErrorDetail(Struct):
    message: str
    type: str
    code: str | None = None
    param: str | None = None


class ErrorAnswer(Struct):
    """An error in OpenAI's form."""

    error: ErrorDetail


class TokenUsage(Struct):
    """Zero if the model's server does not count."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int | UnsetType = UNSET


class CompletionMessage(Struct):
    content: str | None
    role: str = "assistant"
    refusal: str | None = None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[Any] | UnsetType = UNSET


class CompletionChoice(Struct):
    message: CompletionMessage
    finish_reason: str
    index: int = 0
    logprobs: None = None


class ChatCompletion(Struct):
    """A complete answer."""

    id: str
    choices: list[CompletionChoice]
    model: str
    created: int
    usage: TokenUsage
    object: str = "chat.completion"


class ChunkDelta(Struct, omit_defaults=True):
    """What a chunk adds to the message; the first one has the role."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[Any] | UnsetType = UNSET


class ChunkChoice(Struct):
    delta: ChunkDelta
    finish_reason: str | None = None
    index: int = 0
    logprobs: None = None


class ChatCompletionChunk(Struct):
    """One event of a streamed answer. With `include_usage` the last one has no choices and the
    usage."""

    id: str
    choices: list[ChunkChoice]
    model: str
    created: int
    usage: TokenUsage | UnsetType = UNSET
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


# ── operations ───────────────────────────────────────────────────────────────────────────────────

NO_WORKER: Final = ProblemKind(
    "no_worker", 503, "no worker is running that has this task; start one with `jobwire worker`"
)
_ERRORS: Final = {
    400: "the request is not valid, or the task refuses it",
    404: "there is no such model",
    429: "the model's server limits the rate",
    502: "the job failed",
    504: "the job took too long",
}
_PROBLEMS: Final = (
    UNKNOWN_TASK,
    INVALID_PAYLOAD,
    PAYLOAD_TOO_LARGE,
    QUEUE_FULL,
    UNAVAILABLE,
    NO_WORKER,
)

CHAT_COMPLETIONS: Final = Operation(
    "POST",
    "/v1/chat/completions",
    "submit",
    "Answer a conversation, for clients of OpenAI's API",
    tag="openai",
    description="The task `chat` behind OpenAI's API. `stream: true` sends chunks. The job's id is "
    "in `x-job-id`; a client that disconnects cancels the job. Errors have OpenAI's form.",
    body=ChatCompletionRequest,
    body_example={"model": "default", "messages": [{"role": "user", "content": "Hello"}]},
    max_body=MAX_JOB_BODY,
    too_deep=INVALID_PAYLOAD,
    answer=ChatCompletion,
    problems=_PROBLEMS,
    error=ErrorAnswer,
    errors=_ERRORS,
)
EMBEDDINGS: Final = Operation(
    "POST",
    "/v1/embeddings",
    "submit",
    "Compute vectors of texts, for clients of OpenAI's API",
    tag="openai",
    body=EmbeddingsRequest,
    body_example={"model": "default", "input": ["a red apple"]},
    max_body=MAX_EMBEDDINGS_BODY,
    too_deep=INVALID_PAYLOAD,
    answer=EmbeddingList,
    problems=_PROBLEMS,
    error=ErrorAnswer,
    errors=_ERRORS,
)
MODELS: Final = Operation(
    "GET",
    "/v1/models",
    "read",
    "The model names for clients of OpenAI's API",
    tag="openai",
    answer=ModelList,
    error=ErrorAnswer,
)
