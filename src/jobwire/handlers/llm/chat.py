"""The task `chat`: answers a conversation, token by token.

With a JSON schema of the caller the answer is validated; an invalid one is repaired once by the
model. Functions of the caller are passed to the model's server; its calls are in the result.
"""

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from jobwire.handlers.context import TaskContext
from jobwire.handlers.llm import json_extraction
from jobwire.handlers.llm.generation import Generation
from jobwire.handlers.llm.models import Form, Free, JsonForm, Message
from jobwire.handlers.llm.payloads import ChatPayload, ChatResult, ChatTurn, TextPart
from jobwire.handlers.llm.streaming import TokenEmitter, emit_reset
from jobwire.handlers.llm.task_deps import TaskDeps
from jobwire.job.errors import Fail
from jobwire.job.messages import Json
from jobwire.json_schema.isolated import TooCostly
from jobwire.json_schema.validator import UnusableSchema


async def chat(ctx: TaskContext, payload: ChatPayload, deps: TaskDeps) -> ChatResult:
    """Generate the next turn."""
    messages = conversation(payload, deps.settings.system)
    is_local = not deps.settings.base_url
    if is_local:
        messages = _text_only(payload, messages)
    form = await _form(payload, deps)
    options = _options(payload, form)
    answer = await deps.answer(ctx, payload, messages, TokenEmitter(ctx), form, options)
    if isinstance(form, JsonForm) and not answer.tool_calls:
        answer = await _validated(ctx, payload, deps, messages, form, answer)
    calls, about = [*answer.tool_calls], (answer.finish_reason, answer.usage, answer.model)
    return ChatResult(answer.text, *about, calls, answer.reasoning)


def conversation(payload: ChatPayload, system: str) -> Sequence[Message]:
    """All turns. The first is always a system turn: without one a template may insert its own,
    and small models then answer nonsense."""
    turns = [_message(turn) for turn in payload.messages]
    if payload.prompt is not None:
        turns.append(Message("user", payload.prompt))
    if any(turn.role in ("system", "developer") for turn in turns):
        return turns
    return [Message("system", payload.system or system), *turns]


def _message(turn: ChatTurn) -> Message:
    members = cast("dict[str, Json]", msgspec.to_builtins(turn))
    role, content = str(members.pop("role")), members.pop("content", None)
    if isinstance(turn.content, list) and all(isinstance(p, TextPart) for p in turn.content):
        # Every server takes text; some fail on a list of parts.
        content = "\n".join(cast("TextPart", part).text for part in turn.content)
    return Message(role, content, members)


def _text_only(payload: ChatPayload, messages: Sequence[Message]) -> list[Message]:
    """Turns for the local model, which reads text and calls no functions."""
    has_images = any(
        isinstance(turn.content, list) and any(not isinstance(p, TextPart) for p in turn.content)
        for turn in payload.messages
    )
    if has_images or payload.tools:
        noun = "images" if has_images else "functions"
        raise Fail(
            "invalid_payload",
            f"the local model takes no {noun}; set llm.base_url (OPENAI_BASE_URL) to a server "
            "whose model does",
        )
    roles = ["system" if each.role == "developer" else each.role for each in messages]
    return [Message(role, each.content or "") for role, each in zip(roles, messages, strict=True)]


def _options(payload: ChatPayload, form: Form) -> dict[str, Json]:
    options: dict[str, Json] = {}
    if payload.response_format is not None and isinstance(form, Free):
        options["response_format"] = payload.response_format
    if payload.tools:
        options["tools"] = [*payload.tools]
    for name in ("tool_choice", "parallel_tool_calls"):
        if (value := getattr(payload, name)) is not None:
            options[name] = value
    return options


async def _form(payload: ChatPayload, deps: TaskDeps) -> Form:
    """The schema of the caller, if there is one; Fail if it cannot be used."""
    given = payload.response_format
    if given is None or given.get("type") != "json_schema":
        return Free()
    inner: dict[str, Any] = given.get("json_schema") or {}
    schema: Any = inner.get("schema") if isinstance(inner, dict) else None  # pyright: ignore[reportUnnecessaryIsInstance] - any JSON
    if not isinstance(schema, dict):
        raise Fail("invalid_payload", "payload.response_format.json_schema.schema: is required")
    name: Any = inner.get("name")
    try:
        await deps.schema_checks.check_schema(cast("object", schema))
    except UnusableSchema as error:
        raise _unusable(str(error)) from None
    except TooCostly:
        raise _unusable("it takes too long to read") from None
    strict: Any = inner.get("strict")
    return JsonForm(
        name if isinstance(name, str) else "answer",
        cast("dict[str, Json]", schema),
        strict if isinstance(strict, bool) else None,
    )


def _unusable(reason: str) -> Fail:
    return Fail("invalid_payload", f"payload.response_format.json_schema.schema: {reason}")


async def _validated(
    ctx: TaskContext,
    payload: ChatPayload,
    deps: TaskDeps,
    messages: Sequence[Message],
    form: JsonForm,
    answer: Generation,
) -> Generation:
    """The answer, if it matches the schema; otherwise the model repairs it once."""
    answer.check_complete("answer")
    problem = await _problem(form, answer.text, deps)
    if not problem:
        return answer
    await emit_reset(ctx, "output_invalid")
    ask = f"This does not match the schema: {problem}. Answer again with the corrected JSON only."
    repair = [*messages, Message("assistant", answer.text), Message("user", ask)]
    answer = await deps.answer(ctx, payload, repair, TokenEmitter(ctx), form)
    answer.check_complete("answer")
    if problem := await _problem(form, answer.text, deps):
        ctx.partial = answer.text
        raise Fail("output_invalid", f"the answer does not match the schema: {problem}")
    return answer


async def _problem(form: JsonForm, text: str, deps: TaskDeps) -> str:
    """What is wrong with the answer; empty if it matches."""
    value = json_extraction.json_value(text)
    if value is json_extraction.NO_JSON:
        return "it is not JSON"
    try:
        return await deps.schema_checks.fault(form.schema, value)
    except TooCostly:
        raise Fail(
            "output_invalid", "the schema takes too long to check against the answer; simplify it"
        ) from None
