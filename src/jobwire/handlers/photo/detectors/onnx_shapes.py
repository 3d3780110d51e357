"""Removes the fixed sizes from an ONNX model, so that it takes pictures of any size.

A model is a protobuf message. The declared shapes of inputs, outputs and inner values are optional
fields; a network of convolutions works for every size once they are gone. Called once per worker
with a model whose hash was checked, so the bytes are trusted.
"""

from collections.abc import Iterator, Sequence
from typing import Final

_BYTES: Final = 2
_FIXED: Final = {1: 8, 5: 4}
# Field numbers from the model down: graph → input, output → type → tensor type → shape; and
# graph → value_info.
_SHAPES: Final = ((7, 11, 2, 1, 2), (7, 12, 2, 1, 2), (7, 13))


def without_shapes(model: bytes) -> bytes:
    """The same model, for pictures of any size."""
    for path in _SHAPES:
        model = _without(model, path)
    return model


def _without(message: bytes, path: Sequence[int]) -> bytes:
    kept: list[bytes] = []
    first, *rest = path
    for number, whole, content in _fields(message):
        if number != first:
            kept.append(whole)
        elif rest:
            inner = _without(content, rest)
            kept.append(_varint(number << 3 | _BYTES) + _varint(len(inner)) + inner)
    return b"".join(kept)


def _fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Each field: its number, all of its bytes, and its content where it is a message."""
    at = 0
    while at < len(message):
        begin, content = at, b""
        key, at = _read_varint(message, at)
        kind = key & 7
        if kind == _BYTES:
            length, at = _read_varint(message, at)
            content = message[at : at + length]
            at += length
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            _, at = _read_varint(message, at)
        yield key >> 3, message[begin:at], content


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
