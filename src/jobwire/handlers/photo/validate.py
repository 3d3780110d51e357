"""Step 1, validate: refuse what is too large, of another type, animated or a scan bomb.

Nothing is decoded here. What passes may still be damaged; then decoding fails.
"""

from jobwire.handlers.photo.errors import ErrorCode, PhotoError
from jobwire.handlers.photo.header import (
    CONTENT_TYPES,
    FORMATS,
    BadHeader,
    PhotoHeader,
    count_scans,
    read_header,
)
from jobwire.handlers.photo.options import MEGABYTE, MEGAPIXEL, PhotoOptions
from jobwire.handlers.photo.picture import Upload


def validate(data: bytes, options: PhotoOptions) -> Upload:
    """The file with its header, if both are within the bounds."""
    if not data:
        raise _refused("the file is empty; upload the photo again")
    if len(data) > options.max_bytes:
        allowed = options.max_bytes / MEGABYTE
        raise _refused(f"the file has more than {allowed:.3g} MB; send a smaller photo")
    try:
        header = read_header(data)
        _check_kind(header, options)
        _check_size(header, options)
        if header.format == "jpeg" and count_scans(data, options.max_scans) > options.max_scans:
            raise _refused(
                f"the JPEG has more than {options.max_scans} scans; save it as a baseline JPEG"
            )
    except BadHeader as bad:
        raise _refused(f"the file {bad}; send a {FORMATS} photo") from bad
    return Upload(data, header)


def _check_kind(header: PhotoHeader, options: PhotoOptions) -> None:
    declared = options.content_type
    if declared and CONTENT_TYPES.get(declared) != header.format:
        raise _refused(
            f"the file is image/{header.format} and was declared as another type; "
            "declare the type that it has"
        )
    if header.is_animated:
        raise _refused("the picture is animated; send a still photo")


def _check_size(header: PhotoHeader, options: PhotoOptions) -> None:
    size = f"the photo has {header.width} × {header.height} pixels"
    if max(header.width, header.height) > options.max_side:
        raise _refused(f"{size}, and a side may have {options.max_side}; make it smaller")
    if header.pixels > options.max_megapixels * MEGAPIXEL:
        raise _refused(f"{size}, and {options.max_megapixels:g} megapixels fit; make it smaller")


def _refused(message: str) -> PhotoError:
    return PhotoError(ErrorCode.VALIDATION_FAILED, message)
