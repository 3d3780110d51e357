"""Translates OpenAI's requests to payloads of `chat` and `embed` (K-2). Pure.

Tolerant: members with null and members that the tasks do not have are left out, and so is what
clients send back of an earlier answer. Only what would be answered wrong is refused
(`UnsupportedRequest`). Further members for the model's server are passed on in `extra`; the worker
takes those of its list.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import msgspec

from jobwire.api import openai as api

_MAX_BATCH: Final = 32
"""Texts of one job: vectors of 4,096 numbers in base64 fit into a result."""
_MAX_BATCH_BYTES: Final = 150_000
_PASSED: Final = (
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
)
_IGNORED: Final = frozenset(
    {"user", "metadata", "store", "safety_identifier", "prompt_cache_key", "logprobs", "modalities"}
)
_OWN: Final = frozenset(
    {
        *("messages", "model", "stream", "stream_options", "n", "seed", "stop", "response_format"),
        *("max_tokens", "max_completion_tokens", "tools", "tool_choice", "parallel_tool_calls"),
        *("functions", "function_call"),
    }
)
_KNOWN: Final = _OWN | _IGNORED | frozenset(_PASSED)
_ROLES: Final = ("system", "developer", "user", "assistant", "tool")
_FORMS: Final = ("text", "json_object", "json_schema")
_DETAILS: Final = ("auto", "low", "high")
_MAX_TOKENS: Final = 1 << 20
"""The largest limit of the task; a larger one means the same."""
_MAX_SEED: Final = (1 << 63) - 1

Members = Mapping[str, Any]


class UnsupportedRequest(ValueError):
    """A request that would be answered wrong; `param` is the place."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(f"{param}: {message}")
        self.param = param


def chat_payload(members: Members) -> dict[str, Any]:
    """The payload of `chat` for a request."""
    given = {name: value for name, value in members.items() if value is not None}
    _check_supported(given)
    payload = {name: given[name] for name in _PASSED if name in given}
    payload |= model_member(given.get("model"))
    payload["messages"] = [_turn(at, each) for at, each in enumerate(given["messages"])]
    limit = given.get("max_completion_tokens", given.get("max_tokens"))
    if limit is not None and not (_is_number(limit) and limit < 1):  # -1: no limit
        payload["max_tokens"] = min(limit, _MAX_TOKENS) if _is_number(limit) else limit
    seed = given.get("seed")
    if seed is not None and not (_is_number(seed) and not 0 <= seed <= _MAX_SEED):  # -1: any
        payload["seed"] = seed
    if stop := _without_empty(given.get("stop")):
        payload["stop"] = stop
    form = given.get("response_format")
    if form is not None and form != {"type": "text"}:
        payload["response_format"] = form
    if given.get("tools"):
        names = ("tools", "tool_choice", "parallel_tool_calls")
        payload |= {name: given[name] for name in names if name in given}
    if extra := {name: value for name, value in given.items() if name not in _KNOWN}:
        payload["extra"] = extra
    return payload


def model_member(model: str | None) -> dict[str, Any]:
    """The member `model` of a payload; none for the configured model."""
    return {} if model in (None, "", api.OWN_MODEL) else {"model": model}


def _check_supported(given: Members) -> None:
    if given.get("n", 1) != 1:
        raise UnsupportedRequest("n", "only one answer is generated; it must be 1")
    if given.get("logprobs"):
        raise UnsupportedRequest("logprobs", "is not supported")
    if given.get("functions"):
        raise UnsupportedRequest("functions", "is not supported; use `tools`")
    form = given.get("response_format")
    if isinstance(form, dict) and cast("Members", form).get("type") not in _FORMS:
        raise UnsupportedRequest("response_format.type", f"must be one of {', '.join(_FORMS)}")
    if given.get("modalities", ["text"]) not in ([], ["text"]):
        raise UnsupportedRequest("modalities", "answers are text only")


