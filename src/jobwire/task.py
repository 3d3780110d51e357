"""A task with the types of its payload and result, shared by a handler and its clients. Pure.

`app.handler("resize")` attaches one to the function, so that `client.run(resize, payload)` is
checked and typed. A producer that cannot import the handler declares its own:

    RESIZE = Task("resize", Resize, Size)
"""

from typing import Any, Final, Generic, Protocol, TypeVar, cast

import msgspec

from jobwire.json_types import converted

P = TypeVar("P")
R = TypeVar("R")
P_contra = TypeVar("P_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)

ATTRIBUTE: Final = "jobwire_task"
"""The attribute of a handler's function that has its Task."""


AMBIGUOUS: Final = "several tasks"
"""In its place for a function that is the handler of several tasks."""


class Task(Generic[P_contra, R_co]):
    """The name of a task, and the types of its payload and result."""

    __slots__ = ("name", "result_type")

    def __init__(self, name: str, payload: "type[P_contra]", result: "type[R_co]") -> None:
        del payload  # for the type checker; the worker checks payloads
        self.name = name
        self.result_type: object = result

    @property
    def jobwire_task(self) -> "Task[P_contra, R_co]":
        return self

    def read_result(self, result: object) -> R_co:
        """The result as JSON has it, converted to its type; ValueError if it does not fit."""
        try:
            return cast(R_co, converted(result, self.result_type))
        except (msgspec.ValidationError, TypeError) as error:
            raise ValueError(str(error)) from None


class HasTask(Protocol[P_contra, R_co]):
    """A Task, or a function that is the handler of one."""

    @property
    def jobwire_task(self) -> Task[P_contra, R_co]: ...


def task_of(given: object) -> Task[Any, Any]:
    """The Task of a handler's function, or the Task itself; TypeError if there is none."""
    task = getattr(given, ATTRIBUTE, None)
    if not isinstance(task, Task):
        raise TypeError(
            f"{given!r} is not a task: give its name, a Task, or a function that is registered for "
            "exactly one task"
        )
    return cast("Task[Any, Any]", task)
