"""What the six tasks are asked, and what they answer: the only shapes that callers see.

Payloads are checked before a task runs: an unknown member or a wrong value is refused with its
place. Their schema and examples are what the list of tasks shows.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

Words = Annotated[str, Meta(min_length=1, max_length=200_000)]
Stop = Annotated[str, Meta(min_length=1, max_length=200)]
Role = Literal["system", "user", "assistant"]


class Common(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every task may be told."""

    model: Annotated[str, Meta(max_length=200, description="another model than the usual")] = ""
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=2048, description="the longest answer")] = 256
    seed: Annotated[int, Meta(ge=0, le=(1 << 32) - 1)] | None = None
    stop: Stop | Annotated[list[Stop], Meta(max_length=4)] = []
    timeout_s: (
        Annotated[float, Meta(gt=0, le=3600, description="for the whole answer, tries and all")]
        | None
    ) = None


class ChatTurn(Struct, frozen=True, forbid_unknown_fields=True):
    """One turn of a conversation."""

    role: Role
    content: Words


class ChatPayload(Common, frozen=True, kw_only=True):
    """A conversation, or just a prompt."""

    messages: Annotated[list[ChatTurn], Meta(max_length=1000)] = []
    prompt: Words | None = None
    system: Words | None = None

    def __post_init__(self) -> None:
        if bool(self.messages) == (self.prompt is not None):
            raise ValueError("give either `prompt` or `messages`")
        if self.messages and self.system is not None:
            raise ValueError("`system` goes with `prompt`; among `messages` it is a role")


class ChatResult(Struct, frozen=True):
    text: str
    finish_reason: str
    usage: "UsageResult | None"
    model: str


class UsageResult(Struct, frozen=True):
    """What it took, in tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class PlanPayload(Common, frozen=True, kw_only=True):
    """A goal to be taken apart."""

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


class CodePayload(Common, frozen=True, kw_only=True):
    """Code to be written. It is never run."""

    prompt: Words
    language: Annotated[str, Meta(pattern=r"^[A-Za-z0-9+#._ -]{1,32}$")] = "python"
    context: Words | None = None


class CodeResult(Struct, frozen=True):
    code: str
    language: str
    text: str
    """All that the model said."""
    syntax_ok: bool | None
    """Whether it can be read as Python; null for other languages. No promise that it works."""


ToolName = Annotated[str, Meta(min_length=1, max_length=100)]


class ToolPayload(Common, frozen=True, kw_only=True):
    """A wish that one of the registered functions may fulfil."""

    prompt: Annotated[str, Meta(min_length=1, max_length=4000)]
    tools: Annotated[list[ToolName], Meta(min_length=1, max_length=100)] | None = None
    run: bool = True


class ToolResult(Struct, frozen=True):
    tool: str
    arguments: dict[str, object]
    chosen_by: Literal["similarity", "model", "caller"]
    score: float | None
    ran: bool
    output: object


class Document(Struct, frozen=True, forbid_unknown_fields=True):
    text: Words
    id: Annotated[str, Meta(min_length=1, max_length=200)] | None = None


class RagPayload(Common, frozen=True, kw_only=True):
    """A question to documents: given here, or kept under a name."""

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


class EmbedPayload(Common, frozen=True, kw_only=True):
    """Texts to be turned into vectors."""

    input: Words | list[Words]
    encoding: Literal["float", "base64"] = "float"


class EmbedResult(Struct, frozen=True):
    model: str
    dim: int
    vectors: list[list[float]] | list[str]
    usage: "EmbedUsage"


class EmbedUsage(Struct, frozen=True):
    prompt_tokens: int
    total_tokens: int
