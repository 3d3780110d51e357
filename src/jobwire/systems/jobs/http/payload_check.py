"""Checks payloads at submission against the schemas that workers have registered (J-54).

The submit routes have one. A payload is refused only if every registered schema of its task refuses
it, so that old and new workers may run side by side; a task that some worker has without a schema,
or that a foreign worker may have, is not checked. The worker checks each payload again, so a check
that could hold the event loop is left to it.
"""

import json
import logging
from collections import OrderedDict
from typing import Final, cast

import msgspec

from jobwire.json_depth import bounded
from jobwire.json_schema.validator import SchemaValidator, UnusableSchema
from jobwire.schema_hints import Schema, hint
from jobwire.systems.jobs.registry import WorkerRegistry

_decode: Final = bounded(msgspec.json.Decoder().decode)
_log = logging.getLogger("jobwire.streams")
_MAX_VALIDATORS: Final = 1_000
_MAX_MESSAGE: Final = 300


class PayloadCheck:
    def __init__(self, registry: WorkerRegistry) -> None:
        self._registry = registry
        self._validators: OrderedDict[str, SchemaValidator | None] = OrderedDict()
        """By the text of the schema; None for a schema that cannot be used."""

    def is_accepted(self, task: str, payload_json: str) -> bool:
        """Whether the schemas that were read a moment ago accept it. If not, `fault` decides
        after the registry was refreshed: a worker may have been started since."""
        return not self._registry.is_stale and self._refusing(task, payload_json) is None

    def fault(self, task: str, payload_json: str) -> str:
        """What is wrong with the payload, and where, by the schemas as last read; empty if nothing
        is."""
        validator = self._refusing(task, payload_json)
        return "" if validator is None else _first_fault(validator, _value(payload_json))

    def _refusing(self, task: str, payload_json: str) -> SchemaValidator | None:
        """The last of the schemas if all of them refuse the payload."""
        schemas = self._registry.schemas(task)
        if not schemas:
            return None
        payload = _value(payload_json)
        validator = None
        for schema in schemas:
            validator = self._validator(schema)
            if validator is None or not validator.is_bounded(payload_json):
                return None
            if validator.is_valid(payload):
                return None
        return validator

    def _validator(self, schema: str) -> SchemaValidator | None:
        if schema in self._validators:
            self._validators.move_to_end(schema)
            return self._validators[schema]
        made = _compiled(schema)
        self._validators[schema] = made
        if len(self._validators) > _MAX_VALIDATORS:
            self._validators.popitem(last=False)
        return made


def _compiled(schema: str) -> SchemaValidator | None:
    try:
        return SchemaValidator(_decode(schema))
    except (UnusableSchema, msgspec.DecodeError) as error:
        text = str(error)[:_MAX_MESSAGE]
        _log.warning(
            "a worker's schema cannot be used error=%(error)s; payloads unchecked", {"error": text}
        )
        return None


def _value(payload_json: str) -> object:
    try:
        return msgspec.json.decode(payload_json)
    except msgspec.DecodeError:  # of an integer with 4300 digits it counts the sign as one
        return json.loads(payload_json)


def _first_fault(validator: SchemaValidator, payload: object) -> str:
    found = validator.fault(payload)
    if found is None:
        return ""
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in found.path)
    schema = validator.schema
    hinted = hint(cast("Schema", schema), place, found.text) if isinstance(schema, dict) else ""
    return f"payload{place}: {found.text}{hinted}"[:_MAX_MESSAGE]
