"""The six tasks as definitions, and the JSON Schema of the Streams wire."""

import msgspec

from jobwire.handlers.llm.tasks import TASKS
from jobwire.job.messages import TaskDefinition
from jobwire.systems.jobs import schema as streams
from jobwire.systems.jobs.schema import WireSchema


def task_definitions() -> list[TaskDefinition]:
    """Return name, schema and example of the six tasks, which are listed even without a worker."""
    return [
        TaskDefinition(
            task.name,
            msgspec.json.encode(msgspec.json.schema(task.payload)).decode(),
            msgspec.json.encode(task.example).decode(),
        )
        for task in TASKS
    ]


def schema() -> WireSchema:
    """Return payloads, events and messages of the Streams wire as one document."""
    return streams.wire_schema(task_definitions())
