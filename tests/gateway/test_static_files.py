"""Files of a page: ETag, cache headers, their own CSP, and nothing outside of the folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from jobwire.gateway import static_files
from jobwire.gateway.feature import Feature
from tests.gateway.server import Serving, status_of
from tests.support import clause

CSP: Final = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'"
FILES: Final = {
    "index.html": ("/", "text/html; charset=utf-8", "<!doctype html>"),
    "app.js": ("/app.js", "text/javascript; charset=utf-8", "export {};"),
    "parts/index.html": ("/parts/", "text/html; charset=utf-8", "parts"),
    "parts/look.css": ("/parts/look.css", "text/css; charset=utf-8", "body {}"),
}
LONG: Final = "export {};\n" * 100


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    outer = tmp_path_factory.mktemp("static")
    folder = outer / "page"
    (outer / "secret.txt").write_text("secret", encoding="ascii")
    for name, (_, _, text) in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="ascii")
    (folder / "long.js").write_text(LONG, encoding="ascii")
    (folder / "dot.png").write_bytes(b"\x89PNG" + bytes(1000))
    (folder / "__init__.py").write_text("", encoding="ascii")
    routes = static_files.routes("/", folder, csp=CSP)
    with Serving(None, Feature(name="page", routes=routes)) as served:
        yield served


@clause("O-9")
@pytest.mark.parametrize(("path", "media_type", "text"), FILES.values())
def test_o09_a_file_has_its_type_etag_and_policy(
    served: Serving, path: str, media_type: str, text: str
) -> None:
    answer = served.client.get(path)
    assert (answer.status_code, answer.text) == (200, text)
    assert answer.headers["content-type"] == media_type
    assert answer.headers["content-security-policy"] == CSP
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-content-type-options"] == "nosniff"
    head = served.client.head(path)
    assert (head.headers["etag"], head.content) == (answer.headers["etag"], b"")


@clause("O-9")
@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("gzip", "gzip"),
        ("br;q=1.0, gzip;q=0.8, *;q=0.1", "gzip"),
        ("identity", None),
        ("gzip;q=0, br", None),
        ("gzip; q=0.000", None),
        ("", None),
    ],
)
def test_o09_a_text_is_compressed_for_a_browser_that_accepts_it(
    served: Serving, accepted: str, encoding: str | None
) -> None:
    answer = served.client.get("/long.js", headers={"accept-encoding": accepted})
    assert answer.headers.get("content-encoding") == encoding
    assert answer.text == LONG
    assert answer.headers["vary"] == "accept-encoding"
    assert (int(answer.headers["content-length"]) < len(LONG)) is (encoding == "gzip")
    # A copy in a cache belongs to one encoding.
    etag = answer.headers["etag"]
    again = {"accept-encoding": accepted, "if-none-match": etag}
    assert served.client.get("/long.js", headers=again).status_code == 304
    other = {"accept-encoding": "gzip" if encoding is None else "identity", "if-none-match": etag}
    assert served.client.get("/long.js", headers=other).status_code == 200


@clause("O-9")
def test_o09_a_picture_is_not_compressed(served: Serving) -> None:
    answer = served.client.get("/dot.png", headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in answer.headers


@clause("O-9")
def test_o09_a_file_that_the_browser_has_is_not_sent_again(served: Serving) -> None:
    etag = served.client.get("/app.js").headers["etag"]
    for given in (etag, f'"other", {etag}', f"W/{etag}", "*"):
        answer = served.client.get("/app.js", headers={"if-none-match": given})
        assert (answer.status_code, answer.content) == (304, b"")
        assert answer.headers["etag"] == etag
        assert answer.headers["cache-control"] == "no-cache"
    for given in ('"other"', etag.strip('"'), ""):
        answer = served.client.get("/app.js", headers={"if-none-match": given})
        assert answer.status_code == 200
    assert served.client.get("/").headers["etag"] != etag


@clause("O-9")
@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/parts/../../secret.txt",
        "/parts/%2e%2e/app.js",
        "/__init__.py",
        "/parts",
        "//app.js",
        "/app.js/",
        "/APP.JS",
        "/app.js%00",
    ],
)
def test_o09_nothing_else_is_served(served: Serving, path: str) -> None:
    assert status_of(served.raw(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())) == 404


@clause("O-9")
def test_o09_files_are_not_in_the_api_document(served: Serving) -> None:
    assert "/app.js" not in served.client.get("/openapi.json").json()["paths"]
    assert served.client.post("/app.js").status_code == 405


@clause("O-9")
def test_o09_a_file_of_unknown_type_is_refused_at_start(tmp_path: Path) -> None:
    (tmp_path / "page.exe").write_bytes(b"")
    with pytest.raises(TypeError, match=r"page\.exe: no media type"):
        static_files.routes("/", tmp_path, csp=CSP)
