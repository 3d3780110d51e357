"""Draws title cards: the title, the number of the scene, the voice-over as text, a caption."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from PIL import Image, ImageDraw, ImageFont

WIDTH: Final = 640
HEIGHT: Final = 360
_MARGIN: Final = 32
_TEXT_WIDTH: Final = WIDTH - 2 * _MARGIN
_TEXT_TOP: Final = 96
_TEXT_HEIGHT: Final = HEIGHT - _TEXT_TOP - 56
_BACKGROUND: Final = (18, 22, 33)
_FOREGROUND: Final = (240, 242, 246)
_MUTED: Final = (150, 158, 175)
_ACCENT: Final = (86, 156, 255)
_SIZES: Final = (36, 30, 24, 20, 16, 13)
"""Font sizes of the voice-over, the largest that fits."""
_SMALL: Final = 16
_MAX_CHARACTERS: Final = 1_200
"""More does not fit on a card at the smallest size."""

_Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@dataclass(frozen=True, slots=True)
class Card:
    title: str
    heading: str
    text: str
    caption: str


def draw(card: Card) -> Image.Image:
    """The card as an RGB image; text that does not fit ends with an ellipsis."""
    image = Image.new("RGB", (WIDTH, HEIGHT), _BACKGROUND)
    canvas = ImageDraw.Draw(image)
    small = _font(_SMALL)
    canvas.text((_MARGIN, 24), _one_line(card.title, small), font=small, fill=_MUTED)
    canvas.text((_MARGIN, 52), _one_line(card.heading, small), font=small, fill=_ACCENT)
    text, size = _fitted(card.text)
    canvas.multiline_text((_MARGIN, _TEXT_TOP), text, font=_font(size), fill=_FOREGROUND, spacing=6)
    caption = _one_line(card.caption, small)
    canvas.text((_MARGIN, HEIGHT - 44), caption, font=small, fill=_MUTED)
    return image


def draw_bar(image: Image.Image, fraction: float) -> Image.Image:
    """A copy of a card with the position in the clip as a bar at its foot."""
    copy = image.copy()
    ImageDraw.Draw(copy).rectangle((0, HEIGHT - 6, round(WIDTH * fraction), HEIGHT), fill=_ACCENT)
    return copy


@cache
def _font(size: int) -> _Font:
    try:
        # Has Greek and Cyrillic letters too, where the machine has it.
        return ImageFont.truetype("DejaVuSans.ttf", size)
    except OSError:
        return ImageFont.load_default(size)


def _fitted(text: str) -> tuple[str, int]:
    """The text in lines, and the largest size at which they fit."""
    words = _printable(text).split()
    size, lines, allowed = _SIZES[0], list[str](), 1
    for size in _SIZES:
        lines, allowed = list(_lines(words, _font(size))), _TEXT_HEIGHT // (size + 8)
        if len(lines) <= allowed:
            return "\n".join(lines), size
    lines = lines[:allowed]
    lines[-1] = _one_line(f"{lines[-1]} …", _font(size))
    return "\n".join(lines), size


def _lines(words: list[str], font: _Font) -> Iterator[str]:
    line = ""
    for word in words:
        joined = f"{line} {word}" if line else word
        if font.getlength(joined) <= _TEXT_WIDTH:
            line = joined
            continue
        if line:
            yield line
        while font.getlength(word) > _TEXT_WIDTH:
            fits = _fitting(word, font)
            yield word[:fits]
            word = word[fits:]
        line = word
    if line:
        yield line


def _one_line(text: str, font: _Font) -> str:
    line = " ".join(_printable(text).split())
    if font.getlength(line) <= _TEXT_WIDTH:
        return line
    return line[: _fitting(line, font) - 1].rstrip(" …") + "…"


def _fitting(text: str, font: _Font) -> int:
    """How many characters fit into a line, at least one."""
    low, high = 1, min(len(text), _TEXT_WIDTH)
    while low < high:
        middle = (low + high + 1) // 2
        if font.getlength(text[:middle]) <= _TEXT_WIDTH:
            low = middle
        else:
            high = middle - 1
    return low


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text[:_MAX_CHARACTERS])
