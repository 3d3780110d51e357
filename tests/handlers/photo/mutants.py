"""Good files with a few bytes changed, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache

from tests.handlers.photo import images


@cache
def seeds() -> list[bytes]:
    """One small file of each kind."""
    pixels = images.image(images.photograph()).thumbnail_image(160).numpy()
    return [
        images.jpeg(pixels),
        images.jpeg(pixels, interlace=True),
        images.png(pixels),
        images.png(pixels, interlace=True),
        images.webp(pixels),
        images.webp(pixels, lossless=True),
    ]


def mutants(count: int, seed: int) -> Iterator[bytes]:
    """Bits flipped, bytes overwritten, parts cut out, doubled or exchanged."""
    chance = random.Random(seed)
    good = seeds()
    for number in range(count):
        data = bytearray(good[number % len(good)])
        for _ in range(chance.choice((1, 1, 2, 4, 16))):
            # Headers are short, and most checks are made there.
            end = len(data) if chance.random() < 0.5 else min(len(data), 256)
            at = chance.randrange(end)
            match chance.randrange(5):
                case 0:
                    data[at] ^= 1 << chance.randrange(8)
                case 1:
                    data[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
                case 2:
                    data[at : at + 4] = chance.randbytes(4)
                case 3:
                    del data[at : at + chance.randrange(1, 64)]
                case _:
                    data[at:at] = data[at : at + chance.randrange(1, 64)]
            if not data:
                break
        yield bytes(data)
