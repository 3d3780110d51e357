"""Models behind one small seam: what the tasks may ask of one, whoever serves it.

    endpoint  any OpenAI-compatible server, over HTTP (events, replies: how it answers)
    local     llama.cpp in a process of its own (process, serving: the two sides of that;
              files, gguf: where its weights come from)
    choose    which of them, by the settings; started when first needed

A driver makes one try and says what went wrong (trouble); whether there is another try is not its
decision. The tasks see this file and never a driver.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from jobwire.job.messages import Json


class Message(NamedTuple):
    """One turn of a conversation."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Free:
    """The answer may be any text."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """The answer is one of this grammar's sentences (GBNF). For models of llama.cpp."""

    gbnf: str


@dataclass(frozen=True, slots=True)
class JsonForm:
    """The answer is JSON of this schema; a wish, so check what comes."""

    name: str
    schema: Mapping[str, Json]


Form: TypeAlias = Free | Grammar | JsonForm


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A question to a model; empty and None mean: as the model has it."""

    messages: Sequence[Message]
    max_tokens: int
    model: str = ""
    temperature: float | None = None
    seed: int | None = None
    stop: Sequence[str] = ()
    form: Form = Free()


class Reading(NamedTuple):
    """How much of the question the model has read."""

    done: int
    total: int


class Text(NamedTuple):
    """The next piece of the answer."""

    text: str


class Usage(NamedTuple):
    """What it took, in tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class End(NamedTuple):
    """The answer is complete. Always the last, and never missing: a cut answer is a Trouble."""

    finish_reason: str
    usage: Usage | None
    model: str


Piece: TypeAlias = Reading | Text | End


class Chat(Protocol):
    """A model that answers questions."""

    led: bool
    """So small that it must be led: its answers are limited to what we can vouch for."""

    def ask(self, ask: ChatRequest) -> AsyncGenerator[Piece, None]:
        """One try. Closing it early stops the model at once; trouble is raised as Trouble."""
        ...


class Embedded(NamedTuple):
    """Vectors in the order of the texts."""

    vectors: Sequence[Sequence[float]]
    tokens: int
    model: str


class Embedder(Protocol):
    """A model that turns texts into vectors."""

    name: str

    async def embed(self, texts: Sequence[str], model: str = "") -> Embedded:
        """One try; trouble is raised as Trouble."""
        ...
