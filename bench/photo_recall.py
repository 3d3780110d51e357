"""Which faces the detector finds, by size and pose; which pictures without people it spoils; CPU of
a picture (I-37).

    python -m bench photo_recall                     close-ups, pasted faces, photographs
    python -m bench photo_recall --pictures FOLDER   labelled pictures, as WIDER FACE has them
    python -m bench photo_recall --everyday FOLDER   pictures without people
    python -m bench photo_recall --output FOLDER     ten pictures drawn by lot, before and after

Without a folder, the faces come from three packages of npm that no test uses; where they are in
their pictures is in `photo_faces.txt`, in WIDER FACE's label format, checked by eye. A face counts
as hidden if nine tenths of its box are covered. Pictures of `imagenet-sample-images` on which a
person is, also by eye, are left out: `photo_with_people.txt`.
"""

import argparse
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from bench.photo_pictures import EVERYDAY, area, labels, package_pictures, scenes
from jobwire.handlers.photo.compare import write_comparison
from jobwire.handlers.photo.detect import detect
from jobwire.handlers.photo.detectors import Detector, load
from jobwire.handlers.photo.hide import hide
from jobwire.handlers.photo.options import PhotoOptions, Sensitivity
from jobwire.handlers.photo.picture import Picture, Pixels
from jobwire.handlers.photo.results import Area

_COVERED: Final = 0.9
_LARGE: Final = 24
"""The bar holds for faces of so many pixels."""
_BARS: Final[dict[Sensitivity, float]] = {"balanced": 0.94, "strict": 0.95}
_MOST_HIT: Final = 0.05
"""The bar of `balanced`: of everyday pictures without people; none may lose a third."""
_SHOWN: Final = 10
_SHARES: Final = (0.4, 0.5, 0.7, 1.0, 1.2)
"""Height of the face in a close-up, as a part of the picture's."""
_SIZES: Final = (16, 24, 48, 96, 10_000)
_POSES: Final = ("upright", "tilted", "cut", "lying")
_WEIGHTS: Final = (0.65, 0.2, 0.1, 0.05)
_POSE: Final = {0: "usual pose", 1: "unusual pose"}
_BLUR: Final = {0: "none", 1: "some", 2: "heavy"}
_PICTURES: Final = {".jpg", ".jpeg", ".png", ".webp"}
_COLUMNS, _ROWS = 6, 4
"""Faces in a scene."""
_FILLS: Final = 3
"""How often each scene is used, with other faces."""
vips: Any = import_module("pyvips")


class Face(NamedTuple):
    """A face in a picture, and the groups in which it is counted."""

    area: Area
    pose: str
    more: Sequence[str] = ()


class Labelled(NamedTuple):
    """A picture and its faces."""

    pixels: Pixels
    faces: Sequence[Face]


def run(*options: str) -> bool:
    """Measure and print; return whether the bars are met."""
    parser = argparse.ArgumentParser(prog="bench photo_recall")
    for name in ("pictures", "everyday", "output"):
        parser.add_argument(f"--{name}", type=Path)
    chosen = parser.parse_args(options)
    folder: Path | None = chosen.pictures
    everyday: Path | None = chosen.everyday
    is_met = True
    for sensitivity, bar in _BARS.items():
        detector = load("faces", sensitivity)
        if folder is None and everyday is None:
            close = _Tally(detector, _closeups())
            close.report(f"{sensitivity}, close-ups")
            is_met = is_met and close.hidden["all"] == close.faces["all"]
        if folder is not None or everyday is None:
            tally = _Tally(detector, _pasted() if folder is None else _from_folder(folder))
            tally.report(f"{sensitivity}, {'faces in scenes' if folder is None else folder.name}")
            is_met = is_met and tally.share(f"from {_LARGE} px") >= bar
        if everyday is not None or folder is None:
            spoilt = _Tally(detector, (Labelled(each, ()) for each in _everyday(everyday)))
            spoilt.report(f"{sensitivity}, without people")
            if sensitivity == "balanced":
                is_met = is_met and 0 < spoilt.pictures * _MOST_HIT >= spoilt.hits
                is_met = is_met and spoilt.mostly == 0
    bars = ", ".join(f"{name} {bar:.0%}" for name, bar in _BARS.items())
    print(f"bar: all close-ups; faces from {_LARGE} px: {bars}; balanced changes {_MOST_HIT:.0%}")
    print("of the pictures without people, and hides more than a third of none")
    if chosen.output is not None:
        labelled = _from_folder(folder) if folder is not None else _pasted()
        found = labelled if everyday is None else (Labelled(x, ()) for x in _everyday(everyday))
        _show(list(found), chosen.output)
    return is_met


