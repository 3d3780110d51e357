"""JSON Schema of the image wire, made from the contract: status, results, events.

For `jobwire schema`: authors of other gateways and readers validate against it. Every field on the
server is text.
"""

from collections.abc import Iterable
from typing import Any, Final

from jobwire.systems.images.contract import (
    FAILURE_FIELDS,
    LONGEST_CODE,
    STORAGE_KEY,
    SUCCESS_FIELDS,
    TERMINAL_STAGES,
    ImageErrorCode,
    ResultExtra,
    ResultField,
    ResultStatus,
    Stage,
    StatusField,
)

Schema = dict[str, Any]
_TEXT: Final[Schema] = {"type": "string", "minLength": 1}
_NUMBER: Final[Schema] = {"type": "string", "pattern": "^[0-9]+$"}
_TIME: Final[Schema] = {"type": "string", "format": "date-time"}
_PART: Final[Schema] = {"type": "string", "pattern": r"^(0(\.[0-9]{1,9})?|1(\.0{1,9})?)$"}
_IGNORED: Final = "an extra of jobwire; may be ignored"
_RESULT: Final[dict[ResultField, Schema]] = {
    ResultField.SHA256: {"type": "string", "pattern": "^[0-9a-f]{64}$"},
    ResultField.FILE_SIZE: _NUMBER,
    ResultField.ORIGINAL_WIDTH: _NUMBER,
    ResultField.ORIGINAL_HEIGHT: _NUMBER,
    ResultField.PROCESSED_WIDTH: _NUMBER,
    ResultField.PROCESSED_HEIGHT: _NUMBER,
    ResultField.PROCESSED_AT: _TIME,
    ResultField.FAILED_AT: _TIME,
    ResultField.ERROR_CODE: {**_TEXT, "maxLength": LONGEST_CODE, "examples": list(ImageErrorCode)},
    ResultField.ETAG: {"type": "string"},
    ResultField.STORAGE_KEY: {"type": "string", "pattern": f"^{STORAGE_KEY.pattern}$"},
}


def schema() -> Schema:
    """One document with a definition for each kind of message."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:jobwire:schema:images",
        "title": "The image wire",
        "$defs": {
            "image_status": _status(),
            "image_processed": _result(SUCCESS_FIELDS, ResultStatus.PROCESSED),
            "image_failed": _result(FAILURE_FIELDS, ResultStatus.FAILED),
            "image_event": _event(),
        },
    }


def _status() -> Schema:
    return {
        "description": "the hash image:status:{image_id}",
        **_object(
            {
                StatusField.STAGE: {"enum": list(Stage)},
                StatusField.PROGRESS: {"type": "string", "pattern": "^(-1|[0-9]{1,2}|100)$"},
                StatusField.UPDATED_AT: _TIME,
                StatusField.ERROR: _TEXT,
            },
            optional={StatusField.ERROR},
        ),
    }


def _result(fields: Iterable[ResultField], status: ResultStatus) -> Schema:
    properties: dict[str, Schema] = {field: _RESULT.get(field, _TEXT) for field in fields}
    properties[ResultField.STATUS] = {"const": status}
    optional = {ResultField.ETAG, *ResultExtra}
    if status is ResultStatus.PROCESSED:
        properties[ResultExtra.HIDDEN_AREAS] = {**_NUMBER, "description": _IGNORED}
        properties[ResultExtra.HIDDEN_PART] = {**_PART, "description": _IGNORED}
    return {
        "description": "an entry of the stream image:result",
        **_object(properties, optional=optional),
    }


def _event() -> Schema:
    running = [stage for stage in Stage if stage not in TERMINAL_STAGES]
    return {
        "description": (
            "the data of an event of /v1/images/{id}/events: `ready` (done), `failed`, or "
            f"`processing` ({', '.join(running)})"
        ),
        **_object(
            {
                StatusField.STAGE: {"enum": list(Stage)},
                StatusField.PROGRESS: {"type": "integer", "minimum": -1, "maximum": 100},
                StatusField.UPDATED_AT: {"type": "string"},
                StatusField.ERROR: _TEXT,
                ResultExtra.HIDDEN_AREAS: {
                    "type": "integer",
                    "minimum": 0,
                    "description": "with `ready`, if it is known",
                },
                ResultExtra.HIDDEN_PART: {
                    "type": "number",
                    "minimum": 0,
                    "maximum": 1,
                    "description": "with `ready`, if it is known",
                },
            },
            optional={StatusField.ERROR, *ResultExtra},
        ),
    }


def _object(properties: dict[Any, Schema], *, optional: Iterable[str] = ()) -> Schema:
    required = [str(name) for name in properties if name not in set(optional)]
    return {
        "type": "object",
        "properties": {str(name): value for name, value in properties.items()},
        "required": required,
        "additionalProperties": False,
    }
