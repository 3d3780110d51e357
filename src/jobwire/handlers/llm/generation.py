"""Generates one answer of a model, with events while it grows. Used by every task.

One answer may take several calls of the model; each retry starts over and emits `reset`. When no
retry is left, the driver's ModelError becomes Fail or Retry for the worker. Cancellation closes the
connection to the model at once.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from jobwire.handlers.context import TaskContext
from jobwire.handlers.llm.coalescing import Coalescer
from jobwire.handlers.llm.models import (
    ChatModel,
    ChatRequest,
    End,
    Piece,
    Reading,
    Reasoning,
    Retracted,
    SoFar,
    Text,
    Usage,
    Waiting,
)
from jobwire.handlers.llm.models.errors import ModelError, RetryLimit, wait_s
from jobwire.handlers.llm.streaming import Emitter, ReasoningEmitter, emit_progress, emit_reset
from jobwire.job.errors import Fail
from jobwire.job.ids import random_fraction
from jobwire.job.messages import Json

_MAX_PENDING: Final = 256
"""Pieces that may wait for slow event delivery; then reading from the model pauses."""

_MAX_TOGETHER: Final = 200_000
"""Characters of an answer with its reasoning; of a longer one the reasoning is cut, so that the
answer fits into the result of the job."""

_END_S: Final = 1.0
"""How long to wait for the usage when no more text is needed."""

_LONG_PROMPT: Final = 256
"""Tokens; a shorter prompt gets no progress events."""

_WAIT_S: Final = 0.25
"""How often the job's own time limit is restarted while it waits for a busy model."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Generation:
    """A complete answer."""

    text: str
    finish_reason: str
    """`stop`, `length`, `tool_calls`, or `enough` if the emitter ended it."""
    usage: Usage | None
    model: str
    tool_calls: Sequence[Json] = ()
    reasoning: str = ""

    def check_complete(self, noun: str) -> None:
        """Fail if the token limit cut the answer; `noun` names it in the error."""
        if self.finish_reason == "length":
            raise Fail(
                "output_truncated", f"the {noun} was cut at the token limit; give more max_tokens"
            )


class AnswerTimeout:
    """The time limit of one answer with its retries. Waiting for a busy model does not count: the
    limit is suspended, and starts anew when the model's turn comes."""

    def __init__(self, limit_s: float) -> None:
        self._now = asyncio.get_running_loop().time
        self.limit_s = limit_s
        self._until = self._now() + limit_s
        self._scope: asyncio.Timeout | None = None

    @property
    def left_s(self) -> float:
        return self._until - self._now()

    @asynccontextmanager
    async def scope(self) -> AsyncGenerator[asyncio.Timeout]:
        """Limit the code inside."""
        async with asyncio.timeout_at(self._until) as self._scope:
            yield self._scope

    def suspend(self) -> None:
        """Count no time until `restart`."""
        if self._scope is not None and not self._scope.expired():
            self._scope.reschedule(None)

    def restart(self) -> None:
        """Count from now."""
        self._until = self._now() + self.limit_s
        if self._scope is not None and not self._scope.expired():
            self._scope.reschedule(self._until)


async def generate(
    ctx: TaskContext, chat: ChatModel, request: ChatRequest, emitter: Emitter, limit_s: float
) -> Generation:
    """Generate an answer with events; raises Fail or Retry."""

    async def once(timeout: AnswerTimeout) -> Generation:
        emitter.reset()
        return await _call(ctx, chat, request, emitter, timeout)

    async def before_retry(error: ModelError, wait: float) -> None:
        await emit_reset(ctx, error.code, wait)

    return await with_retries(once, before_retry, limit_s)


async def with_retries(
    once: Callable[[AnswerTimeout], Awaitable[T]],
    before_retry: Callable[[ModelError, float], Awaitable[None]],
    limit_s: float,
) -> T:
    """Call `once`, with retries as the error allows, for at most `limit_s` in total."""
    timeout = AnswerTimeout(limit_s)
    retries = 0
    while True:
        limit: asyncio.Timeout | None = None
        try:
            async with timeout.scope() as limit:
                return await once(timeout)
        except TimeoutError:
            if limit is None or not limit.expired():
                raise
            error = ModelError(
                "backend_timeout", f"the answer took longer than {limit_s:g} s", RetryLimit.ONCE
            )
            raise error.signal() from None
        except ModelError as error:
            wait = wait_s(error, retries, timeout.left_s, random_fraction())
            if wait is None:
                raise error.signal() from error
            retries += 1
            await before_retry(error, wait)
            await asyncio.sleep(wait)


