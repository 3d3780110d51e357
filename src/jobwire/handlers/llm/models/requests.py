"""The request body for an OpenAI-compatible server, and what a server does not accept of it. Pure.

Called by `endpoint.py`. Servers differ: newer OpenAI models take `max_completion_tokens` only, some
refuse a temperature, older servers know no `response_format`, or another form of it. A refused
request is changed by what the refusal names, and the change is remembered per model.
"""

from collections.abc import Mapping
from typing import Final

from jobwire.handlers.llm.models import ChatRequest, Free, Grammar, JsonForm
from jobwire.job.messages import Json

_NAMES_LIMIT: Final = ("max_completion_tokens", "'max_tokens' is not supported")
_LOCAL_MAX_TOKENS: Final = 256
EXTENSIONS: Final = ("response_format", "stream_options")
"""Members that not every server accepts; the request means the same without them, because answers
are validated."""

JSON_OBJECT: Final = "json_object"

Change = str
"""`max_completion_tokens`: the limit under its newer name; `json_object`: the schema inside this
form, as llama-cpp-python has it; any other: this member is left out."""


def chat_body(request: ChatRequest, model: str, *, is_local: bool) -> dict[str, Json]:
    """The full request; `is_local`: to a model process of this worker."""
    body: dict[str, Json] = {
        "model": model,
        "messages": [
            {"role": each.role, "content": each.content, **each.members}
            for each in request.messages
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.max_tokens is not None:
        body["max_tokens"] = request.max_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.seed is not None:
        body["seed"] = request.seed
    if request.stop:
        body["stop"] = list(request.stop)
    body |= request.options
    match request.form:
        case Free():
            pass
        case Grammar(gbnf):
            body["grammar"] = gbnf
        case JsonForm(name, schema, strict):
            form: dict[str, Json] = {"name": name, "schema": dict(schema)}
            if strict is not None:
                form["strict"] = strict
            body["response_format"] = {"type": "json_schema", "json_schema": form}
    if is_local:
        # Small models do not find an end by themselves.
        body.setdefault("max_tokens", _LOCAL_MAX_TOKENS)
        if request.seed is not None:
            body["seed"] = request.seed % (1 << 32)  # all that llama.cpp takes
        # They answer best without sampling, and repeat themselves without a penalty.
        body.setdefault("temperature", 0)
        if not isinstance(request.form, JsonForm):  # JSON repeats its own punctuation
            body.setdefault("repeat_penalty", 1.05)
        # A cached prompt changes the last digits; a seed must reproduce the text.
        body["cache_prompt"] = request.seed is None
    return body


def changes_for(body: Mapping[str, Json], complaint: str) -> list[Change]:
    """What to change in a refused request, by the text of the refusal; empty if nothing is left."""
    if "max_tokens" in body and any(each in complaint for each in _NAMES_LIMIT):
        return ["max_completion_tokens"]
    if JSON_OBJECT in complaint and _schema(body) is not None:
        return [JSON_OBJECT]
    needed = [each for each in EXTENSIONS if each in body and not _can_do_without(body, each)]
    if any(each in complaint for each in needed):
        return []
    extensions = [each for each in EXTENSIONS if each in body and each not in needed]
    if named := [each for each in extensions if each in complaint]:
        return named
    if "json_schema" in complaint and "response_format" in extensions:
        return ["response_format"]
    return extensions


def _can_do_without(body: Mapping[str, Json], member: str) -> bool:
    """Whether the answer is checked for what the member asks. JSON of no schema is not."""
    form = body[member]
    is_json = isinstance(form, dict) and form.get("type") == JSON_OBJECT and "schema" not in form
    return not is_json


def _schema(body: Mapping[str, Json]) -> Json:
    """The schema of the answer, in the form of OpenAI."""
    form = body.get("response_format")
    named = form.get("json_schema") if isinstance(form, dict) else None
    return named.get("schema") if isinstance(named, dict) else None


def changed(body: Mapping[str, Json], changes: list[Change]) -> dict[str, Json]:
    """The request with these changes."""
    result = dict(body)
    for change in changes:
        if change == "max_completion_tokens":
            if "max_tokens" in result:
                result[change] = result.pop("max_tokens")
        elif change == JSON_OBJECT:
            if (schema := _schema(result)) is not None:
                result["response_format"] = {"type": JSON_OBJECT, "schema": schema}
        else:
            result.pop(change, None)
    return result
