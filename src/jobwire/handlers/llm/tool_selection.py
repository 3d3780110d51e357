"""Selects the function for a prompt, and its arguments.

Called by `tool.py`; runs nothing. A model behind a server chooses in JSON, which is validated
against the function. Without a server the request itself must be the call.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from jobwire.handlers.context import TaskContext
from jobwire.handlers.llm import grammars, json_extraction, literal_calls
from jobwire.handlers.llm.generation import Generation
from jobwire.handlers.llm.models import Form, JsonForm, Message, Usage
from jobwire.handlers.llm.payloads import ChosenBy, ToolPayload
from jobwire.handlers.llm.streaming import SilentEmitter
from jobwire.handlers.llm.task_deps import TaskDeps
from jobwire.handlers.llm.tools import BadArguments, Tool, ToolParameter
from jobwire.job.errors import Fail
from jobwire.job.messages import Json

_NONE: Final = "none"


class ToolChoice(NamedTuple):
    """A function, its arguments and how it was selected."""

    tool: Tool
    arguments: dict[str, object]
    by: ChosenBy
    usage: Usage | None = None
    model: str = ""


async def choose(
    ctx: TaskContext, payload: ToolPayload, deps: TaskDeps, tools: Sequence[Tool]
) -> ToolChoice:
    """Select one of the tools; Fail if none fits."""
    if payload.arguments is not None:
        return ToolChoice(tools[0], _checked(tools[0], payload.arguments), "caller")
    if not deps.settings.base_url:
        return _stated_by_request(payload, tools)
    return await _chosen_by_model(ctx, payload, deps, tools)


# ── without a model server ────────────────────────────────────────────────────────────────────────


def _stated_by_request(payload: ToolPayload, tools: Sequence[Tool]) -> ToolChoice:
    """K-1: the call that the request is, word for word."""
    try:
        call = literal_calls.find_call(tools, payload.prompt)
    except literal_calls.NoCall as reason:
        raise Fail("tool_no_match", f"no tool is called: {reason}") from None
    return ToolChoice(call.tool, _checked(call.tool, call.arguments), "request")


# ── with a model server ───────────────────────────────────────────────────────────────────────────


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
    return ToolChoice(chosen, arguments, "model", answer.usage, answer.model)


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
    answer.check_complete("call")
    return answer


def _checked(chosen: Tool, arguments: object) -> dict[str, object]:
    try:
        return chosen.check(arguments)
    except BadArguments as error:
        raise Fail("tool_bad_arguments", f"{chosen.name}: {error}") from None
