"""Merges all sources into one checked tree, or reports all faults at once.

Precedence: command line, `JOBWIRE_…`, the variable names of the source documents, YAML, defaults.
The origin of each value is kept. Called by the commands of the CLI only.
"""

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, cast

from jobwire.private_files import Untrusted, check_trusted
from jobwire.settings import sources
from jobwire.settings.schema import Section, default_of, sections, values_of
from jobwire.settings.sources import SettingValue
from jobwire.settings.tree import Settings
from jobwire.settings.values import BadValue, check, convert_setting, secrets_in, secrets_of, show

DEFAULT: Final = "default"
CONFIG_FILE: Final = "jobwire.yaml"
_TREE: Final = tuple(sections(Settings))


class SettingsError(ValueError):
    """The settings are invalid; each fault is one line with its origin."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)


class ShownSetting(NamedTuple):
    """One setting for the user; a secret is masked."""

    name: str
    value: object
    origin: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings, the origin of each value by path, and warnings for the user."""

    settings: Settings
    origins: Mapping[str, str]
    warnings: Sequence[str]
    child_env: Mapping[str, str]
    """Variables for a child process, so that it has the same settings."""

    @property
    def secrets(self) -> list[str]:
        """The values that must not be shown."""
        return secrets_of(self.settings, _TREE)

    def shown(self) -> list[ShownSetting]:
        """Every setting, with its value as it may be shown."""
        return [
            ShownSetting(leaf.path, show(value, secret=leaf.hides(value)), self.origins[leaf.path])
            for leaf, value in values_of(self.settings, _TREE)
        ]

    def is_set(self, path: str) -> bool:
        """Whether the value comes from a source, not from the default."""
        return self.origins[path] != DEFAULT


def load(
    options: Mapping[str, tuple[str, str]] | None = None,
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Loaded:
    """Read all sources; raises SettingsError with all faults.

    `options` maps a path to (option name, text). Default of `file`: JOBWIRE_CONFIG, else
    `jobwire.yaml` in the working directory, if it exists.
    """
    environ = os.environ if environ is None else environ
    configured = file or (
        Path(environ["JOBWIRE_CONFIG"]) if environ.get("JOBWIRE_CONFIG") else None
    )
    yaml_path = configured or _found_file()
    # In order of precedence, lowest first.
    layers = [
        *([sources.yaml_file(yaml_path, _TREE)] if yaml_path else []),
        sources.foreign_environment(environ, _TREE),
        sources.environment(environ, _TREE),
        sources.options(options or {}),
    ]
    faults = [fault for layer in layers for fault in layer.faults]
    effective, ignored = _merge([layer.values for layer in layers])
    settings = _build(effective, faults)
    if faults or settings is None:
        raise SettingsError([_without_secrets(fault, effective.values()) for fault in faults])
    origins = {
        leaf.path: effective[leaf.path].origin if leaf.path in effective else DEFAULT
        for section in _TREE
        for leaf in section.leaves
    }
    return Loaded(settings, origins, _warnings(ignored), _child_env(options or {}, yaml_path))


def _without_secrets(fault: str, values: Iterable[SettingValue]) -> str:
    """A fault may quote a value, and a wrong URL has its password nevertheless."""
    for text in [text for value in values for text in secrets_in(value.raw)]:
        fault = fault.replace(text, str(show(text)))
    return fault


def _found_file() -> Path | None:
    """`jobwire.yaml` in the working directory, if nobody else may have written it (O-16)."""
    found = Path(CONFIG_FILE)
    if not found.exists():
        return None
    try:
        check_trusted(found)
    except Untrusted as error:
        trusted = f"if you trust it: --config {CONFIG_FILE}"
        raise SettingsError([f"{CONFIG_FILE} is not used: {error.strerror}; {trusted}"]) from None
    return found


def _child_env(options: Mapping[str, tuple[str, str]], yaml_path: Path | None) -> dict[str, str]:
    names = {leaf.path: leaf.env_name for section in _TREE for leaf in section.leaves}
    env = {"JOBWIRE_CONFIG": str(yaml_path.absolute())} if yaml_path else {}
    for path, (_, text) in options.items():
        env |= {names[other]: "" for other in _alternatives(path)}
        env[names[path]] = text
    return env


def _merge(
    layers: Sequence[Sequence[SettingValue]],
) -> tuple[dict[str, SettingValue], list[SettingValue]]:
    """Return the effective value of each path, and the values that are ignored."""
    ignorable = {
        section.place(name): values for section in _TREE for name, values in section.ignored.items()
    }
    effective: dict[str, SettingValue] = {}
    ignored: list[SettingValue] = []
    for layer in layers:
        for value in layer:
            if value.path in ignorable:
                values = ignorable[value.path]
                if values is None or value.raw in values:
                    ignored.append(value)
                    continue
            # It replaces the alternatives of lower precedence (`url` or `address`).
            for other in _alternatives(value.path):
                if other in effective and effective[other] not in layer:
                    del effective[other]
            effective[value.path] = value
    return effective, ignored


def _alternatives(path: str) -> Iterator[str]:
    """Yield the paths that cannot be set together with this one (ONE_OF)."""
    for section in _TREE:
        paths = [section.place(name) for name in section.one_of]
        if path in paths:
            yield from (other for other in paths if other != path)


def _build(effective: Mapping[str, SettingValue], faults: list[str]) -> Settings | None:
    """Build the settings; faults of values and sections are added to `faults`."""
    by_section = {section.path: _build_section(section, effective, faults) for section in _TREE[1:]}
    root = _values(_TREE[0], effective, faults)
    if faults:
        return None
    return Settings(**root, **by_section)  # pyright: ignore[reportArgumentType] - by the schema


def _build_section(
    section: Section, effective: Mapping[str, SettingValue], faults: list[str]
) -> object:
    given = [path for path in map(section.place, section.one_of) if path in effective]
    faults.extend(
        f"{effective[other].origin} {other}: {given[0]} is set too "
        f"({effective[given[0]].origin}); set one of them"
        for other in given[1:]
    )
    values = _values(section, effective, faults)
    # Invalid values count as their defaults here, so that other faults are found too.
    found = list(check(_unchecked(section.cls, values)))
    for name, problem in found:
        path = section.place(name)
        if name in values:
            faults.append(f"{effective[path].origin} {path}: {problem}")
        elif path not in effective:
            faults.append(f"{DEFAULT} {path}: {problem}")
    return None if found else section.cls(**values)


def _unchecked(cls: type, values: Mapping[str, object]) -> object:
    """Build the object without its constructor, whose checks stop at the first fault."""
    built: object = cast("Callable[[type], object]", object.__new__)(cls)
    for field in dataclasses.fields(cls):
        object.__setattr__(built, field.name, values.get(field.name, default_of(field)))
    return built


def _values(
    section: Section, effective: Mapping[str, SettingValue], faults: list[str]
) -> dict[str, object]:
    values: dict[str, object] = {}
    for leaf in section.leaves:
        value = effective.get(leaf.path)
        if value is None:
            continue
        try:
            values[leaf.name] = convert_setting(leaf, value.raw)
        except BadValue as bad:
            faults.extend(
                f"{value.origin} {leaf.path}{inside}: {problem}" for inside, problem in bad.faults
            )
    return values


def _warnings(ignored: Sequence[SettingValue]) -> tuple[str, ...]:
    if not ignored:
        return ()
    names = ", ".join(f"{value.path} ({value.origin})" for value in ignored)
    return (f"{names}: ignored, it has no effect; remove it",)
