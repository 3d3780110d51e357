"""The bucket: does it answer, and does the store keep the promises that we stand on?

The probe writes a few objects under a random key of its own and removes them again.
"""

from collections.abc import AsyncIterator

from jobwire.doctor.finding import Finding
from jobwire.objects import Bucket, BucketConfig, ObjectsError, StoreRefused
from jobwire.objects.probe import probe


async def examine(config: BucketConfig, *, cure: str) -> AsyncIterator[Finding]:
    """Everything about one bucket; `cure` is what to do if it is not there."""
    bucket = Bucket(config)
    try:
        await bucket.ping()
        yield Finding("bucket", "ok", config.where)
        await probe(bucket)
        yield Finding("bucket promises", "ok", "conditional writes are kept")
    except StoreRefused as error:
        yield Finding(
            "bucket promises",
            "fault",
            str(error),
            "two programs could both believe that they won",
            "use another store: SeaweedFS, MinIO and AWS keep them",
        )
    except ObjectsError as error:
        yield Finding(
            "bucket", "unreachable", str(error), "images and predictions live there", cure
        )
