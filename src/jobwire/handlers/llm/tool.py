"""The task `tool`: selects the registered function for a request, and runs it.

A function runs at most once per job (`step_once`): after it has started, neither a retry nor
another worker calls it again. A choice of the model is recorded: it is paid for and made once.
"""

import asyncio
import logging
import time
from typing import Any, Final

import msgspec

from jobwire.handlers.context import TaskContext
from jobwire.handlers.llm.models import Usage
from jobwire.handlers.llm.payloads import ChosenBy, ToolPayload, ToolResult
from jobwire.handlers.llm.task_deps import TaskDeps
from jobwire.handlers.llm.tool_runner import TooMany, run
from jobwire.handlers.llm.tool_selection import ToolChoice, choose
from jobwire.handlers.llm.tools import Tool, as_tool
from jobwire.job.errors import Fail, HandlerSignal, Retry, StepInterrupted

_log: Final = logging.getLogger("jobwire.handlers")
_MAX_EVENT_OUTPUT: Final = 16_384
"""Bytes; a larger output is in the result but not in the event."""


async def tool(ctx: TaskContext, payload: ToolPayload, deps: TaskDeps) -> ToolResult:
    """Select a function, then run it."""
    choice = await _chosen(ctx, payload, deps)
    name, arguments = choice.tool.name, choice.arguments
    await ctx.emit("tool_call", {"name": name, "arguments": arguments}, step="tool.choose")
    # K-1: without a model server a call that only the request states is shown, not run.
    is_wanted = choice.by != "request" if payload.run is None else payload.run
    needs_confirmation = choice.tool.confirm and not payload.confirmed
    runs = is_wanted and not needs_confirmation
    output = await _run(ctx, choice, deps) if runs else None
    return ToolResult(
        *(name, arguments, choice.by, None, runs, output),
        usage=choice.usage,
        model=choice.model,
        confirm=is_wanted and needs_confirmation,
    )


class _Choice(msgspec.Struct):
    """A choice as it is recorded."""

    name: str
    arguments: dict[str, Any]
    by: ChosenBy
    usage: Usage | None
    model: str


async def _chosen(ctx: TaskContext, payload: ToolPayload, deps: TaskDeps) -> ToolChoice:
    tools = _available_tools(payload, deps)
    if payload.arguments is not None or not deps.settings.base_url:
        return await choose(ctx, payload, deps, tools)  # the request has it: nothing is paid for

    async def choose_by_model() -> _Choice:
        made = await choose(ctx, payload, deps, tools)
        return _Choice(made.tool.name, made.arguments, made.by, made.usage, made.model)

    recorded = await ctx.step("choose", choose_by_model)
    tool = next((each for each in tools if each.name == recorded.name), None)
    if tool is None:
        raise Fail("tool_unknown", f"this worker has no tool {recorded.name!r}, which was chosen")
    arguments = tool.check(recorded.arguments)
    return ToolChoice(tool, arguments, recorded.by, recorded.usage, recorded.model)


def _available_tools(payload: ToolPayload, deps: TaskDeps) -> list[Tool]:
    """The functions to select from."""
    functions = deps.functions()
    if unknown := [name for name in payload.tools or () if name not in functions]:
        known = ", ".join(sorted(functions)) or "none"
        raise Fail("tool_unknown", f"no tool is named {unknown[0]!r}; this worker has: {known}")
    if not functions:
        raise Fail("tool_no_match", "this worker has no tools; register one with @app.tool")
    names = dict.fromkeys(payload.tools or functions)  # each once
    return [as_tool(name, functions[name]) for name in names]


async def _run(ctx: TaskContext, choice: ToolChoice, deps: TaskDeps) -> object:
    """Run the function. After it has started, this raises only Fail: any other error would retry
    the job and call the function again."""
    name, limit_s = choice.tool.name, deps.settings.tool_timeout.total_seconds()
    outputs: list[object] = []

    async def once() -> Any:
        try:
            outputs.append(await _run_and_report(ctx, choice, limit_s))
        except TooMany:
            raise Retry(message="too many tools are running on this worker") from None
        return outputs[0]

    try:
        return await ctx.step_once("run", once)
    except Retry:
        raise
    except StepInterrupted:
        raise Fail(
            "tool_failed",
            f"a worker was lost while {name} was running: it is not run again; submit a new job if "
            "a second run is safe",
        ) from None
    except Fail as failed:
        if failed.code == "step_too_large" and outputs:  # too large for a record, not for a result
            return outputs[0]
        raise
    except asyncio.CancelledError:
        # Timeout or worker shutdown. (A canceled job ends as canceled anyway.)
        raise Fail(
            "tool_failed", f"the job was stopped while {name} was running; it is not run again"
        ) from None
    except Exception as error:
        _log.warning(
            "tool output not published tool=%(tool)s; the job fails", {"tool": name}, exc_info=True
        )
        raise Fail("tool_failed", f"the output of {name} cannot be published: {error}") from error


async def _run_and_report(ctx: TaskContext, choice: ToolChoice, limit_s: float) -> object:
    started = time.monotonic()
    output: object = None
    problem: Fail | None = None
    try:
        output = await _output(choice, limit_s)
        fields = _event_fields(output)
    except Fail as failed:
        fields, problem = {"error": failed.message}, failed
    took_ms = round((time.monotonic() - started) * 1000)
    data = {"name": choice.tool.name, "ok": problem is None, **fields, "ms": took_ms}
    await ctx.emit("tool_result", data, step="tool.run")
    if problem is not None:
        raise problem
    return output


async def _output(choice: ToolChoice, limit_s: float) -> object:
    """The function's return value as JSON types."""
    name = choice.tool.name
    try:
        returned = await run(choice.tool.function, choice.arguments, limit_s)
    except TimeoutError:
        raise Fail("tool_timeout", f"{name} took longer than {limit_s:g} s") from None
    error = returned.error
    if isinstance(error, HandlerSignal):
        raise Fail("tool_failed", f"{name}: {error}") from error
    if error is not None:
        # Its message may contain secrets: it goes to the log only.
        _log.warning("tool failed tool=%(tool)s; the job fails", {"tool": name}, exc_info=error)
        raise Fail("tool_failed", f"{name} raised {type(error).__name__}") from error
    try:
        return msgspec.to_builtins(returned.value)
    except (TypeError, ValueError, RecursionError) as error:
        kind = type(returned.value).__name__
        raise Fail(
            "tool_failed", f"{name} returned a value of type {kind}, which has no JSON form"
        ) from error


def _event_fields(output: object) -> dict[str, object]:
    size = len(msgspec.json.encode(output))
    return {"result": output} if size <= _MAX_EVENT_OUTPUT else {"result_bytes": size}
