"""JSON Schema of the BullMQ wire, made from the contract: job hash, events, payloads.

For `jobwire schema --system queues`. Every field of a hash or an event is text; what a text holds
is described.
"""

from typing import Any, Final

from jobwire.systems.queues.contract import BullEventField, BullExtra, BullField, EventName
from jobwire.systems.queues.payloads import PAYLOADS, payload_schema

Schema = dict[str, Any]
_TEXT: Final[Schema] = {"type": "string"}
_NUMBER: Final[Schema] = {"type": "string", "pattern": "^-?[0-9]+$"}
_JSON: Final[Schema] = {"type": "string", "contentMediaType": "application/json"}
_FIELDS: Final[dict[BullField | BullExtra, Schema]] = {
    **dict.fromkeys(BullField, _TEXT),
    **dict.fromkeys(
        (
            BullField.TIMESTAMP,
            BullField.DELAY,
            BullField.PRIORITY,
            BullField.PROCESSED_ON,
            BullField.FINISHED_ON,
            BullField.ATTEMPTS_STARTED,
            BullField.ATTEMPTS_MADE,
            BullField.STALLED,
        ),
        _NUMBER,
    ),
    **dict.fromkeys(
        (
            BullField.DATA,
            BullField.OPTS,
            BullField.PARENT,
            BullField.PROGRESS,
            BullField.RETURN_VALUE,
            BullField.STACKTRACE,
        ),
        _JSON,
    ),
    BullExtra.WORKER_ID: _TEXT,
}
_REQUIRED: Final = (BullField.NAME, BullField.DATA, BullField.OPTS, BullField.TIMESTAMP)
_WITHOUT_JOB: Final = frozenset({EventName.DRAINED, EventName.PAUSED, EventName.RESUMED})


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
            str(BullEventField.EVENT): {"type": "string", "examples": [*map(str, EventName)]},
            str(BullEventField.JOB_ID): _TEXT,
            str(BullExtra.TIMESTAMP): _NUMBER,
            str(BullEventField.DATA): _JSON,
            str(BullField.RETURN_VALUE): _JSON,
            str(BullField.FAILED_REASON): _TEXT,
        },
        "required": [str(BullEventField.EVENT)],
        "if": {
            "properties": {
                str(BullEventField.EVENT): {"enum": sorted(set(EventName) - _WITHOUT_JOB)}
            }
        },
        "then": {"required": [str(BullEventField.JOB_ID)]},
    }
