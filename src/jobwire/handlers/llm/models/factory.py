"""Which models answer, by the settings. The only place that knows every driver.

Made once for each worker; loads nothing and imports no library until a task asks, or there is a
server to look after.
"""

import asyncio
from contextlib import ExitStack
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from jobwire.handlers.llm.models import Chat, Embedder, files
from jobwire.handlers.llm.models.errors import NOT_NAMED, ModelError, NoModel
from jobwire.handlers.llm.settings import LlmSettings
from jobwire.job.messages import MissingRequirement

if TYPE_CHECKING:
    from jobwire.handlers.llm.models.server import ModelServer

_WELL_S: Final = 30.0
"""Between two looks at servers that are there; `_AWAY_S`: where one is not."""
_AWAY_S: Final = 2.0


class Models:
    """The models of one worker."""

    def __init__(self, settings: LlmSettings) -> None:
        self._settings = settings
        self._chat: Chat | None = None
        self._embedder: Embedder | None = None
        self._held = ExitStack()
        self._away: list[MissingRequirement] = []

    def chat(self) -> Chat:
        """The model that answers questions; Trouble where there is none."""
        if self._chat is None:
            self._chat = _chat(self._settings, self._held)
        return self._chat

    def embedder(self) -> Embedder:
        """The model that makes vectors; Trouble where there is none."""
        if self._embedder is None:
            self._embedder = _embedder(self._settings, self._held)
        return self._embedder

    def missing_requirements(self) -> list[MissingRequirement]:
        """What keeps the tasks from being answered (J-51), as far as it can be seen from here: it
        is quick, loads nothing and asks no server. What `watch` has found is among it."""
        looks = {"model": _look_for_chat, "embeddings": _look_for_embedder}
        found: list[MissingRequirement] = []
        for part, look in looks.items():
            try:
                look(self._settings)
            except NoModel as missing:
                found.append(MissingRequirement(part, missing.wrong, missing.cure))
        return found + self._away

    async def watch(self) -> None:
        """Look now and then whether the models' servers are there, as long as the worker runs."""
        servers = _servers(self._settings)
        while servers:
            self._away = [
                lack for part, server in servers.items() if (lack := await _missed(part, server))
            ]
            await asyncio.sleep(_AWAY_S if self._away else _WELL_S)

    def close(self) -> None:
        """Unload what was loaded. What is asked for afterwards is loaded again."""
        self._chat = self._embedder = None
        self._held.close()


def _look_for_chat(settings: LlmSettings) -> None:
    if not settings.base_url:
        _chat_file(settings)
    elif not settings.model:
        raise NoModel(*NOT_NAMED)


def _chat_file(settings: LlmSettings) -> Path:
    own = settings.model_path
    file = files.own_file(own) if own else files.chat_file()
    files.find_library()
    return file


def _look_for_embedder(settings: LlmSettings) -> None:
    if not settings.embed_model:
        files.find_embedder(settings.cache_dir)
        files.find_library("llm.embed_model")


def _servers(settings: LlmSettings) -> "dict[str, ModelServer]":
    servers: dict[str, ModelServer] = {}
    if settings.base_url:
        servers["model"] = _chat_server(settings)
    if settings.embed_base_url:  # the same one is not asked twice
        servers["embeddings"] = _embed_server(settings)
    return servers


async def _missed(part: str, server: "ModelServer") -> MissingRequirement | None:
    try:
        await server.look()
    except ModelError as trouble:
        return MissingRequirement(
            part, trouble.wrong, trouble.cure or f"is it well? it is at {server.url_at}"
        )
    except Exception as error:  # noqa: BLE001 - a look that fails must not end the worker
        wrong = f"{server.url_at}: the server cannot be asked: {error}"
        return MissingRequirement(part, wrong, "correct its address")
    return None


def _chat_server(settings: LlmSettings) -> "ModelServer":
    from jobwire.handlers.llm.models.server import ModelServer

    return ModelServer(
        base_url=settings.base_url,
        api_key=settings.api_key,
        first_s=settings.first_token_timeout.total_seconds(),
        idle_s=settings.idle_timeout.total_seconds(),
    )


def _embed_server(settings: LlmSettings) -> "ModelServer":
    from jobwire.handlers.llm.models.server import ModelServer

    own = settings.embed_base_url
    names = {"url_at": "llm.embed_base_url", "key_at": "llm.embed_api_key"} if own else {}
    return ModelServer(
        base_url=settings.embed_base_url or settings.base_url,
        # Another server gets a key of its own, or none.
        api_key=settings.embed_api_key if settings.embed_base_url else settings.api_key,
        first_s=settings.first_token_timeout.total_seconds(),
        idle_s=settings.idle_timeout.total_seconds(),
        **names,
    )


def _chat(settings: LlmSettings, held: ExitStack) -> Chat:
    from jobwire.handlers.llm.models.endpoint import EndpointChat
    from jobwire.handlers.llm.models.local import Local, LocalChat
    from jobwire.handlers.llm.models.server_main import LoadRequest

    if settings.base_url:
        return EndpointChat(_chat_server(settings), settings.model)
    own = settings.model_path
    name = own.stem if own else files.CHAT_NAME

    def wish() -> LoadRequest:
        return LoadRequest(
            name=name,
            file=str(_chat_file(settings)),
            key=token_hex(32),
            threads=settings.threads,
            context_tokens=settings.context_tokens,
        )

    local = Local(wish)
    held.callback(local.close)
    return LocalChat(local, name, led=own is None)


def _embedder(settings: LlmSettings, held: ExitStack) -> Embedder:
    from jobwire.handlers.llm.models.endpoint import EndpointEmbedder
    from jobwire.handlers.llm.models.local import Local, LocalEmbedder
    from jobwire.handlers.llm.models.server_main import LoadRequest

    if settings.embed_model:
        return EndpointEmbedder(_embed_server(settings), settings.embed_model)

    def wish() -> LoadRequest:
        _look_for_embedder(settings)
        return LoadRequest(
            name=files.EMBED_NAME,
            file="",
            cache_dir=str(settings.cache_dir),
            key=token_hex(32),
            threads=settings.threads,
        )

    local = Local(wish)
    held.callback(local.close)
    return LocalEmbedder(local, files.EMBED_NAME)
