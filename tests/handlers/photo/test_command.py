"""`jobwire images process`: files in, files out, no server."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.runner import jobwire
from tests.cli.terminal import Terminal
from tests.handlers.photo import images
from tests.support import clause


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "portrait.jpg").write_bytes(images.jpeg(images.photograph()))
    (tmp_path / "quarters.png").write_bytes(images.png(images.quarters()))
    (tmp_path / "broken.jpg").write_bytes(b"no photo at all")
    return tmp_path


@clause("I-22", "I-23")
def test_i22_process_writes_several_photos_and_reports_what_failed(folder: Path) -> None:
    sources = ("portrait.jpg", "quarters.png", "broken.jpg")
    done = jobwire("images", "process", *sources, "out", "--show", cwd=folder)
    assert done.returncode == 1
    rows = {row["source"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert set(rows) == set(sources)
    portrait = rows["portrait.jpg"]
    assert portrait["status"] == "processed"
    assert portrait["target"] == "out/portrait.webp"
    assert [area["label"] for area in portrait["hidden"]] == ["face"]
    assert portrait["file_size"] == (folder / "out" / "portrait.webp").stat().st_size
    assert rows["quarters.png"]["hidden"] == []
    assert rows["broken.jpg"]["error_code"] == "VALIDATION_FAILED"
    assert sorted(os.listdir(folder / "out")) == [  # noqa: PTH208 - names
        *("portrait.show.webp", "portrait.webp", "quarters.show.webp", "quarters.webp")
    ]
    before_and_after = images.read(folder / "out" / "portrait.show.webp")
    assert before_and_after.shape == (512, 512 * 2 + 8, 3)


@clause("I-22")
def test_i22_process_shows_people_a_summary(folder: Path) -> None:
    with Terminal(
        "images", "process", "portrait.jpg", "quarters.png", "out", cwd=folder, env={}
    ) as shown:
        shown.until("% saved")
    assert "1 face hidden" in shown.screen
    assert "2 of 2 photos" in shown.screen


@clause("I-22")
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("missing.jpg", "out.webp"), "missing.jpg is not a file"),
        (("portrait.jpg", "quarters.png", "broken.jpg"), "broken.jpg is a file"),
        (("portrait.jpg", "no/such/out.webp"), "no/such does not exist"),
        (("portrait.jpg", "portrait.jpg"), "would be overwritten"),
        (("portrait.jpg", "copy/portrait.png", "out"), "would both become"),
        (("portrait.jpg", "out.webp", "--detect", "plates"), "no detector 'plates'"),
        (("portrait.jpg", "out.webp", "--size", "9000"), "long_side must be between"),
    ],
)
def test_i22_process_refuses_invalid_arguments(
    folder: Path, words: tuple[str, ...], complaint: str
) -> None:
    (folder / "copy").mkdir()
    (folder / "copy" / "portrait.png").write_bytes(images.png(images.quarters()))
    done = jobwire("images", "process", *words, cwd=folder)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (folder / "out.webp").exists()
    assert (folder / "portrait.jpg").read_bytes()[:3] == b"\xff\xd8\xff"


@clause("I-22")
def test_i22_file_names_that_are_not_utf8_work(folder: Path) -> None:
    name = os.fsdecode(b"caf\xe9[page=1]\n.png")
    (folder / "quarters.png").rename(folder / name)
    done = jobwire("images", "process", name, "out/", "--detect", "none", cwd=folder)
    assert done.returncode == 0
    assert "faces stay visible" in done.stderr
    (written,) = (folder / "out").iterdir()
    assert written.stem == Path(name).stem
