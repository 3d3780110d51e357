"""Files of a page, served from memory with ETag, cache headers and their own CSP.

    Feature(name="page", routes=static_files.routes("/", files("jobwire.page"), csp=…))

The files are read when the routes are declared: a request reaches none but these, and no file
system. Their number and size are those of the package.
"""

from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from jobwire.api.operation import Operation
from jobwire.gateway.conditional import has_version, quoted_tag
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


def routes(prefix: str, folder: Traversable | Path, *, csp: str) -> list[Route]:
    """A public route for each file of the folder below `prefix`; `index.html` answers for its
    folder. A file of an unknown type is a TypeError."""
    base = prefix.rstrip("/")
    found: list[Route] = []
    for name, content in _files(folder, ""):
        suffix = Path(name).suffix
        if suffix not in _MEDIA_TYPES:
            raise TypeError(f"{name}: no media type is known for the suffix {suffix!r}")
        etag = quoted_tag(sha256(content).hexdigest()[:32])
        headers = (
            (b"etag", etag.encode()),
            # The browser stores a file and asks each time whether it has changed.
            (b"cache-control", b"no-cache"),
            (b"content-security-policy", csp.encode()),
        )
        reply = Reply(content, headers=headers, media_type=_MEDIA_TYPES[suffix])
        endpoint = partial(_answer, etag, reply)
        path = (
            f"{base}/{name.removesuffix(INDEX)}" if Path(name).name == INDEX else f"{base}/{name}"
        )
        operation = Operation("GET", path, "public", f"The file {name}", tag="page", hidden=True)
        found.append(serve(operation, endpoint))
    return found


def _files(folder: Traversable | Path, below: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda each: each.name):
        if entry.is_dir():
            if not entry.name.startswith("__"):
                yield from _files(entry, f"{below}{entry.name}/")
        elif not entry.name.endswith((".py", ".pyc")):
            yield below + entry.name, entry.read_bytes()


async def _answer(etag: str, file: Reply, request: HttpRequest) -> Reply | None:
    if not has_version(request, etag):
        return file
    await request.start(304, file.headers)
    await request.end()
    return None
