"""The interface between the tasks and the models: requests, pieces of an answer, protocols.

    endpoint  any OpenAI-compatible server, over HTTP (requests, events, replies: its format)
    local     llama.cpp in a child process (process, server_main: its two sides; files, gguf: its
              weights)
    secrets, reasoning  what is taken out of a server's text: keys, and reasoning of the model
    factory   selects the driver by the settings; starts it on first use

A driver makes one attempt and raises ModelError (errors); retries are the caller's decision. The
tasks import this file and never a driver.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from jobwire.job.messages import Json


class Message(NamedTuple):
    """One turn of a conversation."""

    role: str
    content: Json
    """Text, or a list of parts (text and images), or null beside tool calls."""
    members: Mapping[str, Json] = MappingProxyType({})
    """Further members of the turn: `tool_calls`, `tool_call_id`, `name`."""


@dataclass(frozen=True, slots=True)
class Free:
    """The answer may be any text."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """The answer matches this GBNF grammar. Only llama.cpp supports it."""

    gbnf: str


@dataclass(frozen=True, slots=True)
class JsonForm:
    """The answer is JSON of this schema. Servers may ignore it: validate the answer."""

    name: str
    schema: Mapping[str, Json]
    strict: bool | None = True
    """Whether the server has to enforce it; None: as the server has it."""


Form: TypeAlias = Free | Grammar | JsonForm


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A chat completion request; empty and None mean the server's default."""

    messages: Sequence[Message]
    max_tokens: int | None = None
    model: str = ""
    temperature: float | None = None
    seed: int | None = None
    stop: Sequence[str] = ()
    form: Form = Free()
    options: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """Members of the body that are passed on as they are: `top_p`, `tools`, …"""


class Waiting(NamedTuple):
    """The model is busy; so many requests are served before this one. 0: it is this one's turn."""

    before: int


class Reading(NamedTuple):
    """How many tokens of the prompt the model has processed."""

    done: int
    total: int


class Text(NamedTuple):
    """The next piece of the answer."""

    text: str


class Reasoning(NamedTuple):
    """The next piece of the model's reasoning, which is not part of the answer."""

    text: str


class Retracted(NamedTuple):
    """The text so far was reasoning: the answer begins after this piece."""


class Usage(Struct, frozen=True):
    """Token counts; part of results."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class SoFar(NamedTuple):
    """What is known of an answer that may be stopped before its end."""

    usage: Usage | None
    model: str


class End(NamedTuple):
    """The answer is complete. Always the last piece: a cut answer raises ModelError instead."""

    finish_reason: str
    usage: Usage | None
    model: str
    tool_calls: Sequence[Json] = ()
    """Calls of the caller's functions, in OpenAI's form."""


Piece: TypeAlias = Waiting | Reading | Reasoning | Retracted | Text | SoFar | End


class ChatModel(Protocol):
    """A chat model."""

    constrained: bool
    """Whether the model is so small that answers are limited by grammars to known values."""

    def ask(self, request: ChatRequest) -> AsyncGenerator[Piece, None]:
        """Make one attempt. Closing the generator stops the model at once. Raises ModelError."""
        ...


Embeddable: TypeAlias = str | Sequence[int]
"""A text, or its tokens as numbers of the model's own vocabulary."""


class Embedded(NamedTuple):
    """Vectors in the order of the texts."""

    vectors: Sequence[Sequence[float]]
    tokens: int
    model: str


class Embedder(Protocol):
    """A model that turns texts into vectors."""

    name: str

    async def embed(
        self, texts: Sequence[Embeddable], model: str = "", dimensions: int | None = None
    ) -> Embedded:
        """Make one attempt. Raises ModelError."""
        ...
