"""The spool: accepted uploads on disk, until their result is published (I-20, I-30).

    <attempt>.part   a body that is being received
    <attempt>.image  the photo made of it
    <image id>.json  an accepted upload: its attempt, the token's claims, and its result once known

The rename of the `.json` file is the moment of acceptance: before it, a crash leaves only parts,
whose claims are released at the next start; after it, the image is processed again until its
result is published. All files are private (0600). Blocking calls: `accept` and `finish` wait for
the disk and are run in a thread; writing a chunk is not.
"""

import fcntl
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from jobwire.systems.images.contract import (
    IMAGE_ID,
    INTERRUPTED,
    BadResult,
    ImageErrorCode,
    ImageResult,
    failed_now,
    format_time,
    now_utc,
    parse_result,
)
from jobwire.systems.images.tokens import UploadGrant

_log: Final = logging.getLogger("jobwire.images")
_PART: Final = ".part"
_IMAGE: Final = ".image"
_ENTRY: Final = ".json"
_LOCK: Final = "spool.lock"
_ATTEMPT: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]{0,63})\.([0-9a-f]{16})")


class SpooledUpload(msgspec.Struct, frozen=True, kw_only=True):
    """An accepted upload, as its `.json` file holds it."""

    image_id: str
    attempt: str
    storage_key: str
    content_type: str
    max_size: int
    size: int
    accepted_at: str
    tenant: str = ""
    areas: Sequence[Sequence[float]] = []
    """Drawn by a person: left, top, width and height, in parts of the picture."""
    held_at: str = ""
    """Since when the photo waits for a reviewer."""
    held_for: str = ""
    """Why: a `HoldReason`."""
    show_doubtful: bool = False
    """A reviewer has decided that areas which are not certain are not hidden."""
    approved_at: str = ""
    restarts: int = 0
    """How often a gateway has ended while the image was being processed."""
    result: dict[str, str] | None = None
    """The fields of the result, once the image has ended; a replay publishes the same."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """A body that was never accepted: its claim must be released."""

    image_id: str
    attempt: str


class Body:
    """A body that is being received. Written by one request; ends by `accept` or `discard`."""

    def __init__(self, folder: Path, image_id: str, attempt: str) -> None:
        self.image_id = image_id
        self.attempt = attempt
        self.size = 0
        self.path = folder / f"{image_id}.{attempt}{_PART}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(self.path, flags, 0o600)

    def write(self, chunk: bytes) -> None:
        """Append a chunk."""
        view = memoryview(chunk)
        while view:
            written = os.write(self._fd, view)
            view = view[written:]
        self.size += len(chunk)

    def sync(self) -> None:
        """Wait until the body is on the disk, and close it."""
        os.fsync(self._fd)
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def empty(self) -> None:
        """Free the disk space; the name stays until the claim is released."""
        self.close()
        os.truncate(self.path, 0)


class SpoolInUse(OSError):
    """Another upload gateway uses this folder."""


class Spool:
    """One folder, used by one upload gateway. Counts what it holds."""

    def __init__(self, folder: Path) -> None:
        """Hold the folder until `close`; SpoolInUse if another gateway has it."""
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        self._lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise SpoolInUse(
                f"another upload gateway uses the spool {folder}; "
                "give each its own images.spool_dir"
            ) from None
        self._entries: dict[str, SpooledUpload] = {}
        self._bodies: dict[str, Body] = {}

    def close(self) -> None:
        """Let another gateway use the folder."""
        os.close(self._lock)

    # ── what it holds ────────────────────────────────────────────────────────────────────────────

    @property
    def count(self) -> int:
        """Accepted uploads without a published result."""
        return len(self._entries)

    @property
    def in_work(self) -> int:
        """Accepted uploads without those that wait for a reviewer."""
        return sum(not is_held(entry) for entry in self._accepted())

    @property
    def size(self) -> int:
        """Bytes of the accepted uploads that have not ended."""
        return sum(entry.size for entry in self._accepted() if entry.result is None)

    def __contains__(self, image_id: object) -> bool:
        return image_id in self._entries

    def get(self, image_id: str) -> SpooledUpload | None:
        """An accepted upload as it is now."""
        return self._entries.get(image_id)

    def entries(self) -> list[SpooledUpload]:
        """The accepted uploads, oldest first."""
        return sorted(self._accepted(), key=lambda entry: entry.accepted_at)

    def of_tenant(self, tenant: str) -> list[int]:
        """The sizes of a tenant's accepted uploads."""
        return [entry.size for entry in self._accepted() if entry.tenant == tenant]

    def _accepted(self) -> list[SpooledUpload]:
        """The accepted uploads at this moment: `accept` adds one in a thread."""
        return list(self._entries.values())

    def source(self, entry: SpooledUpload) -> Path:
        """The uploaded file."""
        return self.folder / f"{entry.image_id}.{entry.attempt}{_PART}"

    def target(self, entry: SpooledUpload) -> Path:
        """The photo made of it."""
        return self.folder / f"{entry.image_id}.{entry.attempt}{_IMAGE}"

    # ── receiving ────────────────────────────────────────────────────────────────────────────────

    def receive(self, image_id: str, attempt: str) -> Body:
        """Begin a body. Its file exists before the claim, so that no claim is forgotten."""
        body = Body(self.folder, image_id, attempt)
        self._bodies[attempt] = body
        return body

    def accept(self, body: Body, grant: UploadGrant) -> SpooledUpload:
        """Make a whole body durable; once this returns, a crash does not lose it."""
        body.sync()
        entry = SpooledUpload(
            image_id=body.image_id,
            attempt=body.attempt,
            storage_key=grant.storage_key,
            content_type=grant.content_type,
            max_size=grant.max_size,
            size=body.size,
            tenant=grant.tenant,
            areas=[list(area) for area in grant.areas],
            accepted_at=format_time(now_utc()),
        )
        self._write(entry)
        self._entries[entry.image_id] = entry
        self._bodies.pop(body.attempt, None)
        return entry

    def discard(self, body: Body) -> None:
        """Forget a body whose claim is released."""
        body.close()
        body.path.unlink(missing_ok=True)
        self._bodies.pop(body.attempt, None)

    def abandon(self, body: Body) -> None:
        """Keep only the name of a body whose claim could not be released yet; see `leftovers`."""
        try:
            body.empty()
        except OSError:
            _log.warning(
                "refused body not emptied image_id=%(image_id)s", {"image_id": body.image_id}
            )
        self._bodies.pop(body.attempt, None)

    # ── ending ───────────────────────────────────────────────────────────────────────────────────

    def update(self, entry: SpooledUpload) -> None:
        """Store changes of an upload that has not ended."""
        self._write(entry)
        self._entries[entry.image_id] = entry

    def finish(self, entry: SpooledUpload, result: ImageResult) -> SpooledUpload:
        """Store the result, then remove the original: it is gone before the result is published."""
        finished = msgspec.structs.replace(entry, result=result.fields())
        self._write(finished)
        self._entries[entry.image_id] = finished
        self.source(entry).unlink(missing_ok=True)
        self.target(entry).unlink(missing_ok=True)
        return finished

    def remove(self, entry: SpooledUpload) -> None:
        """Remove an upload whose result is published."""
        self.source(entry).unlink(missing_ok=True)
        self.target(entry).unlink(missing_ok=True)
        self._entry_file(entry.image_id).unlink(missing_ok=True)
        self._entries.pop(entry.image_id, None)

    # ── recovery ─────────────────────────────────────────────────────────────────────────────────

    def recover(self) -> None:
        """Read what an earlier process left; called once, before anything is received."""
        for file in sorted(self._files(_ENTRY)):
            if (entry := self._read(file)) is not None:
                if entry.result is not None:
                    self.source(entry).unlink(missing_ok=True)
                elif not is_held(entry):
                    entry = msgspec.structs.replace(entry, restarts=entry.restarts + 1)
                    self._write(entry)
                self._entries[entry.image_id] = entry
        attempts = {entry.attempt for entry in self._accepted()}
        for file in self.folder.iterdir():
            if file.name == _LOCK:
                continue
            name, suffix = file.name.rpartition(".")[0], file.suffix
            if suffix == _IMAGE:
                file.unlink()  # made again: it may be incomplete
            elif suffix == _PART and (match := _ATTEMPT.fullmatch(name)) is not None:
                if match[2] not in attempts:
                    os.truncate(file, 0)
            elif suffix != _ENTRY:
                file.unlink()  # a draft

    def leftovers(self) -> list[Leftover]:
        """The bodies that were never accepted and that no request is receiving."""
        files = self._files(_PART)
        # In this order: a body that is accepted meanwhile, in a thread, is then in one of the two.
        known = set(self._bodies)
        known.update(entry.attempt for entry in self._accepted())
        matches = (_ATTEMPT.fullmatch(file.name.removesuffix(_PART)) for file in files)
        return [
            Leftover(match[1], match[2]) for match in matches if match and match[2] not in known
        ]

    def forget(self, leftover: Leftover) -> None:
        """Remove a leftover whose claim is released."""
        name = f"{leftover.image_id}.{leftover.attempt}{_PART}"
        (self.folder / name).unlink(missing_ok=True)

    # ── files ────────────────────────────────────────────────────────────────────────────────────

    def _files(self, suffix: str) -> list[Path]:
        """OSError if the folder cannot be read. Not `glob`, which from Python 3.12 on then finds
        nothing: bodies of entries that were not read would be emptied."""
        return [file for file in self.folder.iterdir() if file.suffix == suffix]

    def _entry_file(self, image_id: str) -> Path:
        return self.folder / f"{image_id}{_ENTRY}"

    def _write(self, entry: SpooledUpload) -> None:
        """Replace the entry's file; durable when this returns."""
        draft = self.folder / f"{entry.image_id}.{entry.attempt}.draft"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(draft, flags, 0o600), "wb") as file:
            file.write(msgspec.json.encode(entry))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._entry_file(entry.image_id))
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _read(self, file: Path) -> SpooledUpload | None:
        try:
            entry = msgspec.json.decode(file.read_bytes(), type=SpooledUpload)
        except (msgspec.DecodeError, OSError) as error:
            _log.error(
                "spool entry not readable file=%(file)s error=%(error)s; it is not processed: "
                "remove it",
                {"file": file.name, "error": error},
            )
            return None
        if file.name != f"{entry.image_id}{_ENTRY}" or not IMAGE_ID.fullmatch(entry.image_id):
            _log.error(
                "spool entry names another image file=%(file)s; it is not processed: remove it",
                {"file": file.name},
            )
            return None
        return entry


def is_held(entry: SpooledUpload) -> bool:
    """Whether the photo waits for a reviewer."""
    return entry.held_at != "" and entry.approved_at == "" and entry.result is None


def stored_result(entry: SpooledUpload) -> ImageResult | None:
    """The result of an upload that has ended; None if it has not."""
    if entry.result is None:
        return None
    try:
        return parse_result(entry.result)
    except BadResult:
        return failed_now(entry.image_id, ImageErrorCode.INTERNAL, INTERRUPTED)
