"""The upload route (I-20): `PUT /v1/uploads/{image_id}`, authenticated by its token (I-32)."""

from typing import Final

import msgspec

from jobwire.api.problems import TIMED_OUT, TOO_LARGE
from jobwire.gateway.access import SelfAuthenticated
from jobwire.gateway.auth import Principal
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.routes import Doc, HotRoute
from jobwire.wires.images.contract import CONTENT_TYPES
from jobwire.wires.images.http import problems
from jobwire.wires.images.http.api import UPLOAD_PATH
from jobwire.wires.images.tokens import UploadGrant
from jobwire.wires.images.uploads import UploadIntake, UploadRefused

_BEARER: Final = b"bearer"
_CHALLENGE: Final = ((b"www-authenticate", b'Bearer realm="jobwire uploads"'),)
_ACCEPTED: Final = Reply(msgspec.json.encode({"status": "accepted"}), 202)


class UploadRoutes:
    """The endpoint and its verifier."""

    def __init__(self, intake: UploadIntake) -> None:
        self._intake = intake

    async def verify(self, request: HttpRequest) -> Principal:
        """Admit a request whose token is for the image of its path."""
        grant = self._grant(request)
        return Principal("", frozenset(), f"upload {grant.image_id}")

    async def put(self, request: HttpRequest) -> Reply:
        """Answer 202 when the photo is safe, before anything is done with it."""
        # Verified a second time, for the claims: a fraction of a millisecond.
        grant = self._grant(request)
        given = request.headers.get(b"content-length")
        content_type = request.headers.get(b"content-type", b"").decode("latin-1")
        length = self._intake.check(grant, content_type, None if given is None else int(given))
        await self._intake.receive(grant, length, request.chunks())
        return _ACCEPTED

    def _grant(self, request: HttpRequest) -> UploadGrant:
        (image_id,) = request.params
        scheme, _, token = request.headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != _BEARER or not token:
            raise Problem(problems.BAD_UPLOAD_TOKEN, headers=_CHALLENGE)
        try:
            return self._intake.verify(token.strip().decode("latin-1"), image_id)
        except UploadRefused as refused:
            if refused.status == problems.BAD_UPLOAD_TOKEN.status:
                raise Problem(problems.BAD_UPLOAD_TOKEN, headers=_CHALLENGE) from None
            raise


def upload_route(intake: UploadIntake, max_size: int) -> HotRoute:
    """The route; a body over `max_size` is refused, whatever its token says."""
    routes = UploadRoutes(intake)
    access = SelfAuthenticated(
        routes.verify,
        "uploadToken",
        {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
        problems=(problems.BAD_UPLOAD_TOKEN, problems.OTHER_IMAGE),
    )
    return HotRoute(
        "PUT",
        UPLOAD_PATH + "/{image_id}",
        access,
        routes.put,
        _DOC,
        max_body=max_size,
        cors=True,
    )


class UploadAccepted(msgspec.Struct, frozen=True):
    """The photo is stored and will get a result."""

    status: str


_DOC: Final = Doc(
    summary="Upload the photo of an announced image",
    tag="images",
    description=(
        "The body is the photo itself, with its `Content-Type` and `Content-Length`; the token is "
        "that of `POST /v1/images`. 202 means that the photo is stored: its result follows on the "
        "image's event stream. A photo whose body did not arrive whole can be sent again."
    ),
    binary=CONTENT_TYPES,
    answer=UploadAccepted,
    example={"status": "accepted"},
    status=202,
    problems=(
        *problems.UPLOAD_PROBLEMS,
        TIMED_OUT,
        TOO_LARGE,
    ),
)
