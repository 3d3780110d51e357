"""Making a bucket, for an S3 server that begins empty."""

from typing import Final

from jobwire.objects.signed import SignedCalls

_EXISTS: Final = 409
_VERSIONING: Final = (
    b'<VersioningConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    b"<Status>Enabled</Status></VersioningConfiguration>"
)


async def create_bucket(calls: SignedCalls) -> bool:
    """Make the bucket, with versioning on; False if the server had it. Can be repeated.

    A bucket of another account is refused by the second call.
    """
    answer = await calls.send("PUT", expect=(_EXISTS,))
    await calls.send("PUT", query={"versioning": ""}, body=_VERSIONING)
    return answer.status != _EXISTS
