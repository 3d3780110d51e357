"""Payloads and results of the six tasks, as callers see them.

Payloads are validated before a task runs: an unknown member or a wrong value is rejected with its
path. The list of tasks shows their schemas.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from jobwire.handlers.llm.models import Usage
from jobwire.net import names_public_host

Words = Annotated[str, Meta(min_length=1, max_length=200_000)]
Stop = Annotated[str, Meta(min_length=1, max_length=200)]
Role = Literal["system", "developer", "user", "assistant", "tool"]
Penalty = Annotated[float, Meta(ge=-2, le=2)]


class Common(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Members of every payload."""

    model: Annotated[str, Meta(max_length=200, description="another model than the usual")] = ""
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=1 << 20, description="the longest answer")] | None = (
        None
    )
    """Null: as the model's server has it; 256 with the local model."""
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    seed: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] | None = None
    stop: Stop | Annotated[list[Stop], Meta(max_length=64)] = []
    timeout_s: (
        Annotated[float, Meta(gt=0, le=3600, description="for the whole answer, with retries")]
        | None
    ) = None
    extra: dict[str, Any] = {}
    """Further members for the model's server; those that `llm.extra_members` lists are sent."""


class TextPart(Struct, frozen=True, tag_field="type", tag="text"):
    text: Words


class ImageUrl(Struct, frozen=True, forbid_unknown_fields=True):
    url: Annotated[str, Meta(min_length=1, max_length=8_000_000)]
    """An address, or a `data:` URL."""
    detail: Literal["auto", "low", "high"] = "auto"

    def __post_init__(self) -> None:
        # The model's server fetches it, from inside the network that it is in.
        if not self.url.startswith("data:") and not names_public_host(self.url):
            raise ValueError("`url` must be a `data:` URL, or http(s) to a public host")


class ImagePart(Struct, frozen=True, tag_field="type", tag="image_url"):
    image_url: ImageUrl


class ChatTurn(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One turn of a conversation, in OpenAI's form."""

    role: Role
    content: Annotated[str, Meta(max_length=200_000)] | list[TextPart | ImagePart] | None = None
    tool_calls: Annotated[list[dict[str, Any]], Meta(max_length=128)] = []
    """Of an assistant's turn: calls of the caller's functions."""
    tool_call_id: str = ""
    """Of a tool's turn: the call that it answers."""
    name: str = ""

    def __post_init__(self) -> None:
        if self.content is None and not self.tool_calls:
            raise ValueError("a turn needs `content` or `tool_calls`")
        if self.tool_calls and self.role != "assistant":
            raise ValueError("`tool_calls` belong to the role `assistant`")
        if (self.role == "tool") != bool(self.tool_call_id):
            raise ValueError("`tool_call_id` belongs to the role `tool`, which needs it")


class ChatPayload(Common, frozen=True, kw_only=True):
    """A conversation or a prompt."""

    messages: Annotated[list[ChatTurn], Meta(max_length=1000)] = []
    prompt: Words | None = None
    system: Words | None = None
    response_format: dict[str, Any] | None = None
    """`{"type": "json_schema", "json_schema": {"name": …, "schema": …}}`; the answer is
    validated."""
    tools: Annotated[list[dict[str, Any]], Meta(max_length=128)] = []
    """Functions of the caller that the model may call; the calls are in the result."""
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None

    def __post_init__(self) -> None:
        if bool(self.messages) == (self.prompt is not None):
            raise ValueError("give either `prompt` or `messages`")
        if self.messages and self.system is not None:
            raise ValueError("`system` goes with `prompt`; among `messages` it is a role")


class ChatResult(Struct, frozen=True, omit_defaults=True):
    text: str
    finish_reason: str
    usage: Usage | None
    model: str
    tool_calls: list[Any] = []
    """Calls of the caller's functions, in OpenAI's form."""
    reasoning: str = ""
    """What a reasoning model wrote before its answer."""


class PlanPayload(Common, frozen=True, kw_only=True):
    """A goal to plan for."""

    goal: Words
    max_steps: Annotated[int, Meta(ge=2, le=10)] = 5
    context: Words | None = None


class PlanStep(Struct, frozen=True):
    n: int
    title: str


class PlanResult(Struct, frozen=True):
    goal: str
    steps: list[PlanStep]
    dropped_duplicates: int
    usage: Usage | None = None
    model: str = ""


class CodePayload(Common, frozen=True, kw_only=True):
    """Code to write. It is never run."""

    prompt: Words
    language: Annotated[str, Meta(pattern=r"^[A-Za-z0-9+#._ -]{1,32}$")] = "python"
    context: Words | None = None


class CodeResult(Struct, frozen=True):
    code: str
    language: str
    text: str
    """The whole answer of the model."""
    syntax_ok: bool | None
    """Whether it parses as Python; null for other languages. It may still be wrong."""
    usage: Usage | None = None
    model: str = ""


ChosenBy = Literal["request", "model", "caller"]
ToolName = Annotated[str, Meta(min_length=1, max_length=100)]


class ToolPayload(Common, frozen=True, kw_only=True):
    """A request that one of the registered functions may fulfill."""

    prompt: Annotated[str, Meta(min_length=1, max_length=4000)]
    tools: Annotated[list[ToolName], Meta(min_length=1, max_length=100)] | None = None
    arguments: dict[str, Any] | None = None
    """The arguments of the one tool in `tools`: nothing is left to the model."""
    run: bool | None = None
    """Whether the function is run; null: only if a model server or the caller chose it."""
    confirmed: bool = False
    """Run a function that asks for confirmation."""

    def __post_init__(self) -> None:
        if self.arguments is not None and len(self.tools or ()) != 1:
            raise ValueError("`arguments` needs exactly one name in `tools`")


class ToolResult(Struct, frozen=True):
    tool: str
    arguments: dict[str, object]
    chosen_by: ChosenBy
    """`request`: the request is the call, word for word."""
    score: float | None
    """Always null: no tool is chosen by similarity."""
    ran: bool
    output: object
    usage: Usage | None = None
    model: str = ""
    confirm: bool = False
    """The function asks for confirmation: nothing was run."""


class Document(Struct, frozen=True, forbid_unknown_fields=True):
    text: Words
    id: Annotated[str, Meta(min_length=1, max_length=200)] | None = None


class RagPayload(Common, frozen=True, kw_only=True):
    """A question about documents: in the payload, or in a named index."""

    question: Annotated[str, Meta(min_length=1, max_length=2000)]
    documents: Annotated[list[Words | Document], Meta(max_length=1000)] | None = None
    index: Annotated[str, Meta(pattern="^[a-z0-9_-]{1,64}$")] | None = None
    top_k: Annotated[int, Meta(ge=1, le=10)] = 3

    def __post_init__(self) -> None:
        if self.documents is not None and self.index is not None:
            raise ValueError("give either `documents` or `index`")


class Citation(Struct, frozen=True):
    id: str
    quote: str
    score: float


class RagResult(Struct, frozen=True):
    answer: str
    citations: list[Citation]
    found: bool
    usage: Usage | None = None
    model: str = ""


class EmbedPayload(Common, frozen=True, kw_only=True):
    """Texts to compute vectors of."""

    input: Words | list[Words | list[int]]
    """Texts, or token numbers for a server whose model has them."""
    encoding: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Meta(ge=1, le=65_536)] | None = None


class EmbedResult(Struct, frozen=True):
    model: str
    dim: int
    vectors: list[list[float]] | list[str]
    usage: "EmbedUsage"


class EmbedUsage(Struct, frozen=True):
    prompt_tokens: int
    total_tokens: int
