"""JSON Schema of what is on the wire, for `jobwire schema`."""

from jobwire.wires.bullmq.payloads import payload_schema
from jobwire.wires.streams import schema as streams
from jobwire.wires.streams.schema import WireSchema
from jobwire.wiring.tasks import task_definitions


def schema() -> WireSchema:
    """Payloads, events and messages of the Streams wire, in one document."""
    return streams.wire_schema(task_definitions())


def definition(name: str) -> streams.Schema | None:
    """One of them by itself, or the payload of a BullMQ queue."""
    return streams.definition(name, schema()) or payload_schema(name.removeprefix("payload."))
