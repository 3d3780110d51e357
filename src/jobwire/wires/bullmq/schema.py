"""JSON Schema of the BullMQ wire, made from the contract: job hash, events, payloads.

For `jobwire schema --system queues`. Every field of a hash or an event is text; what a text holds
is described.
"""

from typing import Any, Final

from jobwire.wires.bullmq.contract import Event, Extra, Field
from jobwire.wires.bullmq.payloads import PAYLOADS, payload_schema

Schema = dict[str, Any]
_TEXT: Final[Schema] = {"type": "string"}
_NUMBER: Final[Schema] = {"type": "string", "pattern": "^-?[0-9]+$"}
_JSON: Final[Schema] = {"type": "string", "contentMediaType": "application/json"}
_FIELDS: Final[dict[Field | Extra, Schema]] = {
    **dict.fromkeys(Field, _TEXT),
    **dict.fromkeys(
        (
            Field.TIMESTAMP,
            Field.DELAY,
            Field.PRIORITY,
            Field.PROCESSED_ON,
            Field.FINISHED_ON,
            Field.ATTEMPTS_STARTED,
            Field.ATTEMPTS_MADE,
            Field.STALLED,
        ),
        _NUMBER,
    ),
    **dict.fromkeys(
        (
            Field.DATA,
            Field.OPTS,
            Field.PARENT,
            Field.PROGRESS,
            Field.RETURN_VALUE,
            Field.STACKTRACE,
        ),
        _JSON,
    ),
    Extra.WORKER_ID: _TEXT,
}
_REQUIRED: Final = (Field.NAME, Field.DATA, Field.OPTS, Field.TIMESTAMP)
_EVENT: Final = "event"
_JOB_ID: Final = "jobId"
_WITHOUT_JOB: Final = frozenset({Event.DRAINED, Event.PAUSED, Event.RESUMED})


def wire_schema() -> Schema:
    """One document with a definition for each kind of message."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:jobwire:schema:queues",
        "title": "The BullMQ wire",
        "$defs": {
            "queue_job": _job(),
            "queue_event": _event(),
            **{f"payload.{queue}": _payload(queue) for queue in PAYLOADS},
        },
    }


def _job() -> Schema:
    return {
        "description": "the hash <prefix>:<queue>:<job id>; unknown fields are allowed",
        "type": "object",
        "properties": {str(field): kind for field, kind in _FIELDS.items()},
        "required": [str(field) for field in _REQUIRED],
    }


def _event() -> Schema:
    """The names that this wire writes; a reader meets others too."""
    return {
        "description": "an entry of the stream <prefix>:<queue>:events; unknown fields are allowed",
        "type": "object",
        "properties": {
            _EVENT: {"type": "string", "examples": [str(event) for event in Event]},
            _JOB_ID: _TEXT,
            str(Extra.TIMESTAMP): _NUMBER,
            "data": _JSON,
            str(Field.RETURN_VALUE): _JSON,
            str(Field.FAILED_REASON): _TEXT,
        },
        "required": [_EVENT],
        "if": {"properties": {_EVENT: {"enum": sorted(set(Event) - _WITHOUT_JOB)}}},
        "then": {"required": [_JOB_ID]},
    }


def _payload(queue: str) -> Schema:
    """It has an `$id` of its own: it refers to no definition of this document."""
    return payload_schema(queue) or {}
