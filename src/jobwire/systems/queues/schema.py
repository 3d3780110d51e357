"""JSON Schema of the BullMQ wire, made from the contract: job hash, events, payloads.

For `jobwire schema --system queues`. Every field of a hash or an event is text; what a text holds
is described.
"""

from typing import Any, Final

from jobwire.systems.queues.contract import Event, EventField, Extra, Field
from jobwire.systems.queues.payloads import PAYLOADS, payload_schema

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
            # Each has an `$id` of its own: it refers to no definition of this document.
            **{f"payload.{queue}": payload_schema(queue) for queue in PAYLOADS},
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
            str(EventField.EVENT): {"type": "string", "examples": [*map(str, Event)]},
            str(EventField.JOB_ID): _TEXT,
            str(Extra.TIMESTAMP): _NUMBER,
            str(EventField.DATA): _JSON,
            str(Field.RETURN_VALUE): _JSON,
            str(Field.FAILED_REASON): _TEXT,
        },
        "required": [str(EventField.EVENT)],
        "if": {"properties": {str(EventField.EVENT): {"enum": sorted(set(Event) - _WITHOUT_JOB)}}},
        "then": {"required": [str(EventField.JOB_ID)]},
    }
