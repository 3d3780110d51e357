"""Events as cloud providers pass them to a function, written from their documentation."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

YANDEX_TIMER: dict[str, Any] = {
    "messages": [
        {
            "event_metadata": {
                "event_id": "a1s41g2n5g0o2p778t9v",
                "event_type": "yandex.cloud.events.serverless.triggers.TimerMessage",
                "created_at": "2026-01-21T12:00:00Z",
            },
            "details": {"trigger_id": "a1sfe084v4h2gqs6vmkp"},
        }
    ]
}
AWS_TIMER: dict[str, Any] = {
    "version": "0",
    "detail-type": "Scheduled Event",
    "source": "aws.events",
    "time": "2026-01-21T12:00:00Z",
    "detail": {},
}


def yandex(
    body: bytes, headers: Mapping[str, str], query: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Headers in the case of the sender; the body in base64; no path."""
    return {
        "httpMethod": "POST",
        "headers": {"Host": "functions.yandexcloud.net", **headers},
        "multiValueHeaders": {name: [value] for name, value in headers.items()},
        "queryStringParameters": dict(query or {}),
        "url": "",
        "body": b64encode(body).decode(),
        "isBase64Encoded": True,
    }


def aws(
    body: bytes, headers: Mapping[str, str], query: Mapping[str, str] | None = None, path: str = "/"
) -> dict[str, Any]:
    """A function URL, version 2.0: names of headers in lower case, the body as text."""
    return {
        "version": "2.0",
        "rawPath": path,
        "rawQueryString": urlencode(query or {}),
        "headers": {name.lower(): value for name, value in headers.items()},
        "requestContext": {"http": {"method": "POST", "path": path}},
        "body": body.decode(),
        "isBase64Encoded": False,
    }
