"""The task `chat`: a conversation, answered word by word."""

from collections.abc import Sequence

from jobwire.handlers.context import TaskContext
from jobwire.handlers.llm.models import Message
from jobwire.handlers.llm.payloads import ChatPayload, ChatResult, UsageResult
from jobwire.handlers.llm.streaming import TokenEmitter
from jobwire.handlers.llm.task_deps import TaskDeps


async def chat(ctx: TaskContext, payload: ChatPayload, kit: TaskDeps) -> ChatResult:
    """The model's next turn."""
    messages = conversation(payload, kit.settings.system)
    answer = await kit.answer(ctx, payload, messages, TokenEmitter(ctx))
    usage = UsageResult(*answer.usage) if answer.usage else None
    return ChatResult(answer.text, answer.finish_reason, usage, answer.model)


def conversation(payload: ChatPayload, system: str) -> Sequence[Message]:
    """All turns. There is always a first one for the system: without it a template may put in its
    own, and small models then answer nonsense."""
    turns = [Message(turn.role, turn.content) for turn in payload.messages]
    if payload.prompt is not None:
        turns.append(Message("user", payload.prompt))
    if any(turn.role == "system" for turn in turns):
        return turns
    return [Message("system", payload.system or system), *turns]