def _show(pictures: Sequence[Labelled], target: Path) -> None:
    """Ten pictures drawn by lot, before and after; they are of others, and for the eye only."""
    target.mkdir(parents=True, exist_ok=True)
    detectors = {"faces": load("faces")}
    drawn = np.random.default_rng().permutation(len(pictures))[:_SHOWN]
    for number in map(int, drawn):
        pixels = pictures[number].pixels
        before = Picture(pixels, pixels.shape[1], pixels.shape[0])
        after = hide(detect(before, PhotoOptions(), detectors), PhotoOptions())
        file = target / f"{number}.webp"
        write_comparison(before, after, PhotoOptions(), file)
        print(f"{file}: {len(after.areas)} areas, {after.hidden_part:.1%} hidden")


class _Tally:
    """Counts over many pictures."""

    def __init__(self, detector: Detector, pictures: Iterator[Labelled]) -> None:
        self.faces: Counter[str] = Counter()
        self.hidden: Counter[str] = Counter()
        self.false = self.pictures = 0
        self.hits = self.spoilt = self.mostly = 0
        """Pictures that lose anything, more than a twentieth, more than a third."""
        began_s = detecting_s = 0.0
        for picture in pictures:
            began_s = time.process_time()
            found = tuple(
                each for each in detector.find(picture.pixels) if each.certainty != "refuted"
            )
            detecting_s += time.process_time() - began_s
            self.pictures += 1
            self._count(picture, found)
        self.cpu_ms = detecting_s / max(1, self.pictures) * 1000

    def _count(self, picture: Labelled, found: tuple[Area, ...]) -> None:
        pixels, faces = picture
        height, width = pixels.shape[:2]
        after = hide(Picture(pixels, width, height, found), PhotoOptions(fill="grey"))
        hidden = after.areas
        self.hits += bool(hidden)
        self.spoilt += after.hidden_part > 1 / 20
        self.mostly += after.hidden_part > 1 / 3
        for face in faces:
            is_hidden = _cover(face.area, hidden) >= _COVERED
            for group in (*_groups(face.area, face.pose), *face.more):
                self.faces[group] += 1
                self.hidden[group] += is_hidden
        self.false += sum(
            all(_common(each, face.area) < 0.25 * each.width * each.height for face in faces)
            for each in found
        )

    def share(self, group: str) -> float:
        """The part of the faces of a group that is hidden."""
        return self.hidden[group] / max(1, self.faces[group])

    def report(self, title: str) -> None:
        """Print all groups."""
        print(f"\n{title}: {self.pictures} pictures, {self.cpu_ms:.0f} ms of CPU each,", end=" ")
        print(f"{self.false / max(1, self.pictures):.1f} false areas a picture")
        if not self.faces:
            of = 100 / max(1, self.pictures)
            print(f"  changed {self.hits * of:.1f} of 100; more than a twentieth hidden", end=" ")
            print(f"{self.spoilt * of:.1f}; more than a third {self.mostly * of:.1f}")
        for group, count in sorted(self.faces.items()):
            print(f"  {group:24} {self.hidden[group]:5} of {count:5}  {self.share(group):6.1%}")


def _groups(face: Area, pose: str) -> Iterator[str]:
    size = max(face.width, face.height)
    yield "all"
    yield f"{pose}, from {_LARGE} px" if size >= _LARGE else f"below {_LARGE} px"
    if size >= _LARGE:
        yield f"from {_LARGE} px"
        low, high = next(pair for pair in pairwise(_SIZES) if size < pair[1])
        yield f"{low:3} to {high} px" if high < _SIZES[-1] else f"{low:3} px and more"


