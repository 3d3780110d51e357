"""Which function fulfils a wish, and with which arguments.

Called by `tool.py`; runs nothing. A small model is led: the function is the one whose description
is most like the wish, and arguments can only be words and numbers of the wish. A real model chooses
by itself, in JSON, which is checked against the function.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from jobwire.handlers.context import TaskContext
from jobwire.handlers.llm import argument_candidates, grammars, json_extraction
from jobwire.handlers.llm.embedding import cosine_similarity, embed_all
from jobwire.handlers.llm.models import Form, Grammar, JsonForm, Message
from jobwire.handlers.llm.payloads import ToolPayload
from jobwire.handlers.llm.streaming import SilentEmitter
from jobwire.handlers.llm.task_deps import TaskDeps
from jobwire.handlers.llm.tools import BadArguments, Tool, ToolParameter
from jobwire.job.errors import Fail
from jobwire.job.messages import Json

_NONE: Final = "none"


class ToolChoice(NamedTuple):
    """A function, its arguments, and how we came to it."""

    tool: Tool
    arguments: dict[str, object]
    by: Literal["similarity", "model", "caller"]
    score: float | None


async def choose(
    ctx: TaskContext, payload: ToolPayload, kit: TaskDeps, offered: Sequence[Tool]
) -> ToolChoice:
    """One of those offered; Fail where none fits."""
    if kit.models.chat().led:
        return await _constrained(ctx, payload, kit, offered)
    return await _asked(ctx, payload, kit, offered)


# ── a small model is led ─────────────────────────────────────────────────────────────────────────


async def _constrained(
    ctx: TaskContext, payload: ToolPayload, kit: TaskDeps, offered: Sequence[Tool]
) -> ToolChoice:
    wish = " ".join(payload.prompt.split())
    if payload.tools is not None and len(offered) == 1:
        chosen, score = offered[0], None
    else:
        chosen, score = await _likest(ctx, payload, kit, offered, wish)
    arguments = await _copied(ctx, payload, kit, chosen, wish)
    return ToolChoice(chosen, arguments, "caller" if score is None else "similarity", score)


async def _likest(
    ctx: TaskContext, payload: ToolPayload, kit: TaskDeps, offered: Sequence[Tool], wish: str
) -> tuple[Tool, float]:
    texts = [wish, *(f"{each.name.replace('_', ' ')}: {each.description}" for each in offered)]
    made = await embed_all(ctx, kit, payload, texts, step="tool.choose")
    asked, *described = made.vectors
    score, at = max((cosine_similarity(asked, each), -at) for at, each in enumerate(described))
    chosen = offered[-at]
    if score < kit.settings.tool_min_score:
        raise Fail(
            "tool_no_match",
            f"no tool is much like the request; the nearest is {chosen.name} ({score:.2f}); say it "
            f'otherwise, or name it: "tools": ["{chosen.name}"]',
        )
    return chosen, round(score, 4)


async def _copied(
    ctx: TaskContext, payload: ToolPayload, kit: TaskDeps, chosen: Tool, wish: str
) -> dict[str, object]:
    offers = argument_candidates.offers(chosen, wish)
    if missing := argument_candidates.missing(chosen, wish, offers):
        raise Fail(
            "tool_bad_arguments", f"the request has nothing for {chosen.name}({missing[0]}=…)"
        )
    if not offers:
        return {}
    ask = f"Function: {chosen.name} - {chosen.description}\nRequest: {wish}\nArguments as JSON:"
    messages = [
        Message(
            "system", "You fill in the arguments of a function, copying words from the request."
        ),
        Message("user", ask),
    ]
    text = await _text(ctx, payload, kit, messages, Grammar(grammars.an_object(offers)))
    return _checked(chosen, json_extraction.an_object(text))


# ── a real model is asked ────────────────────────────────────────────────────────────────────────


async def _asked(
    ctx: TaskContext, payload: ToolPayload, kit: TaskDeps, offered: Sequence[Tool]
) -> ToolChoice:
    listed = "\n".join(f"- {_signature(each)}: {each.description}" for each in offered)
    system = (
        f"You choose the function that fulfils a request, and its arguments.\n{listed}\n"
        f'If none of them does, the tool is "{_NONE}". Answer with JSON only: '
        '{"call": {"tool": "…", "arguments": {…}}}'
    )
    messages = [Message("system", system), Message("user", payload.prompt)]
    text = await _text(ctx, payload, kit, messages, _form(offered))
    read = json_extraction.an_object(text) or {}
    call = read.get("call", read)
    name = call.get("tool") if isinstance(call, dict) else None
    if name == _NONE:
        raise Fail("tool_no_match", "the model finds that no tool fulfils the request")
    chosen = next((each for each in offered if each.name == name), None)
    if chosen is None or not isinstance(call, dict):
        raise Fail("output_invalid", "the model did not answer with one of the tools")
    return ToolChoice(chosen, _checked(chosen, call.get("arguments", {})), "model", None)


def _signature(each: Tool) -> str:
    shown = [f"{p.name}: {p.kind or ' | '.join(map(repr, p.choices))}" for p in each.parameters]
    return f"{each.name}({', '.join(shown)})"


def _form(offered: Sequence[Tool]) -> JsonForm:
    calls: list[Json] = [_call(each.name, each.parameters) for each in offered]
    return JsonForm("call", _object({"call": {"anyOf": [*calls, _call(_NONE, ())]}}))


def _call(name: str, parameters: Sequence[ToolParameter]) -> dict[str, Json]:
    # Strict servers want every member to be there, so what may be left out may be null.
    arguments: dict[str, Json] = {
        each.name: each.schema() if each.required else {"anyOf": [each.schema(), {"type": "null"}]}
        for each in parameters
    }
    return _object({"tool": {"type": "string", "enum": [name]}, "arguments": _object(arguments)})


def _object(properties: dict[str, Json]) -> dict[str, Json]:
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


# ── both ─────────────────────────────────────────────────────────────────────────────────────────


async def _text(
    ctx: TaskContext, payload: ToolPayload, kit: TaskDeps, messages: Sequence[Message], form: Form
) -> str:
    answer = await kit.answer(ctx, payload, messages, SilentEmitter(), form)
    if answer.finish_reason == "length":
        raise Fail(
            "output_truncated",
            f"the call is longer than max_tokens={payload.max_tokens} allows; ask for more",
        )
    return answer.text


def _checked(chosen: Tool, arguments: object) -> dict[str, object]:
    try:
        return chosen.check(arguments)
    except BadArguments as error:
        raise Fail("tool_bad_arguments", f"{chosen.name}: {error}") from None
