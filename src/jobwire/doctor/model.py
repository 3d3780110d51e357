"""Checks of the models of the six tasks, with the settings of a worker.

Local weights are checked, not loaded. A server gets one short prompt through the driver that the
tasks use, which proves its address, the key and the model name.
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

_TIMEOUT: Final = timedelta(seconds=20)
_TOKENS: Final = 16
_UNREACHABLE: Final = ("backend_unavailable", "backend_timeout")
_FIXES: Final = {
    "backend_timeout": "is it busy, or loading the model? try again",
    "model_not_found": "correct llm.model (OPENAI_MODEL), or llm.embed_model",
    "backend_quota": "raise the quota, or use another key",
    "backend_rate_limited": "wait, or use another key",
}


async def examine(settings: LlmSettings) -> AsyncIterator[Finding]:
    """Check the chat model and the embedding model."""
    models = Models(
        replace(settings, first_token_timeout=min(_TIMEOUT, settings.first_token_timeout))
    )
    missing = {requirement.part: requirement for requirement in models.missing_requirements()}
    for part, tasks, server, local, call in (
        ("model", "chat, plan, code, tool and rag", settings.base_url, _name(settings), _chat),
        ("embeddings", "embed, rag and tool", settings.embed_model, files.EMBED_NAME, _embed),
    ):
        if (requirement := missing.get(part)) is not None:
            # Only a model that is configured is a fault.
            configured = server or (part == "model" and settings.model_path)
            why = f"a worker on this machine cannot run {tasks}"
            yield Finding(
                part, "fault" if configured else "note", requirement.wrong, why, requirement.fix
            )
        elif server:
            yield await _server_finding(part, tasks, call(models))
        else:
            yield Finding(part, "ok", f"{local}, in a child process of the worker")


def _name(settings: LlmSettings) -> str:
    return settings.model_path.name if settings.model_path else files.CHAT_NAME


async def _chat(models: Models) -> str:
    request = ChatRequest(messages=[Message("user", "Say hello.")], max_tokens=_TOKENS)
    async with aclosing(models.chat().ask(request)) as pieces:
        async for _ in pieces:
            pass
    return "responds"


async def _embed(models: Models) -> str:
    reply = await models.embedder().embed(["hello"])
    return f"returns vectors of {len(reply.vectors[0])} numbers"


async def _server_finding(part: str, tasks: str, answer: Awaitable[str]) -> Finding:
    try:
        return Finding(part, "ok", f"its server {await answer}")
    except ModelError as error:
        verdict = "unreachable" if error.code in _UNREACHABLE else "fault"
        why = f"a worker on this machine cannot run {tasks}"
        fix = error.fix or _FIXES.get(error.code, "see the log of its server")
        return Finding(part, verdict, error.wrong, why, fix)
