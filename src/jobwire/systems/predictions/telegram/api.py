"""The Bot API over HTTP: one request a call, never repeated.

The bot's token is part of every URL, so no URL is logged or put into an error.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from jobwire.systems.predictions.http_client import (
    Download,
    NoAnswer,
    NoRoom,
    Response,
    download,
    exchange,
    in_background,
)
from jobwire.systems.predictions.json_values import integer, loads, mapping, text

API_URL: Final = "https://api.telegram.org"
_TIMEOUT_S: Final = 30.0
_MAX_ANSWER: Final = 16 * 1024 * 1024
_LONGEST_WAIT_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class ApiResult:
    """The call was carried out; `value` is the member `result`."""

    value: object


@dataclass(frozen=True, slots=True)
class ApiRefusal:
    """The call was refused and changed nothing."""

    code: int
    description: str
    retry_after_s: float | None = None
    migrated_to: int | None = None
    """The new id of a group that became a supergroup."""

    def says(self, *parts: str) -> bool:
        """Whether the description has one of these parts."""
        lowered = self.description.lower()
        return any(part.lower() in lowered for part in parts)


@dataclass(frozen=True, slots=True)
class AttachedFile:
    """A file that is sent with a call."""

    name: str
    mime: str
    body: bytes | memoryview


class BotApi:
    """The calls of one bot."""

    def __init__(self, token: str, url: str = API_URL) -> None:
        self.bot_id = token.partition(":")[0]
        """Tells bots apart in task ids; it survives a new token."""
        self._token = token
        self._url = (url or API_URL).rstrip("/")

    async def call(
        self,
        method: str,
        params: Mapping[str, object] | None = None,
        *,
        upload: AttachedFile | None = None,
        timeout_s: float = _TIMEOUT_S,
    ) -> ApiResult | ApiRefusal | NoAnswer:
        """Call a method once; `upload` goes as the part `file`, named by `attach://file`."""
        given = params or {}
        if upload is None:
            content_type = "application/json"
            body: bytes | list[bytes | memoryview] = json.dumps(given).encode()
        else:
            content_type, body = _multipart(given, upload)
        answer = await in_background(
            lambda: exchange(
                "POST",
                f"{self._url}/bot{self._token}/{method}",
                headers={"content-type": content_type},
                body=body,
                timeout_s=timeout_s,
                max_bytes=_MAX_ANSWER,
            )
        )
        if isinstance(answer, NoAnswer):
            reason = f"no answer to {method} ({answer.reason})"
            return NoAnswer(reason, not_done=answer.not_done)
        return _read(method, answer)

    async def download(self, file_path: str, max_bytes: int) -> Download | NoAnswer:
        """Download a file by the path that `getFile` gave."""
        url = f"{self._url}/file/bot{self._token}/{quote(file_path)}"
        answer = await in_background(
            lambda: download(url, timeout_s=2 * _TIMEOUT_S, max_bytes=max_bytes)
        )
        assert not isinstance(answer, NoRoom)  # the caller has reserved for it
        return answer


def _read(method: str, answer: Response) -> ApiResult | ApiRefusal | NoAnswer:
    body = loads(answer.body)
    if body is None:
        return NoAnswer(f"{method} was answered {answer.status} without JSON")
    if body.get("ok") is True and "result" in body:
        return ApiResult(body["result"])
    code = body.get("error_code", answer.status)
    if not isinstance(code, int) or code >= 500 or code < 400:
        # An error that is JSON is Telegram's own; a gateway before it may have lost the answer.
        refused = answer.status >= 500
        return NoAnswer(f"{method} was answered {answer.status}", not_done=refused)
    parameters = mapping(body.get("parameters"))
    wait_s = parameters.get("retry_after")
    return ApiRefusal(
        code,
        text(body.get("description"))[:300],
        min(float(wait_s), _LONGEST_WAIT_S) if isinstance(wait_s, int | float) else None,
        integer(parameters.get("migrate_to_chat_id")),
    )


def _multipart(
    params: Mapping[str, object], upload: AttachedFile
) -> tuple[str, list[bytes | memoryview]]:
    """The parts of the body; the file is not copied."""
    boundary = secrets.token_hex(16)
    parts: list[bytes | memoryview] = []
    for name, value in params.items():
        text = value if isinstance(value, str) else json.dumps(value)
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'
        parts.append(head.encode() + text.encode() + b"\r\n")
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{upload.name}"'
        f"\r\nContent-Type: {upload.mime}\r\n\r\n"
    )
    parts += [head.encode(), upload.body, f"\r\n--{boundary}--\r\n".encode()]
    return f"multipart/form-data; boundary={boundary}", parts
