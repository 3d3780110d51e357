"""JSON Schema of `tasks/{prediction_id}.json`, for programs that share the bucket (P-4)."""

from __future__ import annotations

from typing import Any, Final

from jobwire.systems.predictions.contract import (
    FAILED,
    MODE,
    PROCESSING,
    QUEUED,
    SUCCEEDED,
    TaskErrorCode,
)

_TEXT: Final = {"type": "string"}
_TEXT_OR_NULL: Final = {"type": ["string", "null"]}
_TIME: Final = {"type": "string", "format": "date-time"}


def task_schema() -> dict[str, Any]:
    """Both forms of the task object in one document; unknown members are allowed."""
    minimal = {
        "prediction_id": _TEXT,
        "chat_id": {"type": "integer"},
        "user_id": {"type": "integer"},
        "input_s3_key": _TEXT,
        "mode": {"type": "string", "examples": [MODE]},
        "created_at": _TIME,
    }
    extended = {
        **minimal,
        "telegram": _object(file_id=_TEXT_OR_NULL, message_id={"type": ["integer", "null"]}),
        "input": _object(s3_key=_TEXT, mime=_TEXT, size_bytes={"type": "integer"}),
        "replicate": _object(
            model=_TEXT,
            version=_TEXT_OR_NULL,
            webhook_events_filter={"type": "array", "items": _TEXT},
        ),
        "status": {"enum": [QUEUED, PROCESSING, SUCCEEDED, FAILED]},
        "updated_at": _TIME,
        "result": _object(output_url=_TEXT_OR_NULL, output_s3_key=_TEXT_OR_NULL),
        "error": _object(
            code={"type": ["string", "null"], "examples": [str(code) for code in TaskErrorCode]},
            message=_TEXT_OR_NULL,
        ),
        "jobwire": {"type": "object", "description": "members of jobwire itself"},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Predictions: tasks/{prediction_id}.json",
        "$defs": {
            "prediction.task": {
                "title": "The extended form of a task, which jobwire writes",
                "type": "object",
                "properties": extended,
                "required": ["prediction_id", "chat_id", "status", "created_at"],
            },
            "prediction.task.minimal": {
                "title": "The minimal form of a task, which jobwire reads too",
                "type": "object",
                "properties": minimal,
                "required": ["prediction_id", "chat_id"],
            },
        },
    }


def _object(**properties: object) -> dict[str, Any]:
    return {"type": "object", "properties": properties}
