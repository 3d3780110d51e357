"""JSON Schema of the wire, made from the contract: payloads, events and messages.

For `jobwire schema`: authors of other gateways and workers validate against it. Every field on the
wire is text; fields that hold JSON have a schema of their contents.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypedDict, cast

import msgspec

from jobwire.job.messages import TaskDefinition
from jobwire.systems.jobs import contract
from jobwire.systems.jobs.contract import (
    Code,
    EntryField,
    EventField,
    EventType,
    Extra,
    Field,
    Status,
)

Schema = dict[str, object]

_TEXT: Final[Schema] = {"type": "string"}
_NUMBER: Final[Schema] = {"type": "string", "pattern": "^[0-9]+$"}
_MILLISECONDS: Final[Schema] = {**_NUMBER, "description": "milliseconds since 1970"}
_SECONDS: Final[Schema] = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?$"}
_ENTRY_ID: Final[Schema] = {"type": "string", "pattern": "^[0-9]+-[0-9]+$"}
_PAYLOAD: Final = "payload."
_JSON: Final[Schema] = {"type": "string", "contentMediaType": "application/json"}


WireSchema = TypedDict(
    "WireSchema", {"$schema": str, "$id": str, "title": str, "$defs": dict[str, Schema]}
)


def wire_schema(tasks: Iterable[TaskDefinition]) -> WireSchema:
    """One document with a definition for each kind of message."""
    definitions: dict[str, Schema] = {
        "queue_entry": _queue_entry(),
        "job_hash": _job_hash(),
        "event_entry": _event_entry(),
        "event": _event(),
        "error": _error(),
        "progress": _progress(),
        "retrying": _retrying(),
        **{f"{_PAYLOAD}{task.name}": _payload(task) for task in tasks},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:jobwire:schema:streams",
        "title": "The Redis Streams jobs wire",
        "$defs": definitions,
    }


def _json(inside: str) -> Schema:
    return {**_JSON, "contentSchema": {"$ref": f"#/$defs/{inside}"}}


def _queue_entry() -> Schema:
    payload = {**_JSON, "description": f"an object, at most {contract.MAX_PAYLOAD_BYTES} bytes"}
    return _object(
        "An entry of the queue stream: exactly these fields.",
        {EntryField.JOB_ID: _TEXT, EntryField.TASK: _TEXT, EntryField.PAYLOAD: payload},
        more=False,
    )


def _job_hash() -> Schema:
    nine: dict[str, Schema] = {
        Field.JOB_ID: _TEXT,
        Field.TASK: _TEXT,
        Field.PAYLOAD: _JSON,
        Field.STATUS: {"enum": list(Status)},
        Field.CREATED_TS: _MILLISECONDS,
        Field.UPDATED_TS: _MILLISECONDS,
        Field.TTL_S: _NUMBER,
        Field.RESULT: {"anyOf": [{"const": ""}, _JSON]},
        Field.ERROR: {"anyOf": [{"const": ""}, _json("error")]},
    }
    known: dict[str, Schema] = {
        Extra.ATTEMPT: _NUMBER,
        Extra.DELIVERIES: _NUMBER,
        Extra.MAX_ATTEMPTS: _NUMBER,
        Extra.TIMEOUT_S: _SECONDS,
        Extra.ENTRY_ID: _ENTRY_ID,
        Extra.STARTED_TS: _MILLISECONDS,
        Extra.CANCEL_TS: _MILLISECONDS,
        Extra.UNKNOWN_TS: _MILLISECONDS,
        Extra.PROGRESS: _json("progress"),
    }
    extras = {name.value: known.get(name, _TEXT) for name in Extra}
    text = "A job. Nine fields are always there; readers ignore those that they do not know."
    return _object(text, nine, extras)


def _event_entry() -> Schema:
    data = {**_JSON, "description": f"at most {contract.MAX_EVENT_BYTES} bytes"}
    return _object(
        "An entry of a job's events stream.",
        {
            EventField.TYPE: {"type": "string", "pattern": f"^{contract.EVENT_TYPE.pattern}$"},
            EventField.TS: _MILLISECONDS,
            EventField.STEP: _TEXT,
            EventField.DATA: data,
        },
    )


def _event() -> Schema:
    ends = [word.value for word in EventType if word in contract.TERMINAL_EVENTS]
    shape = _object(
        f"An event as readers receive it. Nothing follows {', '.join(ends)}.",
        {
            EventField.TYPE: {"type": "string"},
            EventField.TS: {"type": "integer"},
            EventField.STEP: _TEXT,
            EventField.DATA: {},
        },
    )
    inside = {
        EventType.PROGRESS: "progress",
        EventType.RETRYING: "retrying",
        EventType.ERROR: "error",
        EventType.CANCELED: "error",
    }
    shape["allOf"] = [
        {
            "if": {"properties": {EventField.TYPE.value: {"const": kind.value}}},
            "then": {"properties": {EventField.DATA.value: {"$ref": f"#/$defs/{name}"}}},
        }
        for kind, name in inside.items()
    ]
    return shape


def _error() -> Schema:
    codes = ", ".join(Code)
    return _object(
        "Why a job failed.",
        {
            "code": {"type": "string", "description": f"{codes}, or a handler's own"},
            "message": _TEXT,
            "retryable": {"type": "boolean"},
            "attempt": {"type": "integer", "minimum": 1},
        },
        {"partial": {"description": "the partial result"}},
    )


def _progress() -> Schema:
    percent: Schema = {"type": "number", "minimum": 0, "maximum": 100}
    return _object("Progress of a job.", {"percent": percent}, {"message": _TEXT})


def _retrying() -> Schema:
    error = _object("The error of a failed job.", {"code": _TEXT, "message": _TEXT})
    whole: Schema = {"type": "integer", "minimum": 0}
    return _object(
        "A failed attempt that will be followed by another.",
        {"attempt": {**whole, "minimum": 1}, "delay_ms": whole, "error": error},
    )


def _payload(task: TaskDefinition) -> Schema:
    found = cast(Schema, msgspec.json.decode(task.schema_json)) if task.schema_json else {}
    if task.example_json:
        found["examples"] = [msgspec.json.decode(task.example_json)]
    return {"$id": f"urn:jobwire:schema:streams:{_PAYLOAD}{task.name}", **found}


def _object(
    description: str,
    required: Mapping[str, Schema],
    optional: Mapping[str, Schema] | None = None,
    *,
    more: bool = True,
) -> Schema:
    return {
        "description": description,
        "type": "object",
        "properties": {
            str(name): shape for name, shape in {**required, **(optional or {})}.items()
        },
        "required": [str(name) for name in required],
        **({} if more else {"additionalProperties": False}),
    }
