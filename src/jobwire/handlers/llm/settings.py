"""The section `llm` of the settings: the models of the six tasks, and their time limits.

With a `base_url` an OpenAI-compatible server answers; without one, a local model of the worker. The
worker checks whether files and models exist, because other programs read the same settings on other
machines.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class LlmSettings:
    """The models behind `chat plan code tool rag embed`."""

    base_url: str = field(default="", metadata={"env": "OPENAI_BASE_URL"})
    """An OpenAI-compatible server, such as http://127.0.0.1:8000/v1; empty: a local model."""
    api_key: str = field(default="", repr=False, metadata={"env": "OPENAI_API_KEY"})
    """API key of that server."""
    model: str = field(default="", metadata={"env": "OPENAI_MODEL"})
    """Model name in requests to that server; a job may name another one."""
    embed_base_url: str = ""
    """Server for embeddings; empty: `base_url`."""
    embed_api_key: str = field(default="", repr=False)
    """API key of the server for embeddings."""
    embed_model: str = ""
    """Model name for embeddings; empty: the local embedding model."""
    model_path: Path | None = None
    """A GGUF file for the local model; empty: the small model of the package."""
    threads: int = 1
    """Threads of the local model; fewer than the free cores."""
    context_tokens: int = 4096
    """Context size of the local model: prompt and answer together."""
    cache_dir: Path = Path("~/.cache/jobwire")
    """Directory of derived files: the converted embedding model, vectors of indexes."""
    index_dir: Path | None = None
    """Directory of <name>.json files, each a list of documents for `rag`."""
    extra_members: tuple[str, ...] = (
        "reasoning_effort",
        "verbosity",
        "top_k",
        "min_p",
        "repetition_penalty",
        "logit_bias",
        "chat_template_kwargs",
        "service_tier",
    )
    """Members of a payload's `extra` that are passed on to the server."""
    system: str = "You are a helpful assistant."
    """System message of conversations without one."""
    timeout: timedelta = timedelta(minutes=5)
    """Time for a whole answer; a job may set its own."""
    first_token_timeout: timedelta = timedelta(seconds=60)
    """Time until the first token."""
    idle_timeout: timedelta = timedelta(seconds=20)
    """Time between two tokens."""
    tool_timeout: timedelta = timedelta(seconds=30)
    """Time for one function call of the task `tool`."""
    rag_min_score: float = 0.3
    """Minimum similarity of a text to the question (-1 to 1)."""

    def check(self) -> Iterator[tuple[str, str]]:
        """Yield each fault: field and problem."""
        for name, url in (("base_url", self.base_url), ("embed_base_url", self.embed_base_url)):
            if url and not _is_http(url):
                yield name, "must be a URL such as http://127.0.0.1:8000/v1"
        for name, key in (("api_key", self.api_key), ("embed_api_key", self.embed_api_key)):
            if not key.isascii() or not key.isprintable():
                yield name, "must be plain characters on one line; does it end with a line break?"
        if self.embed_base_url and not self.embed_model:
            yield "embed_model", "is empty; llm.embed_base_url needs the name of a model there"
        if self.embed_model and not (self.embed_base_url or self.base_url):
            yield "embed_model", "needs a server: set llm.base_url or llm.embed_base_url"
        if not 1 <= self.threads <= 512:
            yield "threads", "must be 1-512"
        if not 512 <= self.context_tokens <= 1 << 20:
            yield "context_tokens", "must be 512-1048576"
        for name in ("timeout", "first_token_timeout", "idle_timeout", "tool_timeout"):
            if not getattr(self, name):
                yield name, "must be greater than 0"
        if not -1 <= self.rag_min_score <= 1:
            yield "rag_min_score", "must lie between -1 and 1"


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
