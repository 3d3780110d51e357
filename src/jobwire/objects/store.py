"""The bucket: get, head, put, create-if-absent, replace-if-unchanged, delete, list, presign.

Used by wires that store objects. Expected results are values (`results.py`), failures are
exceptions (`errors.py`).

Every write that must have one winner is conditional (P-10). It carries its writer's nonce in the
object's user metadata (`write_history.py`), and a replacement also in its bytes: an ETag is the
content's MD5 on most stores, so equal bytes would leave it unchanged, and a second writer that saw
the same version would win too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime, timedelta
from mmap import mmap
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

try:
    import obstore
    from obstore.exceptions import BaseError
    from obstore.store import S3Store
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "the bucket needs the package obstore; run: pip install 'jobwire[objects]'", name=error.name
    ) from error

from jobwire.objects import conditional
from jobwire.objects.config import BucketConfig
from jobwire.objects.errors import TooLarge, Unexpected
from jobwire.objects.faults import Fault
from jobwire.objects.keys import is_valid_key
from jobwire.objects.results import (
    Changed,
    Created,
    Entry,
    Exists,
    Found,
    Level,
    Missing,
    Page,
    Replaced,
)
from jobwire.objects.signed import SignedCalls
from jobwire.objects.versions import erase_all_of
from jobwire.objects.write_history import (
    HISTORY_FIELD,
    Version,
    appended,
    from_field,
    new_writer,
    to_field,
)
from jobwire.objects.xml import parse

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutMode
    from obstore.store import ClientConfig, RetryConfig, S3Credential

# Builds an object's bytes from its writer's nonce, which they must contain.
Compose = Callable[[str], bytes]

_MAX_URL_LIFETIME: Final = timedelta(days=7)
_NOT_SATISFIABLE: Final = 416
_CHUNK: Final = 64 * 1024
_PING_KEY: Final = ".jobwire-ping"  # no object has this key
_STANDARD_ATTRIBUTES: Final = frozenset(
    (
        *("Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language"),
        *("Content-Type", HISTORY_FIELD),
    )
)
_LAST: Final = "\U0010ffff"  # sorts after every other character, also in UTF-8
_FAILURES: Final = (BaseError, FileNotFoundError)


class Bucket:
    """One bucket; safe to share between tasks. The first call opens a connection."""

    def __init__(self, config: BucketConfig) -> None:
        self.config = config
        self.calls = SignedCalls(config)
        # The library may repeat plain calls but not conditional writes: a refused repetition
        # would hide that the first attempt won.
        self._plain = _open(config, config.endpoint, retries=5)
        self._once = _open(config, config.endpoint, retries=0)
        public = config.public_endpoint
        self._public = _open(config, public, retries=0) if public else self._once

    async def get(self, key: str, *, max_bytes: int | None = None) -> Found | Missing:
        """Read an object; `TooLarge` if it is larger than the limit (P-29)."""
        return await self._get(self._plain, key, max_bytes)

    async def head(self, key: str) -> Entry | Missing:
        """Size and time of an object, without its bytes."""
        _check(key)
        try:
            meta = await obstore.head_async(self._plain, key)
        except _FAILURES as error:
            return self._missing_or_raise(error, key, "HEAD")
        return Entry(key=key, size=meta["size"], modified_at=meta["last_modified"])

    async def range(self, key: str, start: int, length: int) -> bytes | Missing:
        """Read a range of bytes; shorter, or empty, where the object ends before."""
        _check(key)
        if start < 0 or length < 1:
            raise ValueError(f"the range is empty or negative: start={start} length={length}")
        try:
            part = await obstore.get_range_async(self._plain, key, start=start, length=length)
        except _FAILURES as error:
            if Fault.of(error).status == _NOT_SATISFIABLE:
                return b""
            return self._missing_or_raise(error, key, "GET")
        return bytes(part)

    async def read(self, key: str, *, max_bytes: int) -> memoryview | Missing:
        """An object's bytes in one buffer, whose memory is returned as soon as nobody has it;
        `TooLarge` if it is larger than the limit."""
        _check(key)
        try:
            result = await obstore.get_async(self._plain, key)
            length = result.meta["size"]
            if length > max_bytes:
                raise TooLarge(key, length, max_bytes)
            buffer, end = memoryview(mmap(-1, max(length, 1))), 0
            async for chunk in result.stream(min_chunk_size=_CHUNK):
                part = memoryview(chunk)
                buffer[end : end + len(part)] = part
                end += len(part)
        except _FAILURES as error:
            return self._missing_or_raise(error, key, "GET")
        return buffer[:end]

    async def put(
        self,
        key: str,
        body: bytes | memoryview,
        *,
        content_type: str,
        metadata: Mapping[str, str] | None = None,
    ) -> Version:
        """Write an object unconditionally; the last writer wins. `metadata` is ASCII text and comes
        back with `get`."""
        reply = await self._send(self._plain, key, body, content_type, (), "overwrite", metadata)
        if isinstance(reply, Fault):
            raise reply.error(self.config, f"PUT {key}")
        return reply

    async def create(
        self, key: str, body: bytes | Compose, *, content_type: str
    ) -> Created | Exists:
        """Create an object that must not exist (P-10); one of concurrent calls is `Created`."""
        writer = new_writer()
        composed = body if isinstance(body, bytes) else _composed(body, writer)
        result = await self._write(key, composed, content_type, writer, None)
        if isinstance(result, Version):
            return Created(result)
        assert isinstance(result, Found)
        return Exists(result)

    async def replace(
        self, key: str, compose: Compose, *, seen: Version, content_type: str
    ) -> Replaced | Changed | Missing:
        """Replace the version that was seen, and no other (P-10)."""
        writer = new_writer()
        result = await self._write(key, _composed(compose, writer), content_type, writer, seen)
        if isinstance(result, Version):
            return Replaced(result)
        return Changed(result) if isinstance(result, Found) else result

    async def _write(
        self, key: str, body: bytes, content_type: str, writer: str, seen: Version | None
    ) -> Version | Found | Missing:
        history = appended(writer, seen)
        mode: PutMode = "create" if seen is None else {"e_tag": seen.e_tag}
        return await conditional.settle(
            self.config,
            key,
            writer,
            seen,
            lambda: self._send(self._once, key, body, content_type, history, mode),
            lambda: self._get(self._once, key),
        )

    async def delete(self, key: str) -> None:
        """Delete an object, with all its versions in a versioned bucket."""
        _check(key)
        await erase_all_of(self.calls, key)

    async def list(self, prefix: str = "") -> AsyncIterator[Entry]:
        """All objects under a prefix, which is empty or ends with a slash."""
        _check_prefix(prefix)
        try:
            # Other overloads of both listings return a type of an optional library.
            pages = obstore.list(self._plain, prefix or None)  # pyright: ignore[reportUnknownMemberType]
            async for chunk in pages:
                for meta in chunk:
                    yield _entry(meta)
        except _FAILURES as error:
            raise Fault.of(error).error(self.config, f"LIST {prefix}") from error

    async def level(self, prefix: str = "") -> Level:
        """List one level under a prefix: objects on it, and the prefixes below."""
        _check_prefix(prefix)
        try:
            result = await obstore.list_with_delimiter_async(self._plain, prefix or None)  # pyright: ignore[reportUnknownMemberType] - as above
        except _FAILURES as error:
            raise Fault.of(error).error(self.config, f"LIST {prefix}") from error
        return Level(
            entries=tuple(_entry(meta) for meta in result["objects"]),
            prefixes=tuple(f"{below}/" for below in result["common_prefixes"]),
        )

    async def page(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
        """Up to `limit` objects directly under a prefix, behind the key `after`, in key order.

        One request. A caller can stop, keep `next_after`, and go on from there in another process.
        """
        _check_prefix(prefix)
        query = {"list-type": "2", "prefix": prefix, "delimiter": "/", "max-keys": str(limit)}
        if after:
            query["start-after"] = after
        root = parse((await self.calls.send("GET", query=query)).body)
        if root.name != "ListBucketResult":
            raise Unexpected(
                f"LIST {prefix} at {self.config.where} is answered by another document"
            )
        try:
            entries = tuple(
                Entry(
                    key=each.value("Key"),
                    size=int(each.value("Size")),
                    modified_at=datetime.fromisoformat(each.value("LastModified")),
                )
                for each in root.all("Contents")
            )
        except ValueError as error:
            raise Unexpected(f"LIST {prefix} at {self.config.where}: {error}") from error
        # A prefix below counts against the page too; its last possible key leads past it.
        ends = [entry.key for entry in entries[-1:]]
        ends += [below.value("Prefix") + _LAST for below in root.all("CommonPrefixes")]
        truncated = root.value("IsTruncated") == "true" and bool(ends)
        return Page(entries, max(ends) if truncated else None)

    async def presign(self, key: str, life: timedelta) -> str:
        """A URL that allows reading the object at the public endpoint for that time."""
        _check(key)
        if not timedelta(seconds=1) <= life <= _MAX_URL_LIFETIME:
            raise ValueError(f"a signed URL is valid for 1 second to 7 days, not for {life}")
        return await obstore.sign_async(self._public, "GET", key, life)

    async def ping(self) -> None:
        """Return if the bucket replies; one attempt."""
        await self._get(self._once, _PING_KEY)

    async def _get(self, store: S3Store, key: str, max_bytes: int | None = None) -> Found | Missing:
        _check(key)
        allowed = self.config.max_read_bytes if max_bytes is None else max_bytes
        try:
            result = await obstore.get_async(store, key)
            if result.meta["size"] > allowed:
                raise TooLarge(key, result.meta["size"], allowed)
            body = bytes(await result.bytes_async())
        except _FAILURES as error:
            return self._missing_or_raise(error, key, "GET")
        attributes = result.attributes
        return Found(
            key=key,
            body=body,
            content_type=attributes.get("Content-Type", ""),
            modified_at=result.meta["last_modified"],
            version=Version(result.meta["e_tag"] or "", from_field(attributes.get(HISTORY_FIELD))),
            metadata={
                name.lower(): value
                for name, value in attributes.items()
                if name not in _STANDARD_ATTRIBUTES
            },
        )

    async def _send(
        self,
        store: S3Store,
        key: str,
        body: bytes | memoryview,
        content_type: str,
        history: tuple[str, ...],
        mode: PutMode,
        metadata: Mapping[str, str] | None = None,
    ) -> Version | Fault:
        _check(key)
        attributes = {**(metadata or {}), "Content-Type": content_type}
        if history:
            attributes[HISTORY_FIELD] = to_field(history)
        try:
            # Not multipart: the parts of a killed upload would be left in the bucket.
            result = await obstore.put_async(
                store, key, body, attributes=attributes, mode=mode, use_multipart=False
            )
        except _FAILURES as error:
            return Fault.of(error)
        return Version(result["e_tag"] or "", history)

    def _missing_or_raise(self, error: Exception, key: str, verb: str) -> Missing:
        fault = Fault.of(error)
        if fault.missing:
            return Missing(key)
        raise fault.error(self.config, f"{verb} {key}") from error


def _open(config: BucketConfig, endpoint: str, *, retries: int) -> S3Store:
    options: ClientConfig = {
        "allow_http": True,
        "connect_timeout": timedelta(seconds=5),
        "timeout": timedelta(seconds=config.timeout_s),
    }
    if config.on_loopback:
        # No HTTP proxy of the environment. The library's only way to disable it is to set one and
        # exclude the host.
        options["proxy_url"] = endpoint
        options["proxy_excludes"] = urlsplit(endpoint).hostname or ""
    retry: RetryConfig = {
        "max_retries": retries,
        "retry_timeout": timedelta(seconds=config.timeout_s),
        # Long enough for a server restart, short enough for a waiting caller.
        "backoff": {
            "init_backoff": timedelta(seconds=0.1),
            "max_backoff": timedelta(seconds=1),
            "base": 2,
        },
    }
    # Not as plain arguments: a session token of the environment would be added to these keys.
    credential: S3Credential = {
        "access_key_id": config.access_key,
        "secret_access_key": config.secret_key,
        "token": config.session_token or None,
        "expires_at": None,
    }
    return S3Store(
        config.bucket,
        endpoint=endpoint,
        region=config.region,
        credential_provider=lambda: credential,
        # Explicit, because the library reads defaults of these from the environment.
        virtual_hosted_style_request=False,
        skip_signature=False,
        conditional_put="etag",
        client_options=options,
        retry_config=retry,
    )


def _composed(compose: Compose, writer: str) -> bytes:
    body = compose(writer)
    if writer.encode() not in body:
        raise ValueError(
            "the bytes do not contain the writer's nonce that `compose` was called with: equal "
            "bytes have equal ETags, and two writers could both replace one version"
        )
    return body


def _entry(meta: ObjectMeta) -> Entry:
    return Entry(key=meta["path"], size=meta["size"], modified_at=meta["last_modified"])


def _check(key: str) -> None:
    if not is_valid_key(key):
        raise ValueError(
            f"{key[:80]!r} is not a valid key: up to 1024 bytes, parts that are not empty, "
            "'.' or '..' between slashes, no control characters, no backslash"
        )


def _check_prefix(prefix: str) -> None:
    if prefix:
        if not prefix.endswith("/"):
            raise ValueError(f"the prefix {prefix!r} must end with a slash")
        _check(prefix[:-1])
