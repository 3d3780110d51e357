"""Replaces secrets in text that is logged or printed: messages, fields, tracebacks (P-31).

Two kinds are found: the secret values of this process's settings, wherever they appear, and texts
that have the form of a secret, such as a bot token or the signature of a signed URL. Settings show
their URLs without userinfo and query (O-3). Used by `log`, `settings` and the CLI. Imports no other
module of jobwire.
"""

import json
import re
from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, unquote

MASK: Final = "••••"
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


_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}")
_AFTER_HOST: Final = re.compile(r"[/?#]")
_QUERY: Final = re.compile(r"[?#]")


def show_url(text: str) -> str:
    """A URL or address without userinfo and query, whatever is in them. Other text is unchanged.

    A password with an unescaped `/`, `?` or `#` cannot be told from a path with `@`: of such a URL
    only the scheme is shown.
    """
    scheme, slashes, rest = text.partition("://")
    if not slashes:
        _, at, host = text.rpartition("@")
        return f"{MASK}@{host}" if at else text
    if not _SCHEME.fullmatch(scheme):
        return MASK
    host = _AFTER_HOST.split(rest, maxsplit=1)[0]
    if "@" in rest[len(host) :]:
        return f"{scheme}://{MASK}"
    _, at, host = rest.rpartition("@")
    found = _QUERY.search(host)
    user, query = MASK if at else "", MASK if found else ""
    if found:
        host = host[: found.end()]
    return f"{scheme}://{user}{at}{host}{query}"


def _secrets_of_url(url: str) -> list[str]:
    """What `show_url` leaves out, and its parts."""
    _, slashes, rest = url.partition("://")
    userinfo, at, host = (rest if slashes else url).rpartition("@")
    login, _, password = userinfo.partition(":")
    _, _, query = (host if at else rest).partition("?")
    values = [value for _, value in parse_qsl(query)]
    return [*values, unquote(password or login), password or login] if at else values


class _Known:
    """The secret values of this process, and what is shown in their place."""

    def __init__(self) -> None:
        self.shown: dict[str, str] = {}
        self.pattern: re.Pattern[str] | None = None


_known: Final = _Known()


def register_secrets(values: Iterable[str]) -> None:
    """Mask these values from now on, also percent-encoded and as JSON has them. Of a URL or an
    address, the userinfo and the query."""
    for value in values:
        _register(value, show_url(value) if "://" in value else MASK)
        for secret in _secrets_of_url(value):
            _register(secret, MASK)
    if _known.shown:
        # The longest first: one secret may begin with another.
        longest = sorted(_known.shown, key=lambda value: (-len(value), value))
        _known.pattern = re.compile("|".join(map(re.escape, longest)))


def _register(secret: str, shown: str) -> None:
    if len(secret) >= _MIN_LENGTH:
        for form in (secret, quote(secret, safe=""), json.dumps(secret)[1:-1]):
            _known.shown.setdefault(form, shown)


def redact(text: str) -> str:
    """Return the text with a mask in the place of each secret."""
    if _known.pattern is not None:
        text = _known.pattern.sub(lambda found: _known.shown[found[0]], text)
    lowered = text.lower()
    for signs, pattern in _FORMS:
        if any(sign in lowered for sign in signs):
            text = pattern.sub(_masked, text)
    return text


def _masked(found: re.Match[str]) -> str:
    return "".join(found.groups()) + MASK