def _cover(face: Area, areas: Sequence[Area]) -> float:
    mask = np.zeros((face.height, face.width), np.bool_)
    for each in areas:
        top, left = max(0, each.top - face.top), max(0, each.left - face.left)
        mask[top : max(0, each.bottom - face.top), left : max(0, each.right - face.left)] = True
    return float(mask.mean())


def _common(one: Area, other: Area) -> int:
    across = min(one.right, other.right) - max(one.left, other.left)
    down = min(one.bottom, other.bottom) - max(one.top, other.top)
    return max(0, across) * max(0, down)


# ── pictures ─────────────────────────────────────────────────────────────────────────────────────


def _closeups() -> Iterator[Labelled]:
    """Each large face, cropped to a picture of 1440 × 1920 so that it has a share of its height."""
    for pixels, faces in package_pictures():
        face = max(faces, key=lambda each: each.height)
        if face.height < 110:
            continue
        for share in _SHARES:
            picture, cropped = _crop(pixels, face, share)
            yield Labelled(picture, [Face(cropped, f"{share:.0%} of the height")])


def _crop(
    pixels: Pixels, face: Area, share: float, width: int = 1440, height: int = 1920
) -> tuple[Pixels, Area]:
    scale = share * height / face.height
    whole = _image(pixels).resize(scale, kernel="cubic")
    left = round((face.left + face.width / 2) * scale - width / 2)
    top = round((face.top + face.height / 2) * scale - height / 2)
    before_x, before_y = max(0, -left), max(0, -top)
    around = whole.embed(
        before_x, before_y, whole.width + 2 * width, whole.height + 2 * height, extend="copy"
    )
    picture = around.crop(left + before_x, top + before_y, width, height).numpy()
    scaled = Area(
        round(face.left * scale) - left,
        round(face.top * scale) - top,
        round(face.width * scale),
        round(face.height * scale),
        face.label,
    )
    return picture, _inside(scaled, width, height)


def _pasted() -> Iterator[Labelled]:
    """Scenes of two sizes, with a face in every cell of a grid."""
    chance = np.random.default_rng(7)
    heads = [(_image(head), face) for head, face in _heads()]
    for width, height, largest in ((1920, 1280, 160), (720, 480, 75)):
        for scene in scenes(width, height):
            for _ in range(_FILLS):
                yield _filled(scene.copy(), heads, largest, chance)


def _filled(
    scene: Pixels, heads: Sequence[tuple[Any, Area]], largest: int, chance: np.random.Generator
) -> Labelled:
    height, width = scene.shape[:2]
    faces: list[Face] = []
    for cell in range(_COLUMNS * _ROWS):
        head, face = heads[int(chance.integers(len(heads)))]
        size = math.exp(chance.uniform(math.log(16), math.log(largest)))
        pose = str(chance.choice(_POSES, p=_WEIGHTS))
        column, row = cell % _COLUMNS, cell // _COLUMNS
        x = (column + 0.5) * width / _COLUMNS
        y = (row + 0.5) * height / _ROWS
        if pose == "cut":  # by the nearer side: a fifth to a half of the face is outside
            x = size * chance.uniform(0, 0.2)
            x = x if column < _COLUMNS / 2 else width - x
        angle = 0.0
        if pose == "tilted":
            angle = float(chance.choice([-45, -30, -20, 20, 30, 45]))
        elif pose == "lying":
            angle = float(chance.choice([90, 180, 270]))
        faces.append(Face(_paste(scene, head, face, size, (x, y), angle), pose))
    return Labelled(scene, faces)


def _heads() -> Iterator[tuple[Pixels, Area]]:
    """Each face with what is around it, feathered: alpha is the fourth band."""
    for pixels, faces in package_pictures():
        for face in faces:
            if face.height < 70:
                continue
            margin = max(face.width, face.height) // 2
            around = _image(pixels).embed(
                margin,
                margin,
                pixels.shape[1] + 2 * margin,
                pixels.shape[0] + 2 * margin,
                extend="copy",
            )
            width, height = face.width + 2 * margin, face.height + 2 * margin
            head = around.crop(face.left, face.top, width, height).numpy()
            down, across = np.mgrid[:height, :width]
            distance = np.hypot(
                (across - width / 2) / (face.width * 0.78),
                (down - height / 2) / (face.height * 0.78),
            )
            alpha = ((1.15 - distance) / 0.15).clip(0, 1) * 255
            yield (
                np.dstack([head, alpha.astype(np.uint8)]),
                replace(face, left=margin, top=margin),
            )


