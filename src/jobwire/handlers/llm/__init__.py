"""The six tasks: chat, plan, code, tool, rag, embed.

    chat plan code tool rag embed  one module per task: a function of context, payload and deps
    payloads, tasks                schemas of payloads and results; the list of tasks with examples
    models/                        model drivers: an OpenAI-compatible server, or llama.cpp
    generation, streaming          from a model's answer to events, with retries and time limits
    tools, tool_selection          the functions that `tool` may call, and how one is selected
    literal_calls                  requests that are a call, word for word

`register` adds them to an app and imports their modules; a model is loaded when a task needs it.
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
    """The part of an app that `register` uses."""

    @property
    def handlers(self) -> Mapping[str, object]: ...

    @property
    def tools(self) -> Mapping[str, Callable[..., object]]: ...

    def handler(self, task: str, *, example: object = None) -> Callable[[F], F]: ...

    def check(self, check: Callable[[], Iterable[MissingRequirement]], /) -> object: ...


def register(app: AppLike, settings: LlmSettings, models: Models | None = None) -> Models:
    """Add the six tasks to an app, except those that it handles itself; TypeError for an invalid
    tool. Returns the models, to be closed with the worker; apps of one process may share them.
    """
    from jobwire.handlers.llm import literal_calls
    from jobwire.handlers.llm.models.factory import Models
    from jobwire.handlers.llm.samples import SAMPLES
    from jobwire.handlers.llm.task_deps import TaskDeps
    from jobwire.handlers.llm.tasks import TASKS
    from jobwire.handlers.llm.tools import as_tool

    check_tools(app.tools)
    models = Models(settings) if models is None else models
    deps = TaskDeps(settings, models, lambda: app.tools or SAMPLES)
    for task in TASKS:
        if task.name not in app.handlers:
            example = task.example
            if task.name == "tool" and app.tools:  # the default is for the sample tools
                name, function = next(iter(app.tools.items()))
                call = literal_calls.example(as_tool(name, function))
                example = {"prompt": call, "tools": [name], "run": False}
            app.handler(task.name, example=example)(_handler(task, deps))
    app.check(models.missing_requirements)
    return models


def check_tools(functions: Mapping[str, Callable[..., object]]) -> None:
    """TypeError, with one line, if a function cannot be a tool."""
    from jobwire.handlers.llm.tools import as_tool

    for name, function in functions.items():
        as_tool(name, function)


def _handler(task: LlmTask, deps: TaskDeps) -> Callable[..., object]:
    from jobwire.handlers.llm.generation import begin

    async def handler(ctx: TaskContext, payload: object) -> object:
        await begin(ctx)
        return await task.run(ctx, payload, deps)

    handler.__name__ = handler.__qualname__ = task.name
    # The app validates payloads against this annotation and passes the context by its name.
    handler.__annotations__ = {"payload": task.payload}
    return handler
