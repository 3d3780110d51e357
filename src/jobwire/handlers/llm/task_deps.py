"""The dependencies of every task. Created once per worker."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from jobwire.handlers.context import TaskContext
from jobwire.handlers.llm.generation import Generation, generate
from jobwire.handlers.llm.models import ChatRequest, Form, Free, Message
from jobwire.handlers.llm.models.factory import Models
from jobwire.handlers.llm.payloads import Common
from jobwire.handlers.llm.settings import LlmSettings
from jobwire.handlers.llm.streaming import Emitter
from jobwire.job.messages import Json
from jobwire.json_schema.isolated import IsolatedChecks

_SHOWN: Final = 50
"""Characters of a name, and names, in a log event."""
Functions = Mapping[str, Callable[..., object]]


@dataclass(frozen=True, slots=True)
class TaskDeps:
    """The models, the settings, the functions that `tool` may call, and the checks of schemas."""

    settings: LlmSettings
    models: Models
    functions: Callable[[], Functions]
    schema_checks: IsolatedChecks = field(default_factory=IsolatedChecks)

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
        options: Mapping[str, Json] | None = None,
    ) -> Generation:
        """Generate an answer with the options of the payload; `options`: members of the body."""
        request = ChatRequest(
            messages=messages,
            max_tokens=payload.max_tokens,
            model=payload.model,
            temperature=payload.temperature,
            seed=payload.seed,
            stop=[payload.stop] if isinstance(payload.stop, str) else payload.stop,
            form=form,
            options={**await self._options(ctx, payload), **(options or {})},
        )
        return await generate(ctx, self.models.chat(), request, emitter, self.limit_s(payload))

    async def _options(self, ctx: TaskContext, payload: Common) -> dict[str, Json]:
        """Members of the request that are passed on; a `log` event names those that are not."""
        allowed = self.settings.extra_members
        if unknown := [name[:_SHOWN] for name in payload.extra if name not in allowed]:
            message = f"not sent to the model: {', '.join(unknown[:_SHOWN])}; see llm.extra_members"
            await ctx.emit("log", {"level": "warning", "message": message}, step="llm.generate")
        options: dict[str, Json] = {k: v for k, v in payload.extra.items() if k in allowed}
        for name in ("top_p", "presence_penalty", "frequency_penalty"):
            if (value := getattr(payload, name)) is not None:
                options[name] = value
        return options
