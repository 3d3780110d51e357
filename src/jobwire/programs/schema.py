"""The JSON Schema of the systems' messages, for `jobwire schema`."""

from typing import Final

from jobwire.systems.system import SchemaDocument, all_systems, resolve

DEFAULT_SYSTEM: Final = "jobs"


def schema(system: str = DEFAULT_SYSTEM) -> SchemaDocument | None:
    """Return payloads, events and messages of one system as one document; None if it has none."""
    make = resolve(system).schema
    return make() if make is not None else None


def names() -> list[str]:
    """Return the names of all definitions."""
    return sorted(name for document in _documents() for name in document["$defs"])


def definition(name: str) -> SchemaDocument | None:
    """Return one definition of any system; None if it is unknown."""
    for document in _documents():
        if (found := definition_of(name, document)) is not None:
            return found
    return None


def definition_of(name: str, document: SchemaDocument) -> SchemaDocument | None:
    """Return one definition as a document of its own; None if it is unknown."""
    found: SchemaDocument | None = document["$defs"].get(name)
    if found is None:
        return None
    if "$id" in found:
        return {"$schema": document["$schema"], **found}
    # It may refer to other definitions, which are included.
    return {**document, "$ref": f"#/$defs/{name}"}


def _documents() -> list[SchemaDocument]:
    return [system.schema() for system in all_systems() if system.schema is not None]
