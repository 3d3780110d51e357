"""All sources into one checked tree, or all faults at once.

Command line over `JOBWIRE_…` over the sources' own names over YAML over defaults. Each value
keeps where it came from. Called by every command of the CLI; never by a room.
"""

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from jobwire.settings import sources
from jobwire.settings.schema import Leaf, Section, default_of, sections
from jobwire.settings.sources import SettingValue
from jobwire.settings.tree import Settings
from jobwire.settings.values import BadValue, check, convert, seconds

DEFAULT: Final = "default"
CONFIG_FILE: Final = "jobwire.yaml"
_TREE: Final = tuple(sections(Settings))


class SettingsError(ValueError):
    """The settings cannot be used; each fault is one line with its place."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The tree, where each value came from (by path), and what the reader should be told."""

    settings: Settings
    origins: Mapping[str, str]
    warnings: Sequence[str]
    child_env: Mapping[str, str]
    """What to add to the environment of a program of ours, so that it is set like this one."""

    def is_given(self, path: str) -> bool:
        """Whether somebody set it, rather than the default."""
        return self.origins[path] != DEFAULT


def load(
    options: Mapping[str, tuple[str, str]] | None = None,
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Loaded:
    """Read everything; SettingsError lists all that is wrong.

    `options` maps a path to (the option's name, its text). Without `file`: the file that
    JOBWIRE_CONFIG names, else `jobwire.yaml` if it lies in the working directory.
    """
    environ = os.environ if environ is None else environ
    named = file or (Path(environ["JOBWIRE_CONFIG"]) if environ.get("JOBWIRE_CONFIG") else None)
    yaml_path = named or (Path(CONFIG_FILE) if Path(CONFIG_FILE).exists() else None)
    # From the weakest to the strongest.
    layers = [
        *([sources.yaml_file(yaml_path, _TREE)] if yaml_path else []),
        sources.foreign_environment(environ, _TREE),
        sources.environment(environ, _TREE),
        sources.options(options or {}),
    ]
    faults = [fault for layer in layers for fault in layer.faults]
    effective, dropped = _merge([layer.given for layer in layers])
    settings = _build(effective, faults)
    if faults or settings is None:
        raise SettingsError(faults)
    origins = {
        leaf.path: effective[leaf.path].origin if leaf.path in effective else DEFAULT
        for section in _TREE
        for leaf in section.leaves
    }
    return Loaded(settings, origins, _warnings(dropped), _child_env(options or {}, yaml_path))


def _child_env(options: Mapping[str, tuple[str, str]], yaml_path: Path | None) -> dict[str, str]:
    names = {leaf.path: leaf.env_name for section in _TREE for leaf in section.leaves}
    env = {"JOBWIRE_CONFIG": str(yaml_path.absolute())} if yaml_path else {}
    for path, (_, text) in options.items():
        env |= {names[rival]: "" for rival in _rivals(path)}
        env[names[path]] = text
    return env


def _merge(
    layers: Sequence[Sequence[SettingValue]],
) -> tuple[dict[str, SettingValue], list[SettingValue]]:
    """The strongest value of each path, and those that are void."""
    void = {
        section.place(name): values for section in _TREE for name, values in section.void.items()
    }
    effective: dict[str, SettingValue] = {}
    dropped: list[SettingValue] = []
    for layer in layers:
        for given in layer:
            if given.path in void:
                values = void[given.path]
                if values is None or given.raw in values:
                    dropped.append(given)
                    continue
            # Said in this source: what a weaker source said in the other way is off.
            for rival in _rivals(given.path):
                if rival in effective and effective[rival] not in layer:
                    del effective[rival]
            effective[given.path] = given
    return effective, dropped


def _rivals(path: str) -> Iterator[str]:
    for section in _TREE:
        paths = [section.place(name) for name in section.one_of]
        if path in paths:
            yield from (rival for rival in paths if rival != path)


def _build(effective: Mapping[str, SettingValue], faults: list[str]) -> Settings | None:
    """The tree, with every fault of a value or a section added to `faults`."""
    by_section = {section.path: _build_section(section, effective, faults) for section in _TREE[1:]}
    root = _values(_TREE[0], effective, faults)
    if faults:
        return None
    return Settings(**root, **by_section)  # pyright: ignore[reportArgumentType] - by the schema


def _build_section(
    section: Section, effective: Mapping[str, SettingValue], faults: list[str]
) -> object:
    rivals = [path for path in map(section.place, section.one_of) if path in effective]
    faults.extend(
        f"{effective[other].origin} {other}: {rivals[0]} is given too "
        f"({effective[rivals[0]].origin}); give one of them"
        for other in rivals[1:]
    )
    values = _values(section, effective, faults)
    # What could not be read counts as its default here, so that the other faults show too.
    found = list(check(_unchecked(section.cls, values)))
    for name, problem in found:
        path = section.place(name)
        if name in values:
            faults.append(f"{effective[path].origin} {path}: {problem}")
        elif path not in effective:
            faults.append(f"{DEFAULT} {path}: {problem}")
    return None if found else section.cls(**values)


def _unchecked(cls: type, values: Mapping[str, object]) -> object:
    """The object without the checks that its making may do, which stop at the first fault."""
    built: object = cast("Callable[[type], object]", object.__new__)(cls)
    for field in dataclasses.fields(cls):
        object.__setattr__(built, field.name, values.get(field.name, default_of(field)))
    return built


def _values(
    section: Section, effective: Mapping[str, SettingValue], faults: list[str]
) -> dict[str, object]:
    values: dict[str, object] = {}
    for leaf in section.leaves:
        given = effective.get(leaf.path)
        if given is None:
            continue
        try:
            values[leaf.path.rpartition(".")[2]] = _value(leaf, given)
        except BadValue as bad:
            faults.extend(
                f"{given.origin} {leaf.path}{inside}: {problem}" for inside, problem in bad.faults
            )
    return values


def _value(leaf: Leaf, given: SettingValue) -> object:
    if leaf.path.endswith("_s") and (leaf.kind is int or leaf.kind is float):
        return seconds(leaf.kind, given.raw)
    return convert(leaf.kind, given.raw)


def _warnings(dropped: Sequence[SettingValue]) -> tuple[str, ...]:
    if not dropped:
        return ()
    names = ", ".join(f"{given.path} ({given.origin})" for given in dropped)
    return (f"{names}: void, understood and ignored; it can be taken out",)
