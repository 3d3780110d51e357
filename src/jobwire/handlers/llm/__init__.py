"""The six tasks: chat, plan, code, tool, rag, embed.

    one file a task    chat plan code tool rag embed, each a function of context, payload and kit
    payloads, tasks    what they are asked and answer, and the list of them with examples
    models/            a server anywhere or llama.cpp in a process of ours, behind one seam
    speaking, telling  from a model's words to events, with tries, resets and time limits
    tools, choosing    the functions that `tool` may call, and how one is found

`register` gives them to an app. Nothing of it is loaded before, and no model before a task runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

from jobwire.handlers.context import TaskContext
from jobwire.handlers.llm.settings import LlmSettings
from jobwire.job.messages import MissingRequirement

if TYPE_CHECKING:
    from jobwire.handlers.llm.models.factory import Models
    from jobwire.handlers.llm.task_deps import TaskDeps
    from jobwire.handlers.llm.tasks import LlmTask

F = TypeVar("F", bound=Callable[..., object])

__all__ = ["LlmSettings", "check_tools", "register"]


class AppLike(Protocol):
    """What we need of an app."""

    @property
    def handlers(self) -> Mapping[str, object]: ...

    @property
    def tools(self) -> Mapping[str, Callable[..., object]]: ...

    def handler(self, task: str, *, example: object = None) -> Callable[[F], F]: ...

    def check(self, look: Callable[[], Iterable[MissingRequirement]], /) -> object: ...


def register(app: AppLike, settings: LlmSettings, models: Models | None = None) -> Models:
    """Give the app the six tasks, but for those that it has already; a tool that cannot be one is
    told now. Returns the models, to be closed with the worker; apps of one process may share them.
    """
    from jobwire.handlers.llm.models.factory import Models
    from jobwire.handlers.llm.samples import SAMPLES
    from jobwire.handlers.llm.task_deps import TaskDeps
    from jobwire.handlers.llm.tasks import TASKS
    from jobwire.handlers.llm.tools import as_tool

    check_tools(app.tools)
    models = Models(settings) if models is None else models
    kit = TaskDeps(settings, models, lambda: app.tools or SAMPLES)
    for task in TASKS:
        if task.name not in app.handlers:
            example = task.example
            if task.name == "tool" and app.tools:  # the usual one is for the samples
                name, function = next(iter(app.tools.items()))
                example = {"prompt": as_tool(name, function).description, "tools": [name]}
            app.handler(task.name, example=example)(_handler(task, kit))
    app.check(models.missing_requirements)
    return models


def check_tools(functions: Mapping[str, Callable[..., object]]) -> None:
    """TypeError with one clear line where a function cannot be a tool."""
    from jobwire.handlers.llm.tools import as_tool

    for name, function in functions.items():
        as_tool(name, function)


def _handler(task: LlmTask, kit: TaskDeps) -> Callable[..., object]:
    from jobwire.handlers.llm.generation import begin

    async def handler(ctx: TaskContext, payload: object) -> object:
        await begin(ctx)
        return await task.run(ctx, payload, kit)

    handler.__name__ = handler.__qualname__ = task.name
    # An app reads a handler's annotations: the payload's is what payloads are checked against, and
    # the context is known by its name, whoever's class it is.
    handler.__annotations__ = {"payload": task.payload}
    return handler
