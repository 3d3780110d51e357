"""The contract's six tasks as cards: what each takes, and a payload that works."""

import msgspec

from jobwire.handlers.llm.tasks import TASKS
from jobwire.job.messages import TaskCard


def task_cards() -> list[TaskCard]:
    """For lists of tasks, also while no worker is there."""
    return [
        TaskCard(
            task.name,
            msgspec.json.encode(msgspec.json.schema(task.payload)).decode(),
            msgspec.json.encode(task.example).decode(),
        )
        for task in TASKS
    ]