# ── messages ─────────────────────────────────────────────────────────────────────────────────────


def _turn(at: int, message: Members) -> dict[str, Any]:
    """One turn; what only an answer has (`refusal`, `annotations`, `audio`, …) is left out."""
    role, calls = message.get("role"), message.get("tool_calls")
    place = f"messages[{at}]"
    if role not in _ROLES:
        raise UnsupportedRequest(f"{place}.role", f"must be one of {', '.join(_ROLES)}")
    if message.get("function_call") and not calls:
        raise UnsupportedRequest(f"{place}.function_call", "is not supported; use `tool_calls`")
    turn: dict[str, Any] = {"role": role}
    if calls and role == "assistant":
        turn["tool_calls"] = calls
    if role == "tool":
        turn["tool_call_id"] = message.get("tool_call_id")
    if isinstance(message.get("name"), str) and message["name"]:
        turn["name"] = message["name"]
    content = _content(place, message.get("content"))
    if content is None:
        content = message.get("refusal") or (None if calls else "")
    return turn if content is None else {**turn, "content": content}


def _content(place: str, content: object) -> object:
    """Text or parts. Empty text parts are left out, since many servers refuse them."""
    if not isinstance(content, list):
        return content
    parts = [
        part
        for at, each in enumerate(cast("list[Any]", content))
        if (part := _part(f"{place}.content[{at}]", each))
    ]
    return parts or ""


def _part(place: str, part: object) -> dict[str, Any] | None:
    if isinstance(part, str):
        return {"type": "text", "text": part} if part else None
    members: dict[str, Any] = cast("dict[str, Any]", part) if isinstance(part, dict) else {}
    match members.get("type"):
        case "text" | "refusal" as kind:
            text = members.get(kind)
            return {"type": "text", "text": text} if text or not isinstance(text, str) else None
        case "image_url":
            image = members.get("image_url")
            image = {"url": image} if isinstance(image, str) else image or {}
            url = {"url": image.get("url")}
            if image.get("detail") in _DETAILS:
                url["detail"] = image["detail"]
            return {"type": "image_url", "image_url": url}
        case kind:
            raise UnsupportedRequest(place, f"parts of the type {kind!r} are not supported")


def _without_empty(stop: object) -> object:
    if isinstance(stop, list):
        return [each for each in cast("Iterable[object]", stop) if each != ""]
    return stop


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# ── embeddings ───────────────────────────────────────────────────────────────────────────────────


def embed_payloads(body: api.EmbeddingsRequest) -> list[dict[str, Any]]:
    """K-4: the payloads of `embed` for a request: as many jobs as keep each payload and each
    result within its limit. Vectors are in base64 on the way, exact and short."""
    common: dict[str, Any] = {"encoding": "base64", **model_member(body.model)}
    if body.dimensions is not None:
        common["dimensions"] = body.dimensions
    batches: list[list[Any]] = [[]]
    size = 0
    for each in _inputs(body.input):
        length = len(msgspec.json.encode(each))
        if batches[-1] and (len(batches[-1]) >= _MAX_BATCH or size + length > _MAX_BATCH_BYTES):
            batches.append([])
            size = 0
        batches[-1].append(each)
        size += length
    return [{"input": batch, **common} for batch in batches]


def _inputs(given: str | list[Any]) -> list[Any]:
    if isinstance(given, str):
        return [given]
    inputs: list[object] = [given] if all(map(_is_number, given)) else given
    if len(inputs) > api.MAX_INPUTS:
        raise UnsupportedRequest("input", f"has {len(inputs)} texts; at most {api.MAX_INPUTS}")
    for at, each in enumerate(inputs):
        is_tokens = isinstance(each, list) and all(map(_is_number, cast("list[Any]", each)))
        if not each or not (isinstance(each, str) or is_tokens):
            raise UnsupportedRequest(
                f"input[{at}]", "must be a text or a list of tokens, not empty"
            )
    return inputs
