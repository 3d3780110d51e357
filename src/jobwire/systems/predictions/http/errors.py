"""A bucket that does not answer, as the gateway's problem `unavailable`."""

from collections.abc import Generator
from contextlib import contextmanager

from jobwire.job.errors import BackendUnavailable
from jobwire.objects import ObjectsError


@contextmanager
def bucket_errors() -> Generator[None]:
    """Raise BackendUnavailable for a failure of the bucket."""
    try:
        yield
    except ObjectsError as error:
        raise BackendUnavailable("the bucket does not answer", detail=str(error)) from error
