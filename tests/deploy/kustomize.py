"""Renders the kustomizations of deploy/kubernetes, without the program `kustomize`.

Of its features only those that our files use: resources, a namespace, and JSON patches with a
target. Anything else is an error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

_KEYS: Final = {"apiVersion", "kind", "namespace", "resources", "patches"}

Manifest = dict[str, Any]


def rendered(folder: Path) -> list[Manifest]:
    """All manifests of a kustomization."""
    file = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert file.keys() <= _KEYS, f"{folder}: this renderer knows only {sorted(_KEYS)}"
    found: list[Manifest] = []
    for name in file["resources"]:
        path = (folder / name).resolve()
        if path.is_dir():
            found += rendered(path)
        else:
            found += [each for each in yaml.safe_load_all(path.read_text()) if each]
    for manifest in found:
        if manifest["kind"] != "Namespace":
            manifest["metadata"]["namespace"] = file["namespace"]
    for patch in file.get("patches", ()):
        target = patch["target"]
        (chosen,) = (
            each
            for each in found
            if (each["kind"], each["metadata"]["name"]) == (target["kind"], target["name"])
        )
        for change in yaml.safe_load(patch["patch"]):
            _apply(chosen, change)
    names = [(each["kind"], each["metadata"]["name"]) for each in found]
    assert len(set(names)) == len(names), names
    return found


def _apply(manifest: Manifest, change: Manifest) -> None:
    """An operation of a JSON patch (RFC 6902)."""
    *path, last = change["path"].strip("/").replace("~1", "/").split("/")
    node: Any = manifest
    for part in path:
        node = node[int(part) if isinstance(node, list) else part]
    assert change["op"] in ("add", "replace"), change
    assert isinstance(node, dict), change
    assert change["op"] == "add" or last in node, f"nothing to replace: {change['path']}"
    node[last] = change["value"]
