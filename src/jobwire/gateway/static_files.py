"""Files of a page, served from memory with ETag, cache headers, gzip and their own CSP.

    Feature(name="page", routes=static_files.routes("/", files("jobwire.page"), csp=…))

The files are read when the routes are declared: a request reaches none but these, and no file
system. Their number and size are those of the package.
"""

import gzip
from collections.abc import Iterator
from functools import cached_property
from hashlib import sha256
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from jobwire.api.operation import Operation
from jobwire.gateway.conditional import has_version, quoted_tag, reply_unchanged
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.route import Route, serve

INDEX: Final = "index.html"
_MEDIA_TYPES: Final = {
    ".css": b"text/css; charset=utf-8",
    ".html": b"text/html; charset=utf-8",
    ".ico": b"image/vnd.microsoft.icon",
    ".js": b"text/javascript; charset=utf-8",
    ".json": b"application/json",
    ".mjs": b"text/javascript; charset=utf-8",
    ".png": b"image/png",
    ".svg": b"image/svg+xml",
    ".txt": b"text/plain; charset=utf-8",
    ".webmanifest": b"application/manifest+json",
    ".webp": b"image/webp",
    ".woff2": b"font/woff2",
}
_COMPRESSED: Final = frozenset({".ico", ".png", ".webp", ".woff2"})
"""Formats that gzip makes no smaller."""
_GZIP: Final = frozenset({"gzip", "x-gzip", "*"})


def routes(prefix: str, folder: Traversable | Path, *, csp: str) -> list[Route]:
    """A public route for each file of the folder below `prefix`; `index.html` answers for its
    folder. A file of an unknown type is a TypeError."""
    base = prefix.rstrip("/")
    found: list[Route] = []
    for name, content in _files(folder, ""):
        suffix = Path(name).suffix
        if suffix not in _MEDIA_TYPES:
            raise TypeError(f"{name}: no media type is known for the suffix {suffix!r}")
        path = (
            f"{base}/{name.removesuffix(INDEX)}" if Path(name).name == INDEX else f"{base}/{name}"
        )
        operation = Operation("GET", path, "public", f"The file {name}", tag="page", hidden=True)
        found.append(serve(operation, _File(content, suffix, csp).answer))
    return found


def _files(folder: Traversable | Path, below: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda each: each.name):
        if entry.is_dir():
            if not entry.name.startswith("__"):
                yield from _files(entry, f"{below}{entry.name}/")
        elif not entry.name.endswith((".py", ".pyc")):
            yield below + entry.name, entry.read_bytes()


class _File:
    """A file, as it is and compressed: each has its own ETag."""

    def __init__(self, content: bytes, suffix: str, csp: str) -> None:
        self._content = content
        self._media_type = _MEDIA_TYPES[suffix]
        self._csp = csp.encode()
        self._compressible = suffix not in _COMPRESSED

    async def answer(self, request: HttpRequest) -> Reply | None:
        gzipped = self._compressible and _accepts_gzip(request)
        etag, reply = self._gzipped if gzipped else self._plain
        if not has_version(request, etag):
            return reply
        await reply_unchanged(request, reply.headers)
        return None

    @cached_property
    def _plain(self) -> tuple[str, Reply]:
        return self._reply(self._content)

    @cached_property
    def _gzipped(self) -> tuple[str, Reply]:
        # Without the time in its head, the same file has the same ETag in every process.
        return self._reply(gzip.compress(self._content, mtime=0), (b"content-encoding", b"gzip"))

    def _reply(self, body: bytes, *encoding: tuple[bytes, bytes]) -> tuple[str, Reply]:
        etag = quoted_tag(sha256(body).hexdigest()[:32])
        headers = (
            (b"etag", etag.encode()),
            # The browser stores a file and asks each time whether it has changed.
            (b"cache-control", b"no-cache"),
            (b"vary", b"accept-encoding"),
            (b"content-security-policy", self._csp),
            *encoding,
        )
        return etag, Reply(body, headers=headers, media_type=self._media_type)


def _accepts_gzip(request: HttpRequest) -> bool:
    """Whether `Accept-Encoding` has gzip with a weight above zero."""
    given = request.headers.get(b"accept-encoding", b"").decode("latin-1").lower()
    for each in given.split(","):
        coding, _, weight = each.partition(";")
        if coding.strip() in _GZIP and weight.strip().rstrip("0") not in ("q=", "q=0."):
            return True
    return False
