"""Selects the function for a prompt, and its arguments.

Called by `tool.py`; runs nothing. With a small model the function is the one whose description is
most similar to the prompt, and arguments can only be words and numbers of the prompt. A larger
model chooses by itself, in JSON, which is validated against the function.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from jobwire.handlers.context import TaskContext
from jobwire.handlers.llm import argument_candidates, grammars, json_extraction
from jobwire.handlers.llm.generation import Generation
from jobwire.handlers.llm.models import Form, Grammar, JsonForm, Message, Usage
from jobwire.handlers.llm.payloads import ToolPayload
from jobwire.handlers.llm.streaming import SilentEmitter
from jobwire.handlers.llm.task_deps import TaskDeps
from jobwire.handlers.llm.tools import BadArguments, Tool, ToolParameter
from jobwire.handlers.llm.vectors import cosine_similarity, embed_all
from jobwire.job.errors import Fail
from jobwire.job.messages import Json

_NONE: Final = "none"


class ToolChoice(NamedTuple):
    """A function, its arguments and how it was selected."""

    tool: Tool
    arguments: dict[str, object]
    by: Literal["similarity", "model", "caller"]
    score: float | None
    usage: Usage | None = None
    model: str = ""


async def choose(
    ctx: TaskContext, payload: ToolPayload, deps: TaskDeps, tools: Sequence[Tool]
) -> ToolChoice:
    """Select one of the tools; Fail if none fits."""
    if payload.arguments is not None:
        return ToolChoice(tools[0], _checked(tools[0], payload.arguments), "caller", None)
    if deps.models.chat().constrained:
        return await _constrained(ctx, payload, deps, tools)
    return await _chosen_by_model(ctx, payload, deps, tools)


# ── with a small model ────────────────────────────────────────────────────────────────────────────


async def _constrained(
    ctx: TaskContext, payload: ToolPayload, deps: TaskDeps, tools: Sequence[Tool]
) -> ToolChoice:
    prompt = " ".join(payload.prompt.split())
    if negation := argument_candidates.negation(prompt):
        raise Fail(
            "tool_no_match",
            f"the request contains {negation!r}: the local model cannot tell what it must not do; "
            "rephrase the request",
        )
    if payload.tools is not None and len(tools) == 1:
        chosen, score = tools[0], None
    else:
        chosen, score = await _most_similar(ctx, payload, deps, tools, prompt)
    arguments, answer = await _copied_arguments(ctx, payload, deps, chosen, prompt)
    by = "caller" if score is None else "similarity"
    if answer is None:
        return ToolChoice(chosen, arguments, by, score)
    return ToolChoice(chosen, arguments, by, score, answer.usage, answer.model)


async def _most_similar(
    ctx: TaskContext, payload: ToolPayload, deps: TaskDeps, tools: Sequence[Tool], prompt: str
) -> tuple[Tool, float]:
    texts = [prompt, *(f"{each.name.replace('_', ' ')}: {each.description}" for each in tools)]
    embedded = await embed_all(ctx, deps, payload, texts, step="tool.choose")
    target, *described = embedded.vectors
    score, at = max((cosine_similarity(target, each), -at) for at, each in enumerate(described))
    chosen = tools[-at]
    if score < deps.settings.tool_min_score:
        raise Fail(
            "tool_no_match",
            f"no tool is similar to the request; the nearest is {chosen.name} ({score:.2f}); "
            f'rephrase it, or name the tool: "tools": ["{chosen.name}"]',
        )
    return chosen, round(score, 4)


async def _copied_arguments(
    ctx: TaskContext, payload: ToolPayload, deps: TaskDeps, chosen: Tool, prompt: str
) -> tuple[dict[str, object], Generation | None]:
    """The arguments, and the answer of the model if it had to select."""
    candidates = argument_candidates.candidates(chosen, prompt)
    if candidates.missing:
        raise Fail(
            "tool_bad_arguments",
            f"the request has no value for {chosen.name}({candidates.missing[0]}=…)",
        )
    if (only := candidates.only()) is not None:
        return _checked(chosen, only), None
    ask = f"Function: {chosen.name} - {chosen.description}\nRequest: {prompt}\nArguments as JSON:"
    messages = [
        Message(
            "system", "You fill in the arguments of a function, copying words from the request."
        ),
        Message("user", ask),
    ]
    form = Grammar(grammars.json_object(candidates.values, candidates.together))
    answer = await _answer(ctx, payload, deps, messages, form)
    return _checked(chosen, json_extraction.json_object(answer.text)), answer


# ── with a larger model ───────────────────────────────────────────────────────────────────────────


async def _chosen_by_model(
    ctx: TaskContext, payload: ToolPayload, deps: TaskDeps, tools: Sequence[Tool]
) -> ToolChoice:
    tool_list = "\n".join(f"- {_signature(each)}: {each.description}" for each in tools)
    system = (
        f"You choose the function that fulfils a request, and its arguments.\n{tool_list}\n"
        f'If none of them does, the tool is "{_NONE}". Answer with JSON only: '
        '{"call": {"tool": "…", "arguments": {…}}}'
    )
    messages = [Message("system", system), Message("user", payload.prompt)]
    answer = await _answer(ctx, payload, deps, messages, _form(tools))
    read = json_extraction.json_object(answer.text) or {}
    call = read.get("call", read)
    name = call.get("tool") if isinstance(call, dict) else None
    if name == _NONE:
        raise Fail("tool_no_match", "the model found no tool for the request")
    chosen = next((each for each in tools if each.name == name), None)
    if chosen is None or not isinstance(call, dict):
        raise Fail("output_invalid", "the model did not answer with one of the tools")
    arguments = _checked(chosen, call.get("arguments", {}))
    return ToolChoice(chosen, arguments, "model", None, answer.usage, answer.model)


def _signature(each: Tool) -> str:
    shown = [f"{p.name}: {p.kind or ' | '.join(map(repr, p.choices))}" for p in each.parameters]
    return f"{each.name}({', '.join(shown)})"


def _form(tools: Sequence[Tool]) -> JsonForm:
    calls: list[Json] = [_call(each.name, each.parameters) for each in tools]
    return JsonForm("call", grammars.object_schema({"call": {"anyOf": [*calls, _call(_NONE, ())]}}))


def _call(name: str, parameters: Sequence[ToolParameter]) -> dict[str, Json]:
    # Strict servers require every member, so an optional one may be null.
    arguments: dict[str, Json] = {
        each.name: each.schema() if each.required else {"anyOf": [each.schema(), {"type": "null"}]}
        for each in parameters
    }
    return grammars.object_schema(
        {"tool": {"type": "string", "enum": [name]}, "arguments": grammars.object_schema(arguments)}
    )


# ── both ──────────────────────────────────────────────────────────────────────────────────────────


async def _answer(
    ctx: TaskContext, payload: ToolPayload, deps: TaskDeps, messages: Sequence[Message], form: Form
) -> Generation:
    answer = await deps.answer(ctx, payload, messages, SilentEmitter(), form)
    answer.check_complete("call", payload.max_tokens)
    return answer


def _checked(chosen: Tool, arguments: object) -> dict[str, object]:
    try:
        return chosen.check(arguments)
    except BadArguments as error:
        raise Fail("tool_bad_arguments", f"{chosen.name}: {error}") from None
