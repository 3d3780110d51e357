"""Selects the model drivers by the settings. The only module that knows every driver.

Created once per worker. It loads no model and imports no library until a task needs one or a server
is checked.
"""

import asyncio
from contextlib import ExitStack
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from jobwire.handlers.llm.models import ChatModel, Embedder, files
from jobwire.handlers.llm.models.errors import NOT_NAMED, ModelError, NoModel
from jobwire.handlers.llm.settings import LlmSettings
from jobwire.job.messages import MissingRequirement

if TYPE_CHECKING:
    from jobwire.handlers.llm.models.server import ModelServer

_CHECK_INTERVAL_S: Final = 30.0
_RECHECK_INTERVAL_S: Final = 2.0
"""While a server does not respond."""


class Models:
    """The models of one worker."""

    def __init__(self, settings: LlmSettings) -> None:
        self._settings = settings
        self._chat: ChatModel | None = None
        self._embedder: Embedder | None = None
        self._resources = ExitStack()
        self._unreachable: list[MissingRequirement] = []

    def chat(self) -> ChatModel:
        """The chat model; ModelError if there is none."""
        if self._chat is None:
            self._chat = _chat(self._settings, self._resources)
        return self._chat

    def embedder(self, model: str = "") -> Embedder:
        """The embedding model; ModelError if there is none. If only a server for chat is
        configured, it is asked for a model of another name than the local one's."""
        settings = self._settings
        is_local = not settings.embed_model
        if is_local and settings.base_url and model not in ("", files.EMBED_NAME):
            from jobwire.handlers.llm.models.endpoint import EndpointEmbedder

            return EndpointEmbedder(_chat_server(settings), model)
        if self._embedder is None:
            self._embedder = _embedder(self._settings, self._resources)
        return self._embedder

    def missing_requirements(self) -> list[MissingRequirement]:
        """What the tasks need and this worker does not have (J-51). Quick: loads no model and calls
        no server; servers are checked by `watch`."""
        checks = {"model": _check_chat, "embeddings": _check_embedder}
        found: list[MissingRequirement] = []
        for part, check in checks.items():
            try:
                check(self._settings)
            except NoModel as missing:
                found.append(MissingRequirement(part, missing.wrong, missing.fix))
        return found + self._unreachable

    async def watch(self) -> None:
        """Check the model servers periodically, until canceled."""
        servers = _servers(self._settings)
        while servers:
            self._unreachable = [
                missing
                for part, server in servers.items()
                if (missing := await _check_server(part, server))
            ]
            await asyncio.sleep(_RECHECK_INTERVAL_S if self._unreachable else _CHECK_INTERVAL_S)

    def close(self) -> None:
        """Unload the models. A later call loads them again."""
        self._chat = self._embedder = None
        self._resources.close()


def _check_chat(settings: LlmSettings) -> None:
    if not settings.base_url:
        _chat_file(settings)
    elif not settings.model:
        raise NoModel(*NOT_NAMED)


def _chat_file(settings: LlmSettings) -> Path:
    own = settings.model_path
    file = files.own_file(own) if own else files.chat_file()
    files.find_library()
    return file


def _check_embedder(settings: LlmSettings) -> None:
    if not settings.embed_model:
        files.find_embedder(settings.cache_dir)
        files.find_library("llm.embed_model")


def _servers(settings: LlmSettings) -> "dict[str, ModelServer]":
    servers: dict[str, ModelServer] = {}
    if settings.base_url:
        servers["model"] = _chat_server(settings)
    if settings.embed_base_url:  # a shared server is checked once
        servers["embeddings"] = _embed_server(settings)
    return servers


async def _check_server(part: str, server: "ModelServer") -> MissingRequirement | None:
    try:
        await server.check()
    except ModelError as error:
        return MissingRequirement(
            part, error.wrong, error.fix or f"check the server at {server.url_at}"
        )
    except Exception as error:  # noqa: BLE001 - a failed check must not end the worker
        wrong = f"{server.url_at}: the server cannot be checked: {error}"
        return MissingRequirement(part, wrong, "correct its address")
    return None


def _chat_server(settings: LlmSettings) -> "ModelServer":
    return _server(settings, base_url=settings.base_url, api_key=settings.api_key)


def _embed_server(settings: LlmSettings) -> "ModelServer":
    if not settings.embed_base_url:
        return _chat_server(settings)
    return _server(
        settings,
        base_url=settings.embed_base_url,
        # The chat server's key must not reach another server.
        api_key=settings.embed_api_key,
        url_at="llm.embed_base_url",
        key_at="llm.embed_api_key",
    )


def _server(settings: LlmSettings, **address: str) -> "ModelServer":
    from jobwire.handlers.llm.models.server import ModelServer

    return ModelServer(
        first_s=settings.first_token_timeout.total_seconds(),
        idle_s=settings.idle_timeout.total_seconds(),
        **address,
    )


def _chat(settings: LlmSettings, resources: ExitStack) -> ChatModel:
    from jobwire.handlers.llm.models.endpoint import EndpointChat
    from jobwire.handlers.llm.models.local import Local, LocalChat
    from jobwire.handlers.llm.models.server_main import LoadRequest

    if settings.base_url:
        return EndpointChat(_chat_server(settings), settings.model)
    own = settings.model_path
    name = own.stem if own else files.CHAT_NAME

    def load_request() -> LoadRequest:
        return LoadRequest(
            name=name,
            file=str(_chat_file(settings)),
            key=token_hex(32),
            threads=settings.threads,
            context_tokens=settings.context_tokens,
        )

    local = Local(load_request)
    resources.callback(local.close)
    return LocalChat(local, name, constrained=own is None)


def _embedder(settings: LlmSettings, resources: ExitStack) -> Embedder:
    from jobwire.handlers.llm.models.endpoint import EndpointEmbedder
    from jobwire.handlers.llm.models.local import Local, LocalEmbedder
    from jobwire.handlers.llm.models.server_main import LoadRequest

    if settings.embed_model:
        return EndpointEmbedder(_embed_server(settings), settings.embed_model)

    def load_request() -> LoadRequest:
        _check_embedder(settings)
        return LoadRequest(
            name=files.EMBED_NAME,
            file="",
            cache_dir=str(settings.cache_dir),
            key=token_hex(32),
            threads=settings.threads,
        )

    local = Local(load_request)
    resources.callback(local.close)
    return LocalEmbedder(local, files.EMBED_NAME)
