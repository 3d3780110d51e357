"""The signature equals that of botocore."""

from __future__ import annotations

from datetime import UTC, datetime
from unittest.mock import patch

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from jobwire.objects.signing import SigningRequest, signed_headers

NOW = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
TEXT = st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"]), max_size=12)
NAME = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=12)


@given(
    method=st.sampled_from(["GET", "PUT", "POST", "DELETE"]),
    key=TEXT.filter(lambda key: "/../" not in f"/{key}/" and "/./" not in f"/{key}/"),
    query=st.dictionaries(NAME, TEXT, max_size=3),
    body=st.binary(max_size=40),
)
def test_the_signature_is_that_of_botocore(
    method: str, key: str, query: dict[str, str], body: bytes
) -> None:
    request = SigningRequest(
        method, "127.0.0.1:9000", f"/bucket/{key}", query, {"content-md5": "x"}, body
    )
    ours = signed_headers(
        request, access_key="access", secret_key="secret", region="eu-west-1", now=NOW
    )
    theirs = AWSRequest(
        method,
        f"http://127.0.0.1:9000{request.target.partition('?')[0]}",
        params=query,
        headers={"content-md5": "x"},
        data=body,
    )
    theirs.context["payload_signing_enabled"] = True
    theirs.context["timestamp"] = NOW.strftime("%Y%m%dT%H%M%SZ")
    with patch("botocore.auth.get_current_datetime", return_value=NOW):
        S3SigV4Auth(Credentials("access", "secret"), "s3", "eu-west-1").add_auth(theirs)
    assert ours["authorization"] == theirs.headers["Authorization"]


def test_the_signature_of_the_aws_lifecycle_example() -> None:
    headers = signed_headers(
        SigningRequest("GET", "examplebucket.s3.amazonaws.com", "/", {"lifecycle": ""}, {}, b""),
        access_key="AKIAIOSFODNN7EXAMPLE",
        secret_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        region="us-east-1",
        now=datetime(2013, 5, 24, tzinfo=UTC),
    )
    assert headers["authorization"].endswith(
        "Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
    )
