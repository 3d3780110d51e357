"""B-26: every verb of a queue is reachable by Python, HTTP and the command line; the table of the
docs says how."""

from __future__ import annotations

from typing import Any, Final, cast

from jobwire.api import flows, queue_changes, queue_jobs, queues, schedulers
from jobwire.api.operation import Operation
from jobwire.client import AsyncQueue
from jobwire.systems.queues.direct_queue import BullQueue
from tests.support import clause
from tools import queue_verbs

MODULES: Final = (flows, queue_changes, queue_jobs, queues, schedulers)


def changes() -> list[Operation[Any]]:
    """The operations that change one queue."""
    every: list[object] = [each for module in MODULES for each in vars(module).values()]
    found = [cast("Operation[Any]", each) for each in every if isinstance(each, Operation)]
    return [each for each in found if each.method != "GET" and "/{queue}" in each.path]


@clause("B-26")
def test_b26_the_table_of_the_docs_is_that_of_the_code() -> None:
    page = queue_verbs.PAGE.read_text()
    assert queue_verbs.written(page) == page, "make queue-verbs"


@clause("B-26")
def test_b26_each_change_of_a_queue_has_a_method_and_a_command() -> None:
    by_method = {
        name: queue_verbs.operations(name)
        for name in queue_verbs.methods(AsyncQueue) & queue_verbs.methods(BullQueue)
    }
    commands = queue_verbs.commands()
    missing = [
        f"{each.method} {each.path}"
        for each in changes()
        if not any(each in by_method[name] for name in commands.keys() & by_method.keys())
    ]
    assert len(changes()) > 25
    assert missing == []
