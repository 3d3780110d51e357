"""The body of a question to an OpenAI-compatible server. Pure; called by `endpoint.py`."""

from typing import Final

from jobwire.handlers.llm.models import ChatRequest, Free, Grammar, JsonForm
from jobwire.job.messages import Json

_EXTRAS: Final = ("response_format", "stream_options")
"""What makes answers better and not every server takes."""


def body(ask: ChatRequest, model: str, *, is_ours: bool) -> dict[str, Json]:
    """The question in full; `is_ours`: to the small model that we serve ourselves."""
    wishes: dict[str, Json] = {
        "model": model,
        "messages": [{"role": each.role, "content": each.content} for each in ask.messages],
        "max_tokens": ask.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if ask.temperature is not None:
        wishes["temperature"] = ask.temperature
    if ask.seed is not None:
        wishes["seed"] = ask.seed
    if ask.stop:
        wishes["stop"] = list(ask.stop)
    match ask.form:
        case Free():
            pass
        case Grammar(gbnf):
            wishes["grammar"] = gbnf
        case JsonForm(name, schema):
            form: Json = {"name": name, "schema": dict(schema), "strict": True}
            wishes["response_format"] = {"type": "json_schema", "json_schema": form}
    if is_ours:
        # A small model is at its best when it does not gamble.
        wishes.setdefault("temperature", 0)
        # What was read for another job changes the last digits, and a seed wants the same text.
        wishes["cache_prompt"] = ask.seed is None
    return wishes


def plainer(full: dict[str, Json], complaint: str) -> dict[str, Json]:
    """The same question without what a server may not know."""
    plain = {name: value for name, value in full.items() if name not in _EXTRAS}
    if "max_completion_tokens" in complaint:  # newer models of OpenAI know it by this name only
        plain["max_completion_tokens"] = plain.pop("max_tokens")
    return plain
