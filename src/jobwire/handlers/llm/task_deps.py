"""The dependencies of every task. Created once per worker."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from jobwire.handlers.context import TaskContext
from jobwire.handlers.llm.generation import Generation, generate
from jobwire.handlers.llm.models import ChatRequest, Form, Free, Message
from jobwire.handlers.llm.models.factory import Models
from jobwire.handlers.llm.payloads import Common
from jobwire.handlers.llm.settings import LlmSettings
from jobwire.handlers.llm.streaming import Emitter

Functions = Mapping[str, Callable[..., object]]


@dataclass(frozen=True, slots=True)
class TaskDeps:
    """The models, the settings, and the functions that `tool` may call."""

    settings: LlmSettings
    models: Models
    functions: Callable[[], Functions]

    def limit_s(self, payload: Common) -> float:
        """The time limit for the whole answer."""
        return payload.timeout_s or self.settings.timeout.total_seconds()

    async def answer(
        self,
        ctx: TaskContext,
        payload: Common,
        messages: Sequence[Message],
        emitter: Emitter,
        form: Form = Free(),  # noqa: B008 - frozen
    ) -> Generation:
        """Generate an answer with the options of the payload."""
        request = ChatRequest(
            messages=messages,
            max_tokens=payload.max_tokens,
            model=payload.model,
            temperature=payload.temperature,
            seed=payload.seed,
            stop=[payload.stop] if isinstance(payload.stop, str) else payload.stop,
            form=form,
        )
        return await generate(ctx, self.models.chat(), request, emitter, self.limit_s(payload))
