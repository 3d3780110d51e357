"""The models behind the six tasks, as a worker with these settings would have them.

Weights on this machine are looked at, not loaded. A server is asked for one short answer by the
driver that the tasks use: that alone shows that its address, our key and the model are right.
"""

from collections.abc import AsyncIterator, Awaitable
from contextlib import aclosing
from dataclasses import replace
from datetime import timedelta
from typing import Final

from jobwire.doctor.finding import Finding
from jobwire.handlers.llm import LlmSettings
from jobwire.handlers.llm.models import ChatRequest, Message, files
from jobwire.handlers.llm.models.errors import ModelError
from jobwire.handlers.llm.models.factory import Models

_PATIENCE: Final = timedelta(seconds=20)
_TOKENS: Final = 16
_AWAY: Final = ("backend_unavailable", "backend_timeout")
_CURES: Final = {
    "backend_timeout": "is it busy, or loading the model? ask again",
    "model_not_found": "correct llm.model (OPENAI_MODEL), or llm.embed_model",
    "backend_quota": "pay, or use another key",
    "backend_rate_limited": "wait, or use another key",
}


async def examine(settings: LlmSettings) -> AsyncIterator[Finding]:
    """The model that answers, and the one that makes vectors."""
    models = Models(
        replace(settings, first_token_timeout=min(_PATIENCE, settings.first_token_timeout))
    )
    lacks = {lack.part: lack for lack in models.missing_requirements()}
    for part, tasks, server, local, ask in (
        ("model", "chat, plan, code, tool and rag", settings.base_url, _name(settings), _chat),
        ("embeddings", "embed, rag and tool", settings.embed_model, files.EMBED_NAME, _embed),
    ):
        if (lack := lacks.get(part)) is not None:
            # One that nobody asked for is not missed by everybody.
            given = server or (part == "model" and settings.model_path)
            why = f"a worker here cannot answer {tasks}"
            yield Finding(part, "fault" if given else "note", lack.wrong, why, lack.fix)
        elif server:
            yield await _judged(part, tasks, ask(models))
        else:
            yield Finding(part, "ok", f"{local}, in a process of the worker's")


def _name(settings: LlmSettings) -> str:
    return settings.model_path.name if settings.model_path else files.CHAT_NAME


async def _chat(models: Models) -> str:
    hello = ChatRequest(messages=[Message("user", "Say hello.")], max_tokens=_TOKENS)
    async with aclosing(models.chat().ask(hello)) as pieces:
        async for _ in pieces:
            pass
    return "answers"


async def _embed(models: Models) -> str:
    made = await models.embedder().embed(["hello"])
    return f"makes vectors of {len(made.vectors[0])} numbers"


async def _judged(part: str, tasks: str, answer: Awaitable[str]) -> Finding:
    try:
        return Finding(part, "ok", f"its server {await answer}")
    except ModelError as trouble:
        verdict = "unreachable" if trouble.code in _AWAY else "fault"
        why = f"a worker here cannot answer {tasks}"
        cure = trouble.cure or _CURES.get(trouble.code, "see what its server says")
        return Finding(part, verdict, trouble.wrong, why, cure)
