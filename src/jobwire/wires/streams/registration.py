"""A worker's registration: what others read in `jobs:worker:<consumer>`, and when it was written.

The engine has one. The event loop writes it at each heartbeat; the renewal thread writes it where
the loop is late, so that a worker whose loop is blocked is not taken for gone (J-37). Nothing here
talks to a server.
"""

import os
import socket
import time
from collections.abc import Sequence

import jobwire
from jobwire.job.engine import MissingRequirements, no_missing_requirements
from jobwire.job.messages import TaskDefinition
from jobwire.valkey import Arg
from jobwire.wires.streams import contract
from jobwire.wires.streams.codec import write_missing_requirements, write_registration
from jobwire.wires.streams.contract import WorkerField
from jobwire.wires.streams.replies import wire_text
from jobwire.wires.streams.settings import StreamsSettings


class Registration:
    def __init__(self, settings: StreamsSettings, consumer: str) -> None:
        self.heartbeat_s = settings.heartbeat_s
        self._head: tuple[Arg, ...] = (consumer, round(3000 * settings.heartbeat_s))
        self._card: tuple[Arg, ...] = ()
        self._lacks = no_missing_requirements
        self._lacks_text = ""
        self._written_s = float("-inf")

    def fill(self, tasks: Sequence[TaskDefinition], slots: int, lacks: MissingRequirements) -> None:
        """What others are to know of this worker."""
        card: list[Arg] = [WorkerField.HOST, socket.gethostname(), WorkerField.PID, os.getpid()]
        card += (WorkerField.VERSION, jobwire.__version__, WorkerField.SLOTS, slots)
        for task in tasks:
            text = write_registration(task.schema_json, task.example_json)
            card += (wire_text(f"{contract.CARD_TASK}{task.name}"), text)
        self._card, self._lacks = tuple(card), lacks

    def withdraw(self) -> None:
        """Write it no more."""
        self._card = ()

    @property
    def is_filled(self) -> bool:
        return bool(self._card)

    @property
    def is_late(self) -> bool:
        """Whether a heartbeat is missing."""
        late_s = time.monotonic() - self._written_s - self.heartbeat_s
        return self.is_filled and late_s > self.heartbeat_s / 2

    def look(self) -> None:
        """Ask what the worker lacks: the user's code, so only in the event loop."""
        self._lacks_text = write_missing_requirements(self._lacks())

    def arguments(self) -> list[Arg]:
        """For the script `announce`."""
        return [*self._head, *self._card, WorkerField.LACKS, self._lacks_text]

    def written(self) -> None:
        """The server has it."""
        self._written_s = time.monotonic()
