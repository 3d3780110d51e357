"""Translates OpenAI's requests to payloads of `chat` and `embed`, and results to OpenAI's answers.

Pure. Members that the tasks do not have are passed on in `extra`, which the worker allows by a list
of its own.
"""

import time
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from jobwire.api import openai as api

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


def embed_payload(body: api.EmbeddingsRequest) -> dict[str, Any]:
    """The payload of `embed` for a request."""
    payload: dict[str, Any] = {"input": body.input, "encoding": body.encoding_format or "float"}
    if body.dimensions is not None:
        payload["dimensions"] = body.dimensions
    return payload | _model({"model": body.model})


def _model(given: Mapping[str, Any]) -> dict[str, Any]:
    model = given.get("model", api.OWN_MODEL)
    return {} if model == api.OWN_MODEL else {"model": model}


def completion(job_id: str, result: Mapping[str, Any]) -> api.ChatCompletion:
    """A complete answer from the result of a job."""
    calls = cast("list[Any]", result.get("tool_calls") or [])
    text = str(result.get("text", ""))
    message = api.ChatMessage("assistant", text if text or not calls else None, tool_calls=calls)
    choice = api.CompletionChoice(message, str(result.get("finish_reason") or "stop"))
    model = str(result.get("model", ""))
    return api.ChatCompletion(
        completion_id(job_id), [choice], model, int(time.time()), usage_of(result)
    )


def embeddings(result: Mapping[str, Any]) -> api.EmbeddingList:
    """Vectors from the result of a job."""
    items = [api.EmbeddingItem(each, at) for at, each in enumerate(result["vectors"])]
    usage = msgspec.convert(result["usage"], api.TokenUsage)
    return api.EmbeddingList(items, str(result.get("model", "")), usage)


def usage_of(result: Mapping[str, Any]) -> api.TokenUsage | None:
    """The token counts of a result."""
    usage = result.get("usage")
    return msgspec.convert(usage, api.TokenUsage) if usage else None


def completion_id(job_id: str) -> str:
    """The id of an answer."""
    return f"chatcmpl-{job_id}"
