"""The source's six tasks: what each takes, and a payload that works (J-10, J-50).

For `GET /v1/tasks` and `jobwire schema`, which must know them also while no worker is there. A
live worker's own word about its tasks goes before this. Nothing is checked against these types.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from jobwire.job.messages import TaskCard


class _Common(Struct, kw_only=True, omit_defaults=True):
    """What all of them understand."""

    model: str | None = None
    temperature: Annotated[float, Meta(ge=0)] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    timeout_s: Annotated[float, Meta(gt=0)] | None = None


class Message(Struct, omit_defaults=True):
    role: Literal["system", "user", "assistant"]
    content: str


class Chat(_Common, kw_only=True, omit_defaults=True):
    """Answer: either `messages`, or `prompt` and perhaps `system`."""

    messages: list[Message] | None = None
    prompt: str | None = None
    system: str | None = None


class Plan(_Common, kw_only=True, omit_defaults=True):
    """Break a goal into steps."""

    goal: str
    max_steps: Annotated[int, Meta(ge=2, le=10)] = 5
    context: str | None = None


class WriteCode(_Common, kw_only=True, omit_defaults=True):
    """Write code; nothing is run."""

    prompt: str
    language: str = "python"
    context: str | None = None


class UseTool(_Common, kw_only=True, omit_defaults=True):
    """Choose a registered tool, and run it."""

    prompt: str
    tools: list[str] | None = None
    run: bool = True


class Document(Struct, omit_defaults=True):
    id: str
    text: str


class Rag(_Common, kw_only=True, omit_defaults=True):
    """Answer from documents: either `documents`, or the name of an `index`."""

    question: str
    documents: list[str | Document] | None = None
    index: str | None = None
    top_k: Annotated[int, Meta(ge=1)] = 3


class Embed(_Common, kw_only=True, omit_defaults=True):
    """Turn texts into vectors."""

    input: str | Annotated[list[str], Meta(min_length=1, max_length=64)]
    encoding: Literal["float", "base64"] = "float"


_EXAMPLES: Final[tuple[Struct, ...]] = (
    Chat(prompt="Say hello in one sentence."),
    Plan(goal="Plant a small herb garden"),
    WriteCode(prompt="A function that reverses a list"),
    UseTool(prompt="What time is it?"),
    Rag(
        question="How tall is the tower?",
        documents=["The tower was built in 1889.", "The tower is 330 metres tall."],
    ),
    Embed(input=["a first text", "a second text"]),
)


def source_tasks(names: tuple[str, ...]) -> dict[str, TaskCard]:
    """A card for each of the source's tasks; `names` are those of the contract, in its order."""
    return {
        name: TaskCard(
            name,
            msgspec.json.encode(msgspec.json.schema(type(example))).decode(),
            msgspec.json.encode(example).decode(),
        )
        for name, example in zip(names, _EXAMPLES, strict=True)
    }
