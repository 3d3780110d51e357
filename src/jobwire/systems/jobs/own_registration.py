"""A worker's registration: the fields of `jobs:worker:<consumer>`, and when they were written.

The engine has one. The event loop writes it at each heartbeat; the renewal thread writes it where
the loop is late, so that a worker whose loop is blocked stays registered (J-37). Nothing here calls
the server.
"""

import os
import socket
import time
from collections.abc import Mapping, Sequence

import jobwire
from jobwire.job.engine import MissingRequirements, no_missing_requirements
from jobwire.job.messages import ServedQueue, TaskDefinition
from jobwire.systems.jobs import contract
from jobwire.systems.jobs.codec import (
    write_missing_requirements,
    write_registration,
    write_served_queues,
)
from jobwire.systems.jobs.contract import WorkerField
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Arg


class OwnRegistration:
    def __init__(self, settings: StreamsSettings, consumer: str) -> None:
        self.heartbeat_s = settings.heartbeat_s
        self._head: tuple[Arg, ...] = (consumer, round(3000 * settings.heartbeat_s))
        self._fields: tuple[Arg, ...] = ()
        self._missing_requirements = no_missing_requirements
        self._slots = 0
        self._missing_text = ""
        self._served_text = ""
        self._written_s = float("-inf")

    def fill(
        self,
        tasks: Sequence[TaskDefinition],
        missing_requirements: MissingRequirements,
        queues: Sequence[str],
        task_queues: Mapping[str, str],
    ) -> None:
        """Set the contents; `queues` are those that the worker reads, `task_queues` those in which
        jobs of its tasks are enqueued."""
        fields: list[Arg] = [WorkerField.HOST, socket.gethostname(), WorkerField.PID, os.getpid()]
        fields += (WorkerField.VERSION, jobwire.__version__)
        fields += (WorkerField.QUEUES, " ".join(queues))
        for task in tasks:
            queue = task_queues.get(task.name, contract.DEFAULT_QUEUE)
            if task.name in task_queues and queue not in queues:
                continue  # it is left to workers that read that queue
            text = write_registration(task, task_queues)
            fields += (f"{contract.TASK_FIELD}{task.name}", text)
        self._fields, self._missing_requirements = tuple(fields), missing_requirements

    def set_slots(self, slots: int) -> None:
        """The worker has so many slots from now on."""
        self._slots = slots

    def describe_process(self, served: Sequence[ServedQueue]) -> None:
        """Set the queues that the whole process serves, on all wires."""
        self._served_text = write_served_queues(served)

    def withdraw(self) -> None:
        """Stop writing it."""
        self._fields = ()

    @property
    def is_filled(self) -> bool:
        return bool(self._fields)

    @property
    def is_late(self) -> bool:
        """Whether a heartbeat is overdue."""
        late_s = time.monotonic() - self._written_s - self.heartbeat_s
        return self.is_filled and late_s > self.heartbeat_s / 2

    def check_requirements(self) -> None:
        """Call the user's requirement checks; only in the event loop."""
        self._missing_text = write_missing_requirements(self._missing_requirements())

    def arguments(self) -> list[Arg]:
        """Arguments of the script `heartbeat`."""
        changing = (WorkerField.SLOTS, self._slots, WorkerField.LACKS, self._missing_text)
        changing += (WorkerField.SERVES, self._served_text)
        return [*self._head, *self._fields, *changing]

    def written(self) -> None:
        """Note that the server has it."""
        self._written_s = time.monotonic()
