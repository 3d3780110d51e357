"""The task `tool`: finds the function that fulfils a wish, and runs it.

Never anything that is not registered, and never twice: once a function has begun, no retry, no
other worker and no second try calls it again.
"""

import asyncio
import logging
import time
from typing import Final

import msgspec

from jobwire.handlers.context import TaskContext
from jobwire.handlers.llm.payloads import ToolPayload, ToolResult
from jobwire.handlers.llm.task_deps import TaskDeps
from jobwire.handlers.llm.tool_runner import TooMany, run
from jobwire.handlers.llm.tool_selection import ToolChoice, choose
from jobwire.handlers.llm.tools import Tool, as_tool
from jobwire.job.errors import Fail, HandlerSignal, Retry

_log: Final = logging.getLogger("jobwire.handlers")
_LARGEST_SHOWN: Final = 16_384
"""Bytes of an output that an event carries; the result has it whole."""


async def tool(ctx: TaskContext, payload: ToolPayload, kit: TaskDeps) -> ToolResult:
    """Choose, then run."""
    choice = await choose(ctx, payload, kit, _offered(payload, kit))
    name, arguments = choice.tool.name, choice.arguments
    await ctx.emit("tool_call", {"name": name, "arguments": arguments}, step="tool.choose")
    output = await _run(ctx, choice, kit) if payload.run else None
    return ToolResult(name, arguments, choice.by, choice.score, payload.run, output)


def _offered(payload: ToolPayload, kit: TaskDeps) -> list[Tool]:
    """The functions to choose from."""
    functions = kit.functions()
    if unknown := [name for name in payload.tools or () if name not in functions]:
        known = ", ".join(sorted(functions)) or "none"
        raise Fail("tool_unknown", f"no tool is named {unknown[0]!r}; this worker has: {known}")
    if not functions:
        raise Fail("tool_no_match", "this worker has no tools; register one with @app.tool")
    return [as_tool(name, functions[name]) for name in payload.tools or functions]


async def _run(ctx: TaskContext, choice: ToolChoice, kit: TaskDeps) -> object:
    """The function's output. Once it has begun, only Fail comes out of here: anything else would
    have the job tried again, and the function called again."""
    name = choice.tool.name
    if ctx.job.deliveries > ctx.attempt:
        raise Fail(
            "tool_failed",
            f"a worker was lost with this job, perhaps while {name} was running: it is not run "
            "again; submit a new job if that does no harm",
        )
    try:
        return await _told(ctx, choice, kit.settings.tool_timeout.total_seconds())
    except TooMany:
        raise Retry(message="too many tools are running on this worker") from None
    except Fail:
        raise
    except asyncio.CancelledError:
        # By a time limit or the worker's end. (Canceled by somebody, the job ends so anyway.)
        raise Fail(
            "tool_failed", f"the job was stopped while {name} was running; it is not run again"
        ) from None
    except Exception as error:
        _log.warning("tool %s: its output could not be told", name, exc_info=True)
        raise Fail("tool_failed", f"what {name} returned cannot be told: {error}") from error


async def _told(ctx: TaskContext, choice: ToolChoice, limit_s: float) -> object:
    started = time.monotonic()
    output: object = None
    problem: Fail | None = None
    try:
        output = await _output(choice, limit_s)
        shown = _shown(output)
    except Fail as failed:
        shown, problem = {"error": failed.message}, failed
    took_ms = round((time.monotonic() - started) * 1000)
    told = {"name": choice.tool.name, "ok": problem is None, **shown, "ms": took_ms}
    await ctx.emit("tool_result", told, step="tool.run")
    if problem is not None:
        raise problem
    return output


async def _output(choice: ToolChoice, limit_s: float) -> object:
    """What the function returns, in plain values."""
    name = choice.tool.name
    try:
        output = await run(choice.tool.function, choice.arguments, limit_s)
    except TooMany:
        raise
    except TimeoutError:
        raise Fail("tool_timeout", f"{name} took longer than {limit_s:g} s") from None
    except HandlerSignal as signal:
        raise Fail("tool_failed", f"{name}: {signal}") from signal
    except Exception as error:
        # What it says may not be for everybody's eyes.
        _log.warning("tool %s failed", name, exc_info=True)
        raise Fail("tool_failed", f"{name} raised {type(error).__name__}") from error
    try:
        return msgspec.to_builtins(output)
    except (TypeError, ValueError, RecursionError) as error:
        kind = type(output).__name__
        raise Fail("tool_failed", f"{name} returned a {kind} that has no JSON form") from error


def _shown(output: object) -> dict[str, object]:
    size = len(msgspec.json.encode(output))
    return {"result": output} if size <= _LARGEST_SHOWN else {"result_bytes": size}
