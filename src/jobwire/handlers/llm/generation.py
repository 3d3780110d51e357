"""Has a model answer, and tells it while it does: every task's way to its words.

One answer may take several tries; each starts from nothing and says so (`reset`). What a driver
calls trouble becomes a signal to the worker here, when no try is left. Cancelling closes the
connection to the model at once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, TypeVar

from jobwire.handlers.context import TaskContext
from jobwire.handlers.llm.coalescing import Coalescer
from jobwire.handlers.llm.models import Chat, ChatRequest, End, Piece, Reading, Text, Usage
from jobwire.handlers.llm.models.errors import Again, ModelError, wait_s
from jobwire.handlers.llm.streaming import Emitter
from jobwire.job.ids import random_fraction

_UNTOLD: Final = 256
"""Pieces that may wait for slow watchers; then the model waits."""

_LONG_PROMPT: Final = 256
"""Tokens; a shorter one is read before anybody has looked."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Generation:
    """What a model said, to its end."""

    text: str
    finish_reason: str
    """`stop`, `length`, or `enough` where we stopped it ourselves."""
    usage: Usage | None
    model: str


async def generate(
    ctx: TaskContext, chat: Chat, ask: ChatRequest, teller: Emitter, limit_s: float
) -> Generation:
    """The model's answer, told as it comes; Fail or Retry where there is none."""

    async def once() -> Generation:
        teller.forget()
        return await _listen(ctx, chat, ask, teller)

    async def before_next(trouble: ModelError, wait: float) -> None:
        await _reset(ctx, trouble.code, wait)

    return await with_retries(once, before_next, limit_s)


async def with_retries(
    once: Callable[[], Awaitable[T]],
    before_next: Callable[[ModelError, float], Awaitable[None]],
    limit_s: float,
) -> T:
    """Try as often as the trouble allows, and no longer than `limit_s` in all."""
    loop = asyncio.get_running_loop()
    until = loop.time() + limit_s
    made = 0
    while True:
        limit = asyncio.timeout_at(until)
        try:
            async with limit:
                return await once()
        except TimeoutError:
            if not limit.expired():
                raise
            trouble = ModelError(
                "backend_timeout", f"the answer took longer than {limit_s:g} s", Again.ONCE
            )
            raise trouble.signal() from None
        except ModelError as trouble:
            wait = wait_s(trouble, made, until - loop.time(), random_fraction())
            if wait is None:
                raise trouble.signal() from trouble
            made += 1
            await before_next(trouble, wait)
            await asyncio.sleep(wait)


async def begin(ctx: TaskContext) -> None:
    """A job that was begun before, here or elsewhere, may have told something: drop it."""
    if ctx.attempt > 1 or ctx.job.deliveries > 1:
        await _reset(ctx, "the job was started again", 0.0)


async def _reset(ctx: TaskContext, reason: str, wait: float) -> None:
    data = {"attempt": ctx.attempt, "reason": reason, "wait_s": round(wait, 2)}
    await ctx.emit("reset", data, step="llm.retry")


async def _listen(ctx: TaskContext, chat: Chat, ask: ChatRequest, teller: Emitter) -> Generation:
    """One try. The model is read by a task of its own, so that a pause in its words does not hold
    back those that have come."""
    inbox: asyncio.Queue[Piece | ModelError] = asyncio.Queue(_UNTOLD)

    async def read() -> None:
        try:
            async with aclosing(chat.ask(ask)) as pieces:
                async for piece in pieces:
                    await inbox.put(piece)
        except ModelError as trouble:
            await inbox.put(trouble)

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read())
        try:
            heard = await _tell(ctx, inbox, teller)
        finally:
            reading.cancel()
    if isinstance(heard, ModelError):  # raised here: a task group would wrap it
        raise heard
    return heard


async def _tell(
    ctx: TaskContext, inbox: "asyncio.Queue[Piece | ModelError]", teller: Emitter
) -> Generation | ModelError:
    now = asyncio.get_running_loop().time
    text, waiting = "", Coalescer()
    while True:
        is_due = False
        try:
            async with asyncio.timeout_at(waiting.due):
                piece = await inbox.get()
        except TimeoutError:
            is_due = True
        else:
            match piece:
                case Text(more):
                    text += more
                    is_due = waiting.add(more, now())
                case Reading(done, total):
                    await _read_so_far(ctx, done, total)
                case End(finish_reason, usage, model):
                    await teller.emit(text)
                    return Generation(text, finish_reason, usage, model)
                case ModelError():
                    await teller.emit(text)  # what there was is kept as the partial result
                    return piece
        if is_due:
            waiting.told()
            if await teller.emit(text):
                return Generation(text, "enough", None, "")


async def _read_so_far(ctx: TaskContext, done: int, total: int) -> None:
    if total < _LONG_PROMPT or not done:
        return
    data = {
        "percent": 100 * done // total,
        "message": "the model reads the prompt",
        "done": done,
        "total": total,
    }
    await ctx.emit("progress", data, step="llm.prompt")
