"""The task `chat`: answers a conversation, token by token."""

from collections.abc import Sequence

from jobwire.handlers.context import TaskContext
from jobwire.handlers.llm.models import Message
from jobwire.handlers.llm.payloads import ChatPayload, ChatResult, UsageResult
from jobwire.handlers.llm.streaming import TokenEmitter
from jobwire.handlers.llm.task_deps import TaskDeps


async def chat(ctx: TaskContext, payload: ChatPayload, deps: TaskDeps) -> ChatResult:
    """Generate the next turn."""
    messages = conversation(payload, deps.settings.system)
    answer = await deps.answer(ctx, payload, messages, TokenEmitter(ctx))
    usage = UsageResult(*answer.usage) if answer.usage else None
    return ChatResult(answer.text, answer.finish_reason, usage, answer.model)


def conversation(payload: ChatPayload, system: str) -> Sequence[Message]:
    """All turns. The first is always a system turn: without one a template may insert its own,
    and small models then answer nonsense."""
    turns = [Message(turn.role, turn.content) for turn in payload.messages]
    if payload.prompt is not None:
        turns.append(Message("user", payload.prompt))
    if any(turn.role == "system" for turn in turns):
        return turns
    return [Message("system", payload.system or system), *turns]
