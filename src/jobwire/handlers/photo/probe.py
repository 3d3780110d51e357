"""Which formats can be decoded here: a library may read the header of a file and not its pixels.

Run by each worker when it starts: it decodes a picture of 16 × 16 pixels in each doubtful format.
"""

import base64
from typing import Final

from jobwire.handlers.photo.decode import decode
from jobwire.handlers.photo.header import CONTENT_TYPES, Format
from jobwire.handlers.photo.options import PhotoOptions
from jobwire.handlers.photo.validate import validate

_AVIF: Final = (
    "AAAAHGZ0eXBhdmlmAAAAAG1pZjFhdmlmbWlhZgAAANZtZXRhAAAAAAAAACFoZGxyAAAAAAAAAABwaWN0AAAAAAAAAA"
    "AAAAAAAAAAACJpbG9jAAAAAERAAAEAAQAAAAAA+gABAAAAAAAAAB8AAAAjaWluZgAAAAAAAQAAABVpbmZlAgAAAAAB"
    "AABhdjAxAAAAAA5waXRtAAAAAAABAAAAVmlwcnAAAAA4aXBjbwAAAAxhdjFDgQAMAAAAABRpc3BlAAAAAAAAABAAAA"
    "AQAAAAEHBpeGkAAAAAAwgICAAAABZpcG1hAAAAAAAAAAEAAQOBAgMAAAAnbWRhdBIACgkYDP/aICGg0IAyEBxHh4Xd"
    "wAAsAAB1fVm9zMY="
)
_HEIC: Final = (
    "AAAAHGZ0eXBoZWljAAAAAG1pZjFoZWljbWlhZgAAAXxtZXRhAAAAAAAAACFoZGxyAAAAAAAAAABwaWN0AAAAAAAAAA"
    "AAAAAAAAAAACJpbG9jAAAAAERAAAEAAQAAAAABoAABAAAAAAAAACYAAAAjaWluZgAAAAAAAQAAABVpbmZlAgAAAAAB"
    "AABodmMxAAAAAA5waXRtAAAAAAABAAAA/GlwcnAAAADcaXBjbwAAAHVodmNDAQNwAAAAkAAAAAAAHvAA/P34+AAADw"
    "NgAAEAGEABDAH//wNwAAADAJAAAAMAAAMAHroCQGEAAQApQgEBA3AAAAMAkAAAAwAAAwAeoCCBBZbqrprm4CGgwIAA"
    "AAyAAAADAIRiAAEABkQBwXPBiQAAABNjb2xybmNseAABAA0ABoAAAAAUaXNwZQAAAAAAAABAAAAAQAAAAChjbGFwAA"
    "AAEAAAAAEAAAAQAAAAAf///9AAAAAC////0AAAAAIAAAAQcGl4aQAAAAADCAgIAAAAGGlwbWEAAAAAAAAAAQABBYEC"
    "AwWEAAAALm1kYXQAAAAiKAGvBBITTOD46cJoPU/9xi9668n7QKsr40mfd7EYkqn/oA=="
)
_SAMPLES: Final[dict[Format, str]] = {"avif": _AVIF, "heic": _HEIC}


def decodable() -> tuple[str, ...]:
    """The content types whose photos can be decoded."""
    return tuple(name for name, kind in CONTENT_TYPES.items() if _is_decodable(kind))


def _is_decodable(kind: Format) -> bool:
    sample = _SAMPLES.get(kind)
    if sample is None:
        return True
    try:
        picture = decode(validate(base64.b64decode(sample), PhotoOptions()), PhotoOptions())
    except Exception:  # noqa: BLE001 - whatever it is, such photos cannot be read
        return False
    return (picture.width, picture.height) == (16, 16)
