"""The contract's six tasks as cards: what each takes, and a payload that works."""

import msgspec

from jobwire.handlers.llm.tasks import TASKS
from jobwire.job.messages import TaskDefinition


def task_definitions() -> list[TaskDefinition]:
    """For lists of tasks, also while no worker is there."""
    return [
        TaskDefinition(
            task.name,
            msgspec.json.encode(msgspec.json.schema(task.payload)).decode(),
            msgspec.json.encode(task.example).decode(),
        )
        for task in TASKS
    ]
