"""Replaces secrets in text that is logged or printed: messages, fields, tracebacks (P-31).

Two kinds are found: the secret values of this process's settings, wherever they appear, and texts
that have the form of a secret, such as a bot token or the signature of a signed URL. Used by `log`
and by the CLI. Imports no other module of jobwire.
"""

import json
import re
from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlsplit

MASK: Final = "•••"
# A shorter value would mask ordinary words; no generated secret is shorter.
_MIN_LENGTH: Final = 8

_QUERY_NAMES: Final = (
    "x-amz-signature|x-amz-security-token|x-goog-signature|signature|sig|token|access_token|"
    "api_key|apikey|key|secret|(?:sentinel_)?password"
)


class _Form(NamedTuple):
    """How a kind of secret looks. The pattern is tried only on a text that has one of the `signs`:
    a log line without any costs microseconds. It keeps its group, if it has one, and masks the
    rest."""

    signs: tuple[str, ...]
    pattern: re.Pattern[str]


def _form(pattern: str, *signs: str) -> _Form:
    return _Form(signs, re.compile(pattern, re.IGNORECASE))


# Repetitions that may fail are bounded, so that no text takes long. No pattern matches a quote or a
# backslash at its end, so that a JSON string stays one.
_FORMS: Final = (
    # https://user:password@host
    _form(r"(\b[a-z][a-z0-9+.-]{0,20}://[^\s:/?#@\"'\\]{0,200}:)[^\s/@\"'\\]{1,500}(?=@)", "://"),
    # the query of a signed URL, and tokens in a query
    _form(rf"([?&;](?:{_QUERY_NAMES})=)[^\s&\"'\\<>]+", "?", "&", ";"),
    # Authorization: Bearer x
    _form(
        r"(\b(?:bearer|basic|token)\s{1,4})(?=\S{0,200}\d)[A-Za-z0-9._~+/=-]{12,}",
        *("bearer", "basic", "token"),
    ),
    # headers that are a secret as a whole
    _form(
        r"(\b(?:x-telegram-bot-api-secret-token|x-api-key|api-key)[\s:=\"'\\]{1,8})[^\s,\"'\\]+",
        *("api-key", "secret-token"),
    ),
    # the last part of a webhook's path; a task id in /hooks/<provider>/ is not a secret
    _form(
        r"(/(?:hooks/telegram|webhooks?(?:/[\w.-]{1,64})?)/)[A-Za-z0-9_:~-]{16,}",
        *("hooks/telegram/", "/webhook"),
    ),
    # a bot token of Telegram, also in the path of its API
    _form(r"(?<!\d)\d{6,12}:[A-Za-z0-9_-]{30,}", ":"),
    # tokens that begin with the name of their kind
    *(
        _form(rf"\b{sign}[A-Za-z0-9+/=_-]{{16,}}", sign)
        for sign in ("r8_", "sk-", "whsec_", "jw_", "ghp_", "gho_", "xoxb-", "xoxp-")
    ),
)


class _Known:
    """The secret values of this process."""

    def __init__(self) -> None:
        self.values: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None


_known: Final = _Known()


def register_secrets(values: Iterable[str]) -> None:
    """Mask these values from now on, also percent-encoded and as JSON has them. Of a URL only its
    passwords are secrets."""
    secrets = {
        secret for value in values for secret in (_passwords(value) if "://" in value else [value])
    }
    forms = {
        form
        for secret in secrets
        if len(secret) >= _MIN_LENGTH
        for form in (secret, quote(secret, safe=""), json.dumps(secret)[1:-1])
    }
    _known.values |= forms
    if _known.values:
        # The longest first: one secret may begin with another.
        longest = sorted(_known.values, key=lambda value: (-len(value), value))
        _known.pattern = re.compile("|".join(map(re.escape, longest)))


def redact(text: str) -> str:
    """Return the text with a mask in the place of each secret."""
    if _known.pattern is not None:
        text = _known.pattern.sub(MASK, text)
    lowered = text.lower()
    for signs, pattern in _FORMS:
        if any(sign in lowered for sign in signs):
            text = pattern.sub(_masked, text)
    return text


def _masked(found: re.Match[str]) -> str:
    return "".join(found.groups()) + MASK


def _passwords(url: str) -> list[str]:
    """The password of the server, and that of its sentinels."""
    try:
        parts = urlsplit(url)
        return [unquote(parts.password or ""), *parse_qs(parts.query).get("sentinel_password", [])]
    except ValueError:
        return []
