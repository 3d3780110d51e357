"""The import rules as data: which package may import which, and a check for violations.

Used by `tests/test_architecture.py`. A package is a folder or a module directly under `jobwire`.
Each system has three layers, lowest first: its wire, `http/`, and the modules that assemble it for
the programs. Only the upper two may import the gateway, only the last one a program's packages.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

EVERYTHING: Final = frozenset({"*"})
_BACKENDS: Final = frozenset({"valkey", "objects", "job", "cron", "json_depth"})

# Imports allowed besides the package's own. `systems`: any system; `settings.*`: settings modules.
ALLOWED: Final[Mapping[str, frozenset[str]]] = {
    "__init__": EVERYTHING,  # the public names, loaded lazily
    "__main__": frozenset({"cli"}),
    # Operations as data: a client loads them, and no wire depends on HTTP.
    "api": frozenset(),
    "cli": frozenset(
        {
            "api",
            "programs",
            "systems.frame",
            "systems.assembly",
            "settings",
            "log",
            "client",
            "local",
            "job",
            "valkey",
            "objects",
            "endpoints",
            "private_files",
            "redaction",
            "doctor",
            "json_depth",
            "spawn",
            "text",
            "user_frames",
        }
    ),
    "client": frozenset({"api", "job", "valkey", "endpoints", "net", "private_files", "task"}),
    "cron": frozenset(),
    "doctor": frozenset({"valkey", "objects", "endpoints", "handlers", "net"}),
    "maintenance": frozenset({"job", "log"}),
    "endpoints": frozenset({"net", "private_files"}),
    # Serverless entry points: built without `programs`, for a fast cold start.
    "functions": frozenset({"systems", "objects", "settings", "log", "redaction"}),
    "gateway": frozenset(
        {"api", "job", "json_depth", "log", "histogram", "net", "private_files", "schema_hints"}
        | {"spawn", "text"}
    ),
    "handlers": frozenset({"job", "json_depth", "json_schema", "net", "spawn"}),
    "histogram": frozenset(),
    "job": frozenset(),
    "json_depth": frozenset(),
    "json_types": frozenset(),
    "json_schema": frozenset({"spawn"}),
    "local": frozenset({"valkey", "objects", "job", "endpoints", "net", "private_files", "spawn"}),
    "log": frozenset({"redaction"}),
    "net": frozenset(),
    "objects": frozenset({"net"}),
    "page": frozenset({"gateway"}),
    "settings": frozenset({"settings.*", "log", "private_files", "redaction", "text"}),
    "private_files": frozenset(),
    "redaction": frozenset(),
    "schema_hints": frozenset({"text"}),
    "spawn": frozenset(),
    "task": frozenset({"json_types"}),
    "text": frozenset(),
    # Runs users' handlers with the real worker, and starts a real server for their tests.
    "testing": frozenset({"job", "valkey", "worker", "local", "task"}),
    "valkey": frozenset(),
    "systems": _BACKENDS | {"api", "net"},
    "systems.http": _BACKENDS | {"api", "gateway", "json_schema", "schema_hints", "text"},
    "systems.assembly": _BACKENDS
    | {"api", "gateway", "worker", "handlers", "settings", "doctor", "maintenance", "log", "net"}
    | {
        "private_files",
        "redaction",
        "text",
        "endpoints",
        "spawn",
        "local",
        "page",
        "systems.frame",
    },
    # The declaration of a system and what all systems share: below each of them.
    "systems.frame": _BACKENDS
    | {
        "doctor",
        "endpoints",
        "gateway",
        "log",
        "net",
        "private_files",
        "settings",
        "text",
        "worker",
    },
    "programs": EVERYTHING,
    "user_frames": frozenset(),
    "worker": frozenset(
        {
            "cron",
            "job",
            "json_depth",
            "json_types",
            "log",
            "spawn",
            "histogram",
            "redaction",
            "schema_hints",
            "task",
            "text",
            "user_frames",
        }
    ),
}

_ASSEMBLY: Final = frozenset(
    {"app_queues", "bot", "commands", "demo", "doctor", "feature", "key_files", "look"}
    | {
        "schema_documents",
        "server",
        "shard_overview",
        "storage",
        "system",
        "upload_gateway",
        "video",
        "worker",
    }
)
"""The modules of systems that belong to the layer of the assembly."""
_LAYERS: Final = ("systems", "systems.http", "systems.assembly")


def violations(package: Path) -> list[str]:
    """Every import that breaks a rule, one line each."""
    found: list[str] = []
    for file in sorted(package.rglob("*.py")):
        module = _module(package, file)
        area, system = _area(module)
        if area not in ALLOWED:
            found.append(
                f"{module}: the package {area!r} has no rule in tests/support/import_rules.py"
            )
            continue
        for line, target in _imports(package, file):
            if not _is_allowed(area, system, target):
                found.append(f"{module}:{line} imports {target}; {_rule(area)}")
    return found


def _is_allowed(area: str, system: str | None, target: str) -> bool:
    allowed = ALLOWED[area]
    other, other_system = _area(target)
    if area == other and system == other_system:
        return True
    if allowed is EVERYTHING or other == "__init__":
        return True
    if "settings.*" in allowed and target.endswith(".settings"):
        return True
    if system is not None and system == other_system:
        return _LAYERS.index(area) > _LAYERS.index(other)
    if other_system is not None:
        return system is None and ("systems" in allowed or other in allowed)
    return other in allowed


def _rule(area: str) -> str:
    allowed = ", ".join(sorted(ALLOWED[area]))
    return f"{area} may import " + (allowed or "no jobwire package")


def _module(package: Path, file: Path) -> str:
    parts = [package.name, *file.relative_to(package).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


def _area(module: str) -> tuple[str, str | None]:
    """The package of a module, or its layer and the system's name if it belongs to a system."""
    parts = module.split(".")[1:] or ["__init__"]
    if parts[0] != "systems" or len(parts) == 1:
        return parts[0], None
    if parts[1] in ("system", "backends"):
        return "systems.frame", None
    layer = parts[2] if len(parts) > 2 else ""
    if layer == "http":
        return "systems.http", parts[1]
    return ("systems.assembly" if layer in _ASSEMBLY else "systems"), parts[1]


def _imports(package: Path, file: Path) -> Iterator[tuple[int, str]]:
    """Line and full module name of each import of a jobwire module."""
    home = [package.name, *file.relative_to(package).parent.parts]
    for node in ast.walk(ast.parse(file.read_text(), str(file))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = ".".join(home[: len(home) - node.level + 1]) if node.level else ""
            origin = ".".join(part for part in (above, node.module) if part)
            names = [_submodule(package, origin, alias.name) for alias in node.names]
        else:
            continue
        for name in dict.fromkeys(names):
            if name.partition(".")[0] == package.name:
                yield node.lineno, name


def _submodule(package: Path, origin: str, name: str) -> str:
    """`from jobwire.valkey import errors` names a module; `… import Connection` does not."""
    folder = package.joinpath(*origin.split(".")[1:])
    is_module = (folder / name).is_dir() or (folder / f"{name}.py").exists()
    return f"{origin}.{name}" if is_module else origin
