"""Named document indexes for `rag`: a folder of files, each a JSON list of documents.

The vectors are computed at the first question and cached; a changed file or another embedding model
has its own cache file. The payload schema restricts names, so none leads out of the folder.
"""

import base64
from array import array
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256

import msgspec

from jobwire.handlers.llm.models.files import atomic_write
from jobwire.handlers.llm.payloads import Document, Words
from jobwire.handlers.llm.settings import LlmSettings
from jobwire.handlers.llm.vectors import Vector
from jobwire.job.errors import Fail


class _CachedVectors(msgspec.Struct):
    """The content of a cache file."""

    dim: int
    vectors: str


def documents(settings: LlmSettings, name: str) -> Sequence[str | Document]:
    """The documents of an index; Fail if there is none."""
    if settings.index_dir is None:
        raise Fail("rag_index_unknown", "this worker has no indexes; set llm.index_dir")
    try:
        raw = (settings.index_dir.expanduser() / f"{name}.json").read_bytes()
    except OSError:
        raise Fail("rag_index_unknown", f"there is no index {name!r} on this worker") from None
    try:
        return msgspec.json.decode(raw, type=list[Words | Document])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Fail(
            "rag_index_unknown",
            f"the index {name!r} is not a list of texts or of objects with id and text: {error}",
        ) from None


class VectorCache:
    """The cached vectors of one list of texts."""

    def __init__(self, settings: LlmSettings, model: str, texts: Sequence[str]) -> None:
        key = sha256(msgspec.json.encode([model, *texts])).hexdigest()
        self._file = settings.cache_dir.expanduser() / "vectors" / f"{key}.json"
        self._count = len(texts)

    def load(self) -> list[Vector] | None:
        """All vectors; None if they are not cached."""
        try:
            cached = msgspec.json.decode(self._file.read_bytes(), type=_CachedVectors)
            numbers = array("f", base64.b64decode(cached.vectors))
        except (OSError, ValueError):
            return None
        if cached.dim < 1 or len(numbers) != cached.dim * self._count:
            return None
        return [numbers[at : at + cached.dim] for at in range(0, len(numbers), cached.dim)]

    def save(self, vectors: Sequence[Vector]) -> None:
        """Store the vectors; a cache that cannot be written is ignored."""
        numbers = array("f", [number for vector in vectors for number in vector])
        cached = _CachedVectors(len(vectors[0]), base64.b64encode(numbers.tobytes()).decode())
        with suppress(OSError), atomic_write(self._file) as temporary:
            temporary.write_bytes(msgspec.json.encode(cached))
