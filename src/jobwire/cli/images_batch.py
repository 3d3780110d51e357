"""Several photos processed at a time, with a live bar and a summary, for `jobwire images process`.

A photo is written to a temporary file next to its target and renamed: no partial file is visible.
"""

import asyncio
import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from jobwire.cli import output, sanitize
from jobwire.cli.exits import CliExit, Exit
from jobwire.programs.photo import Photo, PhotoError, PhotoOptions, PhotoPool, PoolLimits, Step


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """One photo: from where, to where."""

    source: Path
    target: Path
    comparison: Path | None = None


def plan(sources: Sequence[Path], out_name: str, *, show: bool) -> list[OutputPlan]:
    """Where each photo goes; all faults are reported before any photo is processed."""
    target = Path(out_name)
    is_folder = len(sources) > 1 or target.is_dir() or out_name.endswith(os.sep)
    if is_folder:
        if target.exists() and not target.is_dir():
            raise CliExit(f"{_name(target)} is a file; several photos need a folder", Exit.USAGE)
        target.mkdir(parents=True, exist_ok=True)
    elif not target.parent.is_dir():
        raise CliExit(
            f"the folder {_name(target.parent)} does not exist; make it first", Exit.USAGE
        )
    plans: dict[Path, OutputPlan] = {}
    for source in sources:
        if not source.is_file():
            raise CliExit(f"{_name(source)} is not a file", Exit.USAGE)
        place = target / f"{source.stem}.webp" if is_folder else target
        if place.exists() and place.samefile(source):
            raise CliExit(
                f"{_name(source)} would be overwritten; choose another folder", Exit.USAGE
            )
        if place in plans:
            names = f"{_name(plans[place].source)} and {_name(source)}"
            raise CliExit(f"{names} would both become {_name(place)}; rename one", Exit.USAGE)
        comparison = place.with_suffix(".show.webp") if show else None
        plans[place] = OutputPlan(source, place, comparison)
    return list(plans.values())


class PhotoBatch:
    """Runs the plans, a few at a time."""

    def __init__(self, plans: Sequence[OutputPlan], options: PhotoOptions, workers: int) -> None:
        # What fits the options must fit the budget.
        budget = max(PoolLimits().pixel_budget_mb, int(options.max_megapixels * 8) + 1)
        limits = PoolLimits(workers=workers, pixel_budget_mb=budget)
        count = min(limits.worker_count, len(plans))
        self._pool = PhotoPool(replace(limits, workers=count), options)
        self._at_a_time = count + 1  # one waits, so that no worker is idle
        self._plans = plans
        self._as_json = output.wants_json()
        self._hidden: dict[str, int] = {}
        self._bytes = [0, 0]
        self._failed = 0
        self._bar = _bar()

    async def run(self) -> int:
        """Process all; how many failed."""
        left = iter(self._plans)
        with self._bar as bar:
            total = bar.add_task("photos", total=len(self._plans), step="")
            async with self._pool, asyncio.TaskGroup() as running:
                for _ in range(self._at_a_time):
                    running.create_task(self._work(left, bar, total))
        self._summary()
        return self._failed

    async def _work(self, left: Iterator[OutputPlan], bar: Progress, total: TaskID) -> None:
        for each in left:

            def show(step: Step, name: str = _name(each.source)) -> None:
                bar.update(total, step=f"{name}: {step}")

            part = _temporary_file(each.target)
            shown = None if each.comparison is None else _temporary_file(each.comparison)
            try:
                photo = await self._pool.process(each.source, part, on_step=show, comparison=shown)
            except PhotoError as error:
                self._failed += 1
                self._report_failure(each, error)
            else:
                _publish(part, each.target)
                if shown is not None and each.comparison is not None:
                    _publish(shown, each.comparison)
                self._report(each, photo)
            bar.advance(total)

    def _report(self, each: OutputPlan, photo: Photo) -> None:
        size = _size(each.source)
        self._bytes[0] += size
        self._bytes[1] += photo.file_size
        found: dict[str, int] = {}
        for area in photo.hidden:
            found[area.label] = found.get(area.label, 0) + 1
        for label, count in found.items():
            self._hidden[label] = self._hidden.get(label, 0) + count
        if self._as_json:
            facts = msgspec.to_builtins(photo)
            files = {"source": _name(each.source), "target": _name(each.target)}
            if each.comparison is not None:
                files["comparison"] = _name(each.comparison)
            output.json_line({**files, "status": "processed", "source_size": size, **facts})
            return
        self._print(
            f"{_name(each.source)} → {_name(each.target)}  "
            f"{photo.original_width} × {photo.original_height} → {photo.width} × {photo.height}, "
            f"{_bytes(size)} → {_bytes(photo.file_size)}, {_counted(found)}"
        )

    def _report_failure(self, each: OutputPlan, error: PhotoError) -> None:
        if self._as_json:
            failure = {"status": "failed", "error_code": error.code, "error_message": error.message}
            output.json_line({"source": _name(each.source), **failure})
        else:
            self._print(f"{_name(each.source)}: {error.message} ({error.code})")

    def _print(self, line: str) -> None:
        """Above the bar, where there is one."""
        if self._bar.disable:
            click.echo(line)
        else:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _summary(self) -> None:
        if self._as_json or len(self._plans) == 1:
            return
        before, after = self._bytes
        saved = f" ({100 * (before - after) // before} % saved)" if before else ""
        done = len(self._plans) - self._failed
        line = f"{done} of {len(self._plans)} photos: {_counted(self._hidden)}, "
        output.info(f"{line}{_bytes(before)} → {_bytes(after)}{saved}")


def _bar() -> Progress:
    return Progress(
        BarColumn(24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[step]}", markup=False),
        console=Console(stderr=not sys.stdout.isatty()),
        transient=True,
        disable=not sys.stderr.isatty() or output.is_static(),
    )


def _temporary_file(target: Path) -> Path:
    return target.with_name(f".{target.stem[:100]}.{secrets.token_hex(4)}.part")


def _publish(part: Path, target: Path) -> None:
    """Rename, with the rights that a new file of the user's has."""
    mask = os.umask(0)
    os.umask(mask)
    part.chmod(0o666 & ~mask)
    part.replace(target)


def _size(file: Path) -> int:
    return file.stat().st_size


def _name(file: Path) -> str:
    return sanitize.line(str(file))


def _counted(found: dict[str, int]) -> str:
    if not found:
        return "nothing hidden"
    words = [f"{count} {label}{'s' if count > 1 else ''}" for label, count in found.items()]
    return f"{', '.join(words)} hidden"


def _bytes(size: int) -> str:
    return f"{size / (1 << 20):.1f} MB" if size >= 1 << 20 else f"{max(1, size >> 10)} KB"
