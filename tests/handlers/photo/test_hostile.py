"""No uploaded file crashes the process, and each fault has its code.

`CHAOS_MUTANTS=2000` makes more mutants, `CHAOS_SEED` others.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobwire.handlers.photo import PhotoOptions, PoolLimits
from jobwire.handlers.photo.header import BadHeader, count_scans, read_header
from tests.handlers.photo import images
from tests.handlers.photo.hostile import HARMLESS, PAYLOAD, REFUSED
from tests.handlers.photo.mutants import mutants, seeds
from tests.handlers.photo.pool_runner import PLUGINS, RunningPool
from tests.support import clause

MUTANTS = int(os.environ.get("CHAOS_MUTANTS", "200"))
SEED = int(os.environ.get("CHAOS_SEED", "20"))
MOST_MIB = 512
"""Resident memory of a worker, the detector included."""


def _peak_mib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return psutil.Process(pid).memory_info().rss >> 20
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
    assert found is not None
    return int(found[1]) >> 10


@clause("I-22", "I-21", "I-6")
@pytest.mark.parametrize("name", REFUSED)
def test_i22_hostile_file_is_refused_with_its_code(
    pool: RunningPool, target: Path, name: str
) -> None:
    make, code = REFUSED[name]
    if not pool.pool.pids:  # the test before has ended its worker
        pool.process(images.png(images.quarters()), target)
        target.unlink()
    (worker,) = pool.pool.pids
    outcome = pool.process(make(), target)
    assert outcome.code == code
    assert not target.exists()
    assert outcome.error is not None
    assert str(target.parent) not in outcome.error.message
    assert not re.search(r"vips|jpegload|Traceback|\.py", outcome.error.message)
    assert pool.pool.pids == [worker]
    assert _peak_mib(worker) < MOST_MIB


@clause("I-22")
@pytest.mark.parametrize("name", HARMLESS)
def test_i22_a_payload_hidden_in_an_image_is_not_published(
    pool: RunningPool, target: Path, name: str
) -> None:
    outcome = pool.process(HARMLESS[name](), target)
    assert outcome.photo is not None
    written = target.read_bytes()
    assert PAYLOAD not in written
    assert b"page.html" not in written
    assert len(written) < 10_000
    assert _peak_mib(pool.pool.pids[0]) < MOST_MIB


@clause("I-21", "I-36")
def test_i36_a_photo_of_50_megapixels_stays_within_the_budget(target: Path) -> None:
    """The costliest form: progressive. CPU is measured by `make bench ARGS="photo images"`."""
    flat = images.image(images.quarters(816, 612)).resize(10, kernel="nearest")
    limits = PoolLimits(workers=1)
    with RunningPool(limits, PhotoOptions(detect=())) as pool:
        before = _peak_mib(pool.pool.pids[0])
        outcome = pool.process(flat.jpegsave_buffer(Q=60, interlace=True), target)
        assert outcome.photo is not None, outcome.error
        assert outcome.photo.original_width * outcome.photo.original_height > 49_900_000
        assert _peak_mib(pool.pool.pids[0]) - before <= limits.pixel_budget_mb


@clause("I-22")
def test_i22_declared_type_must_be_the_real_one(pool: RunningPool, target: Path) -> None:
    upload = images.png(images.quarters())
    for declared, code in (("image/png", ""), ("image/jpeg", "VALIDATION_FAILED")):
        options = PhotoOptions(content_type=declared)
        assert pool.process(upload, target, options).code == code


@clause("I-22", "I-6")
def test_i22_scan_bomb_is_ended_by_the_cpu_limit(tmp_path: Path) -> None:
    """Even where the check of scans lets it pass, the kernel ends it, and the next photo works."""
    options = PhotoOptions(detect=(), max_scans=100_000)
    with RunningPool(PoolLimits(workers=1, cpu_limit_s=1), options) as pool:
        (worker,) = pool.pool.pids
        outcome = pool.process(images.many_scans(7000, 880), tmp_path / "bomb.webp")
        assert outcome.code == "TIMEOUT"
        assert outcome.error is not None
        assert "CPU" in outcome.error.detail
        good = pool.process(images.jpeg(images.quarters()), tmp_path / "good.webp")
        assert good.photo is not None
        assert worker not in pool.pool.pids


@clause("I-22", "I-21")
def test_i22_damaged_files_fail_only_their_own_photo(pool: RunningPool, tmp_path: Path) -> None:
    codes: dict[str, int] = {}
    measured = 0
    target = tmp_path / "out.webp"
    for number, upload in enumerate(mutants(MUTANTS, SEED)):
        outcome = pool.process(upload, target)
        codes[outcome.code] = codes.get(outcome.code, 0) + 1
        assert outcome.code in ("", "VALIDATION_FAILED", "DECODE_FAILED"), (number, outcome.error)
        if outcome.photo is not None:
            assert images.read(target).shape[:2] == (
                outcome.photo.height,
                outcome.photo.width,
            )
        # There is none where this one ended its worker: the next photo starts another.
        measured += len(pool.pool.pids)
        assert all(_peak_mib(worker) < MOST_MIB for worker in pool.pool.pids), number
    assert sum(codes.values()) == MUTANTS
    assert measured > 0.95 * MUTANTS
    assert len(codes) == 3, codes  # every outcome occurred
    print(f"{MUTANTS} mutants: {codes}")


@clause("I-22")
def test_i22_a_warning_of_the_library_runs_no_python(tmp_path: Path) -> None:
    """A warning ran Python, whose collection of garbage closed an image that warned in its turn:
    GLib ends a process that warns while it warns."""
    options = PhotoOptions(detect=(f"{PLUGINS}:EndOnWarning",))
    with RunningPool(PoolLimits(workers=1), options) as pool:
        workers = pool.pool.pids
        for damaged in list(mutants(200, 20))[140:]:
            pool.process(damaged, tmp_path / "out.webp")
        assert pool.pool.pids == workers


@clause("I-22")
@given(st.data())
def test_i22_any_header_is_read_or_refused(data: st.DataObject) -> None:
    start = data.draw(st.sampled_from([each[:400] for each in seeds()]))
    at = data.draw(st.integers(0, 300))
    upload = start[:at] + data.draw(st.binary(max_size=60)) + start[at:]
    try:
        header = read_header(upload)
        count_scans(upload, 10)
    except BadHeader:
        return
    assert header.width > 0
    assert header.height > 0


@clause("I-22")
def test_i22_scans_are_counted_as_the_decoder_does() -> None:
    pixels = images.quarters()
    assert count_scans(images.jpeg(pixels), 100) == 1
    progressive = images.jpeg(pixels, interlace=True)
    assert count_scans(progressive, 100) == progressive.count(b"\xff\xda") > 5
    # Bytes of a comment are no scans.
    commented = images.with_segment(progressive, 0xFE, b"\xff\xda" * 500)
    assert count_scans(commented, 100) == count_scans(progressive, 100)
    assert count_scans(images.many_scans(64, 300), 100) == 101