async def begin(ctx: TaskContext) -> None:
    """Emit `reset` if an earlier run of the job may have emitted events. A release takes its
    delivery back."""
    if ctx.job.reported or ctx.attempt > 1 or ctx.job.deliveries > 1:
        await emit_reset(ctx, "the job was started again")


async def _call(
    ctx: TaskContext,
    chat: ChatModel,
    request: ChatRequest,
    emitter: Emitter,
    timeout: AnswerTimeout,
) -> Generation:
    """Call the model once. A separate task reads the pieces, so that text already received is
    emitted while the model pauses."""
    inbox: asyncio.Queue[Piece | ModelError] = asyncio.Queue(_MAX_PENDING)

    async def read() -> None:
        try:
            async with aclosing(chat.ask(request)) as pieces:
                async for piece in pieces:
                    await inbox.put(piece)
        except ModelError as error:
            await inbox.put(error)

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read())
        try:
            outcome = await _emit_pieces(ctx, inbox, emitter, timeout)
        finally:
            reading.cancel()
    if isinstance(outcome, ModelError):  # raised here: a task group would wrap it
        raise outcome
    if outcome.finish_reason == "length" and not outcome.text.strip():
        raise Fail(
            "output_truncated",
            "the model reached the token limit before it wrote an answer; give more max_tokens",
        )
    return outcome


async def _emit_pieces(
    ctx: TaskContext,
    inbox: "asyncio.Queue[Piece | ModelError]",
    emitter: Emitter,
    timeout: AnswerTimeout,
) -> Generation | ModelError:
    now = asyncio.get_running_loop().time
    text, coalescer = "", Coalescer()
    reasoning = ReasoningEmitter(ctx)
    is_waiting = False
    so_far = SoFar(None, "")
    while True:
        is_due = False
        try:
            async with asyncio.timeout_at(now() + _WAIT_S if is_waiting else coalescer.due):
                piece = await inbox.get()
        except TimeoutError:
            if is_waiting:
                ctx.restart_timeout()
            is_due = not is_waiting
        else:
            match piece:
                case Text(more):
                    text += more
                    is_due = coalescer.add(more, now())
                case Reasoning(more):
                    reasoning.add(more)
                    is_due = coalescer.add(more, now())
                case Retracted():
                    reasoning.add(text)
                    text = ""
                    emitter.reset()
                    coalescer.flush()
                    await emit_reset(ctx, "the text so far was reasoning")
                case Waiting(before):
                    is_waiting = before > 0
                    if is_waiting:
                        timeout.suspend()
                        await ctx.emit("waiting", {"before": before}, step="llm.wait")
                    else:
                        timeout.restart()
                    ctx.restart_timeout()
                case SoFar():
                    so_far = piece
                case Reading(done, total):
                    if done and total >= _LONG_PROMPT:
                        await emit_progress(
                            ctx, "llm.prompt", "the model reads the prompt", done, total
                        )
                case End(finish_reason, usage, model, tool_calls):
                    await reasoning.flush()
                    await emitter.emit(text)
                    kept = reasoning.text[: max(0, _MAX_TOGETHER - len(text))]
                    return Generation(text, finish_reason, usage, model, tool_calls, kept)
                case ModelError():
                    await reasoning.flush()
                    await emitter.emit(text)  # kept as the partial result
                    return piece
        if is_due:
            coalescer.flush()
            await reasoning.flush()
            if await emitter.emit(text):
                end = await _end(inbox, so_far)
                return Generation(text, "enough", end.usage, end.model)


async def _end(inbox: "asyncio.Queue[Piece | ModelError]", so_far: SoFar) -> End | SoFar:
    """The end of an answer of which no more text is needed. Most models end there by themselves;
    one that goes on is stopped. Its usage is then what the server has reported so far, if any."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_END_S):
            while True:
                match await inbox.get():
                    case SoFar() as so_far:
                        pass
                    case End() as end:
                        return end
                    case ModelError():
                        return so_far
                    case _:
                        pass
    return so_far