def _paste(
    scene: Pixels, head: Any, face: Area, size: float, centre: tuple[float, float], angle: float
) -> Area:
    """Put a head into the scene; returns the box of its face."""
    scale = size / face.height
    small = head.resize(scale, kernel="linear").similarity(angle=angle).numpy().astype(np.float32)
    height, width = scene.shape[:2]
    left, top = round(centre[0] - small.shape[1] / 2), round(centre[1] - small.shape[0] / 2)
    x0, y0 = max(0, left), max(0, top)
    part = small[y0 - top : height - top, x0 - left : width - left]
    rows, columns = slice(y0, y0 + part.shape[0]), slice(x0, x0 + part.shape[1])
    alpha = part[:, :, 3:] / 255
    scene[rows, columns] = scene[rows, columns] * (1 - alpha) + part[:, :, :3] * alpha
    # The box around a turned ellipse.
    sine, cosine = np.sin(np.deg2rad(angle)), np.cos(np.deg2rad(angle))
    across = np.hypot(face.width * scale * cosine, face.height * scale * sine)
    down = np.hypot(face.width * scale * sine, face.height * scale * cosine)
    box = Area(
        round(centre[0] - across / 2), round(centre[1] - down / 2), round(across), round(down),
        face.label,
    )  # fmt: skip
    return _inside(box, width, height)


def _inside(box: Area, width: int, height: int) -> Area:
    left, top = max(0, box.left), max(0, box.top)
    right, bottom = min(width, box.right), min(height, box.bottom)
    return replace(box, left=left, top=top, width=right - left, height=bottom - top)


def _from_folder(folder: Path) -> Iterator[Labelled]:
    """Pictures of a folder with WIDER FACE's labels, at the size that would be published."""
    (listed,) = folder.rglob("*bbx_gt.txt")
    found = {file.name: file for file in folder.rglob("*.jpg")}
    for name, boxes in labels(listed):
        if (file := found.get(Path(name).name)) is None:
            continue
        whole = vips.Image.new_from_file(str(file))
        image = whole.thumbnail_image(1920, height=1920, size="down").colourspace("srgb")
        scale = image.width / whole.width
        faces = [
            Face(area(box, scale), _POSE.get(box[9], "pose not labelled"), _traits(box, scale))
            for box in boxes
            if not box[7] and min(box[2:4]) * scale >= 1
        ]
        yield Labelled(image[:3].numpy(), faces)


def _traits(box: Sequence[int], scale: float) -> Sequence[str]:
    """Blur and occlusion of a face that counts for the bar, by its label."""
    if max(box[2:4]) * scale < _LARGE:
        return ()
    return (f"blur {_BLUR.get(box[4], '?')}", f"occlusion {_BLUR.get(box[8], '?')}")


def _everyday(folder: Path | None) -> Iterator[Pixels]:
    """Pictures without people, at the size that would be published."""
    if folder is None:
        yield from scenes(1920, 1280, EVERYDAY)
        yield from scenes(600, 400, EVERYDAY)
        return
    left_out = set(Path(__file__).with_name("photo_with_people.txt").read_text().split())
    for file in sorted(folder.rglob("*")):
        if file.suffix.lower() in _PICTURES and file.name not in left_out:
            image = vips.Image.thumbnail(str(file), 1920, height=1920, size="down")
            image = image.colourspace("srgb")
            yield (image.flatten(background=255) if image.hasalpha() else image)[:3].numpy()


def _image(pixels: Pixels) -> Any:
    height, width, bands = pixels.shape
    made = vips.Image.new_from_memory(pixels.tobytes(), width, height, bands, "uchar")
    return made.copy(interpretation="srgb")
