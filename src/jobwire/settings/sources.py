"""The sources of settings: YAML, the environment, the command line.

Each source becomes a list of `SettingValue` (path, text, origin) and its own faults: unreadable
YAML, unknown names. Values are converted later.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from jobwire.settings.schema import PREFIX, Section
from jobwire.settings.values import Raw
from jobwire.text import did_you_mean

# Variables that are not settings: address and key of clients, the settings file, the test suite.
NO_SETTINGS: Final = ("JOBWIRE_URL", "JOBWIRE_API_KEY", "JOBWIRE_CONFIG")
TEST_PREFIX: Final = "JOBWIRE_TEST_"


@dataclass(frozen=True, slots=True)
class SettingValue:
    """One value as it was written."""

    path: str
    raw: Raw
    origin: str
    """For messages: `jobwire.yaml:3`, `VALKEY_ADDRESS`, `--port`."""


@dataclass(frozen=True, slots=True)
class SettingsSource:
    """All values of one source; each fault is a whole line."""

    values: Sequence[SettingValue]
    faults: Sequence[str] = ()


def options(values: Mapping[str, tuple[str, str]]) -> SettingsSource:
    """The command line: path → (option, text)."""
    return SettingsSource(
        [SettingValue(path, text, option) for path, (option, text) in values.items()]
    )


def environment(environ: Mapping[str, str], tree: Sequence[Section]) -> SettingsSource:
    """Variables that start with JOBWIRE_; an unknown one is a fault."""
    known = {leaf.env_name: leaf.path for section in tree for leaf in section.leaves}
    found: list[SettingValue] = []
    faults: list[str] = []
    for name, text in environ.items():
        if not name.startswith(PREFIX) or name in NO_SETTINGS or name.startswith(TEST_PREFIX):
            continue
        if name not in known:
            # Compared without the common prefix, which would make every name similar.
            near = did_you_mean(
                name[len(PREFIX) :], [each[len(PREFIX) :] for each in known], prefix=PREFIX
            )
            faults.append(f"environment {name}: unknown setting{near}")
        elif text:
            found.append(SettingValue(known[name], _from_environment(text), name))
    return SettingsSource(found, faults)


def foreign_environment(environ: Mapping[str, str], tree: Sequence[Section]) -> SettingsSource:
    """The variables of the source documents: VALKEY_ADDRESS, JOB_TTL_S, …; others are skipped."""
    known = {
        name: leaf.path
        for section in tree
        for leaf in section.leaves
        for name in leaf.foreign_names
    }
    for section in tree:
        if section.prefix:
            known |= {
                section.prefix + name.upper(): section.place(name) for name in section.ignored
            }
    return SettingsSource(
        [
            SettingValue(path, _from_environment(environ[name]), name)
            for name, path in known.items()
            if environ.get(name)
        ]
    )


def _from_environment(text: str) -> Raw:
    """Parse a list as JSON (API keys are mappings); everything else is text."""
    if not text.startswith("["):
        return text
    try:
        node = _compose(text)
    except yaml.YAMLError:
        return text
    return _raw(node) if node is not None else text


def yaml_file(path: Path, tree: Sequence[Section]) -> SettingsSource:
    """A YAML file of sections, each a mapping of names to values."""
    try:
        node = _compose(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        return SettingsSource([], [f"{path}: cannot be read ({reason})"])
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        return SettingsSource([], [f"{path}{line}: is not YAML ({error.problem or error.context})"])
    except yaml.YAMLError as error:
        return SettingsSource([], [f"{path}: is not YAML ({' '.join(str(error).split())})"])
    if node is None:
        return SettingsSource([])
    if not isinstance(node, yaml.MappingNode):
        return SettingsSource([], [f"{path}: must be a mapping of sections, such as `valkey:`"])
    reader = _YamlReader(path, {section.path: section for section in tree})
    try:
        reader.read_root(node)
    except RecursionError:
        return SettingsSource([], [f"{path}: an alias in it contains itself"])
    return SettingsSource(reader.values, reader.faults)


def _compose(text: str) -> yaml.Node | None:
    return yaml.SafeLoader(text).get_single_node()


class _YamlReader:
    def __init__(self, path: Path, tree: Mapping[str, Section]) -> None:
        self.values: list[SettingValue] = []
        self.faults: list[str] = []
        self._path = path
        self._tree = tree

    def read_root(self, node: yaml.MappingNode) -> None:
        root_leaves = [leaf.path for leaf in self._tree[""].leaves]
        for name, where, value in self._entries(node):
            if name and name in self._tree:
                if isinstance(value, yaml.MappingNode):
                    self._read_section(self._tree[name], value)
                elif not _is_null(value):
                    self.faults.append(f"{where} {name}: must be a mapping of names to values")
            elif name in root_leaves:
                self._add(name, value, where)
            else:
                known = [*(path for path in self._tree if path), *root_leaves]
                self.faults.append(f"{where} {name}: unknown setting{did_you_mean(name, known)}")

    def _read_section(self, section: Section, node: yaml.MappingNode) -> None:
        known = [leaf.name for leaf in section.leaves]
        for name, where, value in self._entries(node):
            if name in known or name in section.ignored:
                self._add(section.place(name), value, where)
            else:
                hint = did_you_mean(name, known)
                self.faults.append(f"{where} {section.place(name)}: unknown setting{hint}")

    def _entries(self, node: yaml.MappingNode) -> Iterator[tuple[str, str, yaml.Node]]:
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            where = f"{self._path}:{key.start_mark.line + 1}"
            if name in seen:
                self.faults.append(f"{where} {name}: is set twice")
            seen.add(name)
            yield name, where, value

    def _add(self, path: str, node: yaml.Node, where: str) -> None:
        if not _is_null(node):
            self._check_names(node)
            self.values.append(SettingValue(path, _raw(node), where))

    def _check_names(self, node: yaml.Node) -> None:
        """No name is set twice in a value either."""
        if isinstance(node, yaml.SequenceNode):
            for item in node.value:
                self._check_names(item)
        if isinstance(node, yaml.MappingNode):
            for _, _, value in self._entries(node):
                self._check_names(value)


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _raw(node: yaml.Node) -> Raw:
    match node:
        case yaml.SequenceNode():
            return [_raw(item) for item in node.value]
        case yaml.MappingNode():
            return {str(key.value): _raw(value) for key, value in node.value}
        case _:
            return str(node.value)
