"""Checks payloads at submission against the schemas that workers have registered (J-54).

The submit routes have one. A payload is refused only if every registered schema of its task refuses
it, so that old and new workers may run side by side; a task that some worker has without a schema,
or that a foreign worker may have, is not checked. The worker checks each payload again.
"""

import json
import logging
from collections import OrderedDict
from typing import Final, NoReturn

import jsonschema_rs
import msgspec

from jobwire.wires.streams.registry import WorkerRegistry

_log = logging.getLogger("jobwire.streams")
_MAX_VALIDATORS: Final = 1_000
_MAX_MESSAGE: Final = 300
_UNUSABLE: Final = (ValueError, RecursionError, msgspec.DecodeError)
"""Errors of a schema that cannot be read."""


class PayloadCheck:
    def __init__(self, registry: WorkerRegistry) -> None:
        self._registry = registry
        self._validators: OrderedDict[str, jsonschema_rs.Validator | None] = OrderedDict()
        """By the text of the schema; None for a schema that cannot be used."""

    def is_accepted(self, task: str, payload_json: str) -> bool:
        """Whether the schemas that were read a moment ago accept it. If not, `fault` decides."""
        return not self._registry.is_stale and not self._fault(task, payload_json)

    async def fault(self, task: str, payload_json: str) -> str:
        """What is wrong with the payload, and where; empty if it is accepted."""
        if self._registry.is_stale:
            await self._registry.refresh()
        if not self._fault(task, payload_json):
            return ""
        # A worker may have been started since, with a schema that accepts it.
        await self._registry.refresh()
        return self._fault(task, payload_json)

    def _fault(self, task: str, payload_json: str) -> str:
        schemas = self._registry.schemas(task)
        if not schemas:
            return ""
        try:
            payload: object = msgspec.json.decode(payload_json)
        except msgspec.DecodeError:  # of an integer with 4300 digits it counts the sign as one
            payload = json.loads(payload_json)
        for schema in schemas:
            validator = self._validator(schema)
            if validator is None or validator.is_valid(payload):
                return ""
        validator = self._validator(schemas[-1])
        return "" if validator is None else _first_error(validator, payload)

    def _validator(self, schema: str) -> jsonschema_rs.Validator | None:
        if schema in self._validators:
            self._validators.move_to_end(schema)
            return self._validators[schema]
        try:
            # The document may contain references: none of them is fetched.
            made = jsonschema_rs.validator_for(msgspec.json.decode(schema), retriever=_refuse)
        except (*_UNUSABLE, jsonschema_rs.ReferencingError) as error:
            text = str(error)[:_MAX_MESSAGE]
            _log.warning("a worker's schema cannot be used: error=%s; payloads unchecked", text)
            made = None
        self._validators[schema] = made
        if len(self._validators) > _MAX_VALIDATORS:
            self._validators.popitem(last=False)
        return made


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is not fetched")


def _first_error(validator: jsonschema_rs.Validator, payload: object) -> str:
    error = next(iter(validator.iter_errors(payload)))
    place = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path
    )
    return f"payload{place}: {error.message}"[:_MAX_MESSAGE]
