"""Errors of the server as the Engine protocol has them."""

from jobwire.job.errors import BackendUnavailable
from jobwire.valkey import ServerError, ValkeyError


def unavailable(error: ValkeyError) -> BackendUnavailable:
    """The server did not answer, or refuses to write: the call may be repeated later."""
    if isinstance(error, ServerError):
        return BackendUnavailable("the queue server refuses to write", detail=str(error))
    return BackendUnavailable("the queue server does not answer", detail=str(error))
