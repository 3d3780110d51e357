"""The table of a queue's verbs in `docs/queues.md`: where each can be reached (B-26).

Made from what there is: the methods of `BullQueue` and of the client's queue, the operations that
those methods call, and the commands that call those methods. `make queue-verbs` writes it; a test
compares.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any, Final

from jobwire.api import flows, queue_changes, queue_jobs, queues, schedulers
from jobwire.api.operation import Operation
from jobwire.cli import queue as queue_command
from jobwire.client import AsyncQueue, queue_calls
from jobwire.systems.queues.direct_queue import BullQueue

PAGE: Final = Path(__file__).parent.parent / "docs" / "queues.md"
_FIRST: Final = "<!-- written by tools/queue_verbs.py -->\n"
_LAST: Final = "<!-- end -->\n"
_API: Final = {
    "flows": flows,
    "queue_changes": queue_changes,
    "queue_jobs": queue_jobs,
    "queues": queues,
    "schedulers": schedulers,
}

NODE: Final[Mapping[str, str]] = {
    "add": "queue.add",
    "add_flow": "flowProducer.add",
    "add_log": "job.log",
    "add_many": "queue.addBulk",
    "cancel": "worker.cancelJob",
    "change_delay": "job.changeDelay",
    "change_priority": "job.changePriority",
    "children": "job.getChildrenValues, getIgnoredChildrenFailures",
    "clean": "queue.clean",
    "clear_logs": "job.clearLogs",
    "counts": "queue.getJobCounts",
    "deduplication_owner": "queue.getDeduplicationJobId",
    "delete": "job.remove",
    "detach": "job.removeChildDependency",
    "drain": "queue.drain",
    "events": "QueueEvents",
    "flow": "flowProducer.getFlow",
    "free_deduplication": "queue.removeDeduplicationKey",
    "job": "queue.getJob",
    "jobs": "queue.getJobs",
    "limits": "queue.getGlobalConcurrency, getGlobalRateLimit",
    "logs": "queue.getJobLogs",
    "obliterate": "queue.obliterate",
    "pause": "queue.pause",
    "promote": "job.promote",
    "promote_all": "queue.promoteJobs",
    "rate_limit": "queue.rateLimit",
    "remove_pending_children": "job.removeUnprocessedChildren",
    "remove_scheduler": "queue.removeJobScheduler",
    "resume": "queue.resume",
    "retry": "job.retry",
    "retry_all": "queue.retryJobs",
    "schedulers": "queue.getJobSchedulers",
    "set_concurrency": "queue.setGlobalConcurrency",
    "set_rate_limit": "queue.setGlobalRateLimit",
    "set_scheduler": "queue.upsertJobScheduler",
    "status": "queue.getJobCounts, getWorkers, getMetrics",
    "trim_events": "queue.trimEvents",
    "update_data": "job.updateData",
    "update_progress": "job.updateProgress",
    "wait": "job.waitUntilFinished",
}
"""Node's name of each method; the only part that is written by hand."""


def methods(kind: type) -> set[str]:
    """The public methods of a class."""
    found = inspect.getmembers(kind, inspect.isfunction)
    return {name for name, _ in found if not name.startswith("_")}


def operations(method: str) -> list[Operation[Any]]:
    """The operations that a method of the client calls, by itself or through another one."""
    function = getattr(AsyncQueue, method, None)
    if function is None:
        return []
    source = inspect.getsource(function)
    for name in re.findall(r"\bqueue_calls\.(\w+)", source):
        source += inspect.getsource(getattr(queue_calls, name))
    found = re.findall(rf"\b({'|'.join(_API)})\.([A-Z_]+)\b", source)
    if not found:
        return [
            each for other in re.findall(r"self\.(\w+)\(", source) for each in operations(other)
        ]
    return [getattr(_API[module], name) for module, name in dict.fromkeys(found)]


def commands() -> dict[str, list[str]]:
    """The commands that call each method of the client."""
    called: dict[str, list[str]] = {}
    for name, command in sorted(queue_command.command.commands.items()):
        for method in sorted(_called(_function(command.callback))):
            called.setdefault(method, []).append(name)
    return called


def _function(callback: Callable[..., object] | None) -> Callable[..., object]:
    assert callback is not None
    return inspect.unwrap(callback)


def _called(function: Callable[..., object]) -> set[str]:
    """Methods of a queue that a command calls itself."""
    return set(re.findall(r"\bopened\.(\w+)", inspect.getsource(function)))


def table() -> str:
    direct, client, by_command = methods(BullQueue), methods(AsyncQueue), commands()
    rows = [
        "| Node | Python | HTTP, below `/v1/queues/{queue}` | `jobwire queue` |",
        "|---|---|---|---|",
    ]
    for name in sorted(direct | client):
        only = (
            "" if name in direct & client else " (`BullQueue`)" if name in direct else " (client)"
        )
        cells = (
            _code(NODE[name].split(", ")),
            _code([name]) + only,
            _code(f"{each.method} {_short(each.path)}" for each in operations(name)),
            _code(by_command.get(name, [])),
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _short(path: str) -> str:
    return reduce(str.removeprefix, ("/v1/queues/", "{queue}"), path) or "/"


def _code(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def written(page: str) -> str:
    """The page with the table of now."""
    before, _, rest = page.partition(_FIRST)
    _, _, after = rest.partition(_LAST)
    return f"{before}{_FIRST}{table()}{_LAST}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
