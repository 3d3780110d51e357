"""The upload route (I-20): `PUT /v1/uploads/{image_id}`, authenticated by its token (I-32)."""

from dataclasses import replace
from typing import Final

from jobwire.api import images as api
from jobwire.gateway.auth import Principal
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.route import Route, serve
from jobwire.systems.images.tokens import UploadGrant
from jobwire.systems.images.uploads import UploadIntake, UploadRefused

_BEARER: Final = b"bearer"
_CHALLENGE: Final = ((b"www-authenticate", b'Bearer realm="jobwire uploads"'),)
_ACCEPTED: Final = api.UploadAccepted("accepted")


class UploadRoutes:
    """The endpoint and its verifier."""

    def __init__(self, intake: UploadIntake) -> None:
        self._intake = intake

    async def verify(self, request: HttpRequest) -> Principal:
        """Admit a request whose token is for the image of its path."""
        (image_id,) = request.params
        grant = self._grant(request, image_id)
        return Principal("", frozenset(), f"upload {grant.image_id}")

    async def put(self, request: HttpRequest, image_id: str) -> api.UploadAccepted:
        """Answer 202 when the photo is safe, before anything is done with it."""
        # Verified a second time, for the claims: a fraction of a millisecond.
        grant = self._grant(request, image_id)
        given = request.headers.get(b"content-length")
        content_type = request.headers.get(b"content-type", b"").decode("latin-1")
        length = self._intake.check(grant, content_type, None if given is None else int(given))
        await self._intake.check_decodable(grant.content_type)
        await self._intake.receive(grant, length, request.chunks())
        return _ACCEPTED

    def _grant(self, request: HttpRequest, image_id: str) -> UploadGrant:
        scheme, _, token = request.headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != _BEARER or not token:
            raise Problem(api.BAD_UPLOAD_TOKEN, headers=_CHALLENGE)
        try:
            return self._intake.verify(token.strip().decode("latin-1"), image_id)
        except UploadRefused as refused:
            if refused.status == api.BAD_UPLOAD_TOKEN.status:
                raise Problem(api.BAD_UPLOAD_TOKEN, refused.message, headers=_CHALLENGE) from None
            raise


def upload_route(intake: UploadIntake, max_size: int) -> Route:
    """The route; a body over `max_size` is refused, whatever its token says."""
    uploads = UploadRoutes(intake)
    return serve(replace(api.UPLOAD, max_body=max_size), uploads.put, verify=uploads.verify)
