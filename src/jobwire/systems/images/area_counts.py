"""Hidden areas in the metadata of a published object: counted by label, as `face=2` (I-38)."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import parse_qsl, urlencode

from jobwire.systems.images.contract import HIDDEN_AREAS, NOTHING_HIDDEN

_MOST_LABELS: Final = 8
_LONGEST_LABEL: Final = 40


def hidden_by_label(labels: Iterable[str]) -> str:
    """The value for the areas with these labels; further labels are left out."""
    counted = Counter(label[:_LONGEST_LABEL] for label in labels)
    return urlencode(sorted(counted.items())[:_MOST_LABELS]) or NOTHING_HIDDEN


def hidden_count(metadata: Mapping[str, str]) -> int | None:
    """How many areas were hidden; None if the object does not say, or not of all labels."""
    text = metadata.get(HIDDEN_AREAS, "")
    if text == NOTHING_HIDDEN:
        return 0
    counts = [number for _, number in parse_qsl(text) if number.isascii() and number.isdigit()]
    return sum(map(int, counts)) if 0 < len(counts) < _MOST_LABELS else None
