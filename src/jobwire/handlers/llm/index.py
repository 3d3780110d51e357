"""Documents kept under a name for `rag`: a folder of files, each a JSON list of documents.

The vectors are made at the first question and kept in the cache; a changed file, or another
embedding model, makes new ones. Names are checked by the payload: none leads out of the folder.
"""

import base64
import os
import secrets
from array import array
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256

import msgspec

from jobwire.handlers.llm.embedding import Vector
from jobwire.handlers.llm.payloads import Document, Words
from jobwire.handlers.llm.settings import LlmSettings
from jobwire.job.errors import Fail


class _Kept(msgspec.Struct):
    """What is in the cache."""

    dim: int
    vectors: str


def documents(settings: LlmSettings, name: str) -> Sequence[str | Document]:
    """The documents of an index; Fail where there is none."""
    if settings.index_dir is None:
        raise Fail("rag_index_unknown", "this worker keeps no indexes; set llm.index_dir")
    try:
        raw = (settings.index_dir.expanduser() / f"{name}.json").read_bytes()
    except OSError:
        raise Fail("rag_index_unknown", f"there is no index {name!r} on this worker") from None
    try:
        return msgspec.json.decode(raw, type=list[Words | Document])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Fail(
            "rag_index_unknown",
            f"the index {name!r} is no list of texts or of objects with id and text: {error}",
        ) from None


class VectorCache:
    """Vectors of texts that were embedded before."""

    def __init__(self, settings: LlmSettings, model: str, texts: Sequence[str]) -> None:
        key = sha256(msgspec.json.encode([model, *texts])).hexdigest()
        self._file = settings.cache_dir.expanduser() / "vectors" / f"{key}.json"
        self._count = len(texts)

    def load(self) -> list[Vector] | None:
        """All of them, or None."""
        try:
            kept = msgspec.json.decode(self._file.read_bytes(), type=_Kept)
            numbers = array("f", base64.b64decode(kept.vectors))
        except (OSError, ValueError):
            return None
        if kept.dim < 1 or len(numbers) != kept.dim * self._count:
            return None
        return [numbers[at : at + kept.dim] for at in range(0, len(numbers), kept.dim)]

    def save(self, vectors: Sequence[Vector]) -> None:
        """Keep them; a cache that cannot be written is no reason to fail."""
        numbers = array("f", [number for vector in vectors for number in vector])
        kept = _Kept(len(vectors[0]), base64.b64encode(numbers.tobytes()).decode())
        half = self._file.with_name(f".{self._file.name}.{os.getpid()}.{secrets.token_hex(4)}")
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            half.write_bytes(msgspec.json.encode(kept))
            half.replace(self._file)
