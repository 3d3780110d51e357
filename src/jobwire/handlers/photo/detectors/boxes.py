"""Boxes that networks find: rows of left, top, right, bottom, score, in pixels; more columns may
follow."""

from typing import Final

import numpy as np
import numpy.typing as npt

Boxes = npt.NDArray[np.float32]

_SAME: Final = 0.3
"""Two boxes that share more than this part of their union are one face."""
_INSIDE: Final = 0.8
"""A box is a part of another one if this much of it lies inside."""


def distinct(boxes: Boxes) -> Boxes:
    """The box with the highest score of each face."""
    left = by_score(boxes)
    kept: list[Boxes] = []
    while len(left):
        best, left = left[0], left[1:]
        kept.append(best)
        left = left[_shares(best, left)[0] <= _SAME]
    return np.array(kept, np.float32).reshape(-1, 5)


def joined(boxes: Boxes) -> Boxes:
    """One box for each face, around all of its boxes: what any view has seen is covered."""
    left = by_score(boxes)
    kept: list[Boxes] = []
    while len(left):
        union, inside = _shares(left[0], left)
        is_same = (union > _SAME) | (inside > _INSIDE)
        same, left = left[is_same], left[~is_same]
        # What is not a corner is that of the box with the highest score.
        corners = (same[:, :2].min(axis=0), same[:, 2:4].max(axis=0), same[0, 4:])
        kept.append(np.concatenate(corners))
    return np.array(kept, np.float32).reshape(-1, boxes.shape[1])


def strongest(boxes: Boxes, of: Boxes) -> Boxes:
    """For each row of `of` the highest score that the same face has in `boxes`; 0 if none has."""
    scores = [boxes[_shares(one, boxes)[0] > _SAME, 4].max(initial=0) for one in of]
    return np.array(scores, np.float32)


def turned(boxes: Boxes, quarters: int, width: int, height: int) -> Boxes:
    """Boxes of a picture that was turned counterclockwise, where they are in the upright one.

    `width` and `height` are those of the upright picture.
    """
    left, top, right, bottom, score = boxes.T
    match quarters:
        case 0:
            return boxes
        case 1:
            sides = (width - bottom, left, width - top, right)
        case 2:
            sides = (width - right, height - bottom, width - left, height - top)
        case _:
            sides = (top, height - right, bottom, height - left)
    return np.stack([*sides, score], axis=1)


def by_score(boxes: Boxes) -> Boxes:
    """Highest score first."""
    return boxes[np.argsort(-boxes[:, 4])]


def _shares(one: Boxes, others: Boxes) -> tuple[Boxes, Boxes]:
    """What one box has in common with others: as a part of their union, and of the others."""
    sides = np.minimum(one[2:4], others[:, 2:4]) - np.maximum(one[:2], others[:, :2])
    common = sides.clip(0).prod(axis=1)
    sizes = (others[:, 2:4] - others[:, :2]).prod(axis=1).clip(1e-6)
    own = (one[2:4] - one[:2]).prod()
    return common / (own + sizes - common), common / sizes
