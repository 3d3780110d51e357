"""The list of the six tasks: each with its payload, function and a working example.

`register` in this package's `__init__` adds them to an app; the CLI lists them.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from jobwire.handlers.llm.chat import chat
from jobwire.handlers.llm.code import code
from jobwire.handlers.llm.embed import embed
from jobwire.handlers.llm.payloads import (
    ChatPayload,
    CodePayload,
    Common,
    EmbedPayload,
    PlanPayload,
    RagPayload,
    ToolPayload,
)
from jobwire.handlers.llm.plan import plan
from jobwire.handlers.llm.rag import rag
from jobwire.handlers.llm.tool import tool
from jobwire.job.messages import Json


@dataclass(frozen=True, slots=True)
class LlmTask:
    name: str
    payload: type[Common]
    run: Callable[..., Awaitable[object]]
    """Called with the context, the payload and the dependencies."""
    example: Mapping[str, Json]


TASKS: Final = (
    LlmTask("chat", ChatPayload, chat, {"prompt": "What is the capital of Japan?"}),
    LlmTask("plan", PlanPayload, plan, {"goal": "Bake bread", "max_steps": 5}),
    LlmTask("code", CodePayload, code, {"prompt": "Write a function is_even(n)."}),
    LlmTask("tool", ToolPayload, tool, {"prompt": "add_numbers(17, 25)", "run": True}),
    LlmTask(
        "rag",
        RagPayload,
        rag,
        {
            "question": "How long is the warranty?",
            "documents": [
                {"id": "manual", "text": "The pump needs service every 500 hours."},
                {"id": "terms", "text": "The warranty lasts 24 months from delivery."},
            ],
        },
    ),
    LlmTask("embed", EmbedPayload, embed, {"input": ["a red apple", "a green pear"]}),
)
