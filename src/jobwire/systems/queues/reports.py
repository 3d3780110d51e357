"""Reports of a handler as they are written on this wire (B-7). Pure.

Progress is the bare JSON value in the hash and in the event, its message goes to the job's log; log
lines go to the log alone; other kinds are events of the queue.
"""

from typing import NamedTuple, cast

import msgspec

from jobwire.job.messages import Json, Report
from jobwire.systems.queues.checks import check_progress
from jobwire.systems.queues.codec import json_text
from jobwire.systems.queues.settings import BullSettings

_LOG = "log"
_PROGRESS = "progress"


class WireReport(NamedTuple):
    """Arguments of the script `report`."""

    kind: str
    value_json: str
    message: str = ""


def wire_report(report: Report, settings: BullSettings) -> WireReport:
    """RefusedError where the wire does not accept it."""
    if report.kind == _PROGRESS:
        return _progress(report, settings)
    if report.kind == _LOG:
        return WireReport(_LOG, "", _line(cast(Json, msgspec.json.decode(report.data_json))))
    return WireReport(report.kind, report.data_json)


def _progress(report: Report, settings: BullSettings) -> WireReport:
    value = cast(Json, msgspec.json.decode(report.data_json))
    message = ""
    # What `Context.progress` makes; a handler that emits progress itself chooses its own form.
    if isinstance(value, dict) and value.keys() == {"percent", "message"}:
        message = str(value["message"])
        value = value["percent"]
    value_json = json_text(value)
    check_progress(value_json, any_number=settings.any_progress)
    return WireReport(_PROGRESS, value_json, message)


def _line(data: Json) -> str:
    if not isinstance(data, dict):
        return data if isinstance(data, str) else json_text(data)
    rest = {name: value for name, value in data.items() if name not in {"message", "level"}}
    level, message = data.get("level", "info"), str(data.get("message", ""))
    head = message if level == "info" else f"{level}: {message}"
    return f"{head} {json_text(rest)}" if rest else head
