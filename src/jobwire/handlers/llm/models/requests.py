"""The request body for an OpenAI-compatible server. Pure; called by `endpoint.py`."""

from typing import Final

from jobwire.handlers.llm.models import ChatRequest, Free, Grammar, JsonForm
from jobwire.job.messages import Json

_EXTENSIONS: Final = ("response_format", "stream_options")
"""Members that not every server accepts."""


def chat_body(request: ChatRequest, model: str, *, is_local: bool) -> dict[str, Json]:
    """The full request; `is_local`: to a model process of this worker."""
    body: dict[str, Json] = {
        "model": model,
        "messages": [{"role": each.role, "content": each.content} for each in request.messages],
        "max_tokens": request.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.seed is not None:
        body["seed"] = request.seed
    if request.stop:
        body["stop"] = list(request.stop)
    match request.form:
        case Free():
            pass
        case Grammar(gbnf):
            body["grammar"] = gbnf
        case JsonForm(name, schema):
            form: Json = {"name": name, "schema": dict(schema), "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
    if is_local:
        # Small models answer best without sampling.
        body.setdefault("temperature", 0)
        # A cached prompt changes the last digits; a seed must reproduce the text.
        body["cache_prompt"] = request.seed is None
    return body


def without_extensions(full: dict[str, Json], complaint: str) -> dict[str, Json]:
    """The same request without the members that a server may not know."""
    plain = {name: value for name, value in full.items() if name not in _EXTENSIONS}
    if "max_completion_tokens" in complaint:  # the only name in newer OpenAI models
        plain["max_completion_tokens"] = plain.pop("max_tokens")
    return plain
