"""The type of a picture by its content, never by its name or its header (P-2, P-22). Pure."""

from __future__ import annotations

from jobwire.systems.predictions.contract import JPEG, PNG


def is_data_url(url: str | None) -> bool:
    """Whether a URL holds the data itself."""
    return url is not None and url[:5].lower() == "data:"


def sniff(picture: bytes | memoryview) -> str | None:
    """The MIME type of a JPEG, PNG, WebP or GIF picture; None for anything else."""
    body = bytes(picture[:16])
    if body.startswith(b"\xff\xd8\xff"):
        return JPEG
    if body.startswith(b"\x89PNG\r\n\x1a\n"):
        return PNG
    if body[:4] == b"RIFF" and body[8:12] == b"WEBP":
        return "image/webp"
    if body.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return None
