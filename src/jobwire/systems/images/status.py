"""Status, claim and result of one image on the server: each method is one script.

Used by the upload gateway and by the API. Every method raises ValkeyError if the server does not
answer; all of them can be repeated.
"""

from collections.abc import Sequence
from typing import Final, Literal, cast

import msgspec

from jobwire.systems.images.contract import (
    GROUP,
    GUARD_TTL_S,
    GUARD_VALUE,
    HELD_PICTURE_TTL_S,
    PROGRESS,
    RESULT_LIMIT,
    RESULT_TRIM,
    STATUS_TTL_S,
    FailedImage,
    ImageKeys,
    ImageResult,
    ReviewField,
    Stage,
    StatusField,
    format_time,
    now_utc,
)
from jobwire.systems.images.scripts import SCRIPTS
from jobwire.valkey import Connection

_ENTRIES: Final = 200
"""Results that are searched in one step: other clients need the server, too."""
Advanced = Literal["written", "behind", "ended", "canceled"]
Finished = Literal["finished", "already", "canceled"]
Reviewed = Literal["noted", "not_held", "changing"]


class DrawnByReviewer(msgspec.Struct, frozen=True):
    """The value of `ReviewField.AREAS`."""

    areas: Sequence[Sequence[float]]
    """Left, top, width and height, in parts of the picture."""
    show_doubtful: bool = False
    """Detected areas that are not certain are left visible."""


class ImageStatus:
    """The keys of all images."""

    def __init__(
        self,
        connection: Connection,
        keys: ImageKeys,
        *,
        group: str = GROUP,
        guard_ttl_s: float = GUARD_TTL_S,
        status_ttl_s: float = STATUS_TTL_S,
    ) -> None:
        self._connection = connection
        self.keys = keys
        self._group = group
        self._guard_ttl_ms = _ms(guard_ttl_s)
        self._ttl_ms = _ms(status_ttl_s)
        self.ttl_s = min(guard_ttl_s, status_ttl_s)
        """The shorter of the two lifetimes; keys are renewed well within it."""

    async def claim(self, image_id: str, attempt: str) -> bool:
        """Claim the upload for an attempt (I-2); False if it was claimed before."""
        reply = await self._connection.run(
            SCRIPTS["claim"],
            [self.keys.upload(image_id), self.keys.owner(image_id)],
            [GUARD_VALUE, attempt, self._guard_ttl_ms],
        )
        return reply == "claimed"

    async def release(self, image_id: str, attempt: str) -> None:
        """Release the claim of an attempt, if it has it."""
        keys = [self.keys.upload(image_id), self.keys.owner(image_id)]
        await self._connection.run(SCRIPTS["release"], keys, [attempt])

    async def advance(self, image_id: str, stage: Stage) -> Advanced:
        """Write a stage that is not terminal (I-1)."""
        reply = await self._connection.run(
            SCRIPTS["advance"],
            [self.keys.status(image_id), self.keys.canceled(image_id)],
            [stage, PROGRESS[stage], format_time(now_utc()), self._ttl_ms],
        )
        return cast("Advanced", reply)

    async def finish(self, result: ImageResult) -> Finished:
        """Write the terminal stage and the result (I-7)."""
        failed = isinstance(result, FailedImage)
        stage = Stage.FAILED if failed else Stage.DONE
        fields = [part for pair in result.fields().items() for part in pair]
        reply = await self._connection.run(
            SCRIPTS["finish"],
            [
                self.keys.status(result.image_id),
                self.keys.canceled(result.image_id),
                self.keys.result,
            ],
            [
                *(self._group, RESULT_TRIM, RESULT_LIMIT, self._ttl_ms),
                *(stage, PROGRESS[stage], format_time(now_utc())),
                result.error_message if failed else "",
                *fields,
            ],
        )
        return cast("Finished", reply)

    async def extend_ttl(self, image_id: str, stage: Stage) -> None:
        """Renew the keys of an accepted image; `stage` is written if the status was lost."""
        await self._connection.run(
            SCRIPTS["extend_ttl"],
            [
                self.keys.status(image_id),
                self.keys.canceled(image_id),
                self.keys.upload(image_id),
            ],
            [
                *(GUARD_VALUE, self._guard_ttl_ms, self._ttl_ms),
                *(stage, PROGRESS[stage], format_time(now_utc())),
            ],
        )

    async def delete(self, image_id: str) -> None:
        """Remove the status of a deleted image, and cancel it at the upload gateway."""
        keys = [self.keys.status(image_id), self.keys.canceled(image_id)]
        await self._connection.run(SCRIPTS["delete"], keys, [self._ttl_ms])

    async def deleted(self, image_ids: Sequence[str]) -> list[str]:
        """Those of the images that were deleted."""
        if not image_ids:
            return []
        found = await self._connection.call("MGET", *map(self.keys.canceled, image_ids))
        values = cast("list[str | None]", found)
        return [each for each, value in zip(image_ids, values, strict=True) if value is not None]

    async def erase_results(self, image_ids: Sequence[str]) -> set[str]:
        """Delete the acknowledged results of deleted images, and their dead letters; returns the
        images that have a result which is not acknowledged yet (I-42)."""
        kept: set[str] = set()
        for stream, group in ((self.keys.result, self._group), (self.keys.dead, "")):
            after = "-"
            while True:
                reply = await self._connection.run(
                    SCRIPTS["erase_results"], [stream], [group, after, _ENTRIES, *image_ids]
                )
                last, *unread = cast("list[str]", reply)
                kept.update(unread)
                if last == "-":
                    break
                after = f"({last}"
        return kept

    async def hold(self, image_id: str, reason: str, made: str) -> tuple[str, str, bool]:
        """Note that the photo waits for a reviewer, and with which drawn areas it was made; returns
        the decision, drawn areas as JSON, and whether the picture is wanted (I-38)."""
        reply = await self._connection.run(
            SCRIPTS["hold"],
            [self.keys.review(image_id), self.keys.held_picture(image_id)],
            [self._ttl_ms, reason, made],
        )
        decision, areas, wanted = cast("list[str]", reply)
        return decision, areas, wanted != ""

    async def review(self, image_id: str, field: ReviewField, value: str) -> Reviewed:
        """Pass a wish of a reviewer to the upload gateway, if it holds the photo."""
        reply = await self._connection.run(
            SCRIPTS["review"], [self.keys.review(image_id)], [field, value]
        )
        return cast("Reviewed", reply)

    async def held_for(self, image_id: str) -> str | None:
        """Why the photo waits for a reviewer; None if it does not."""
        fields = (ReviewField.HELD, ReviewField.DECISION)
        reply = await self._connection.call("HMGET", self.keys.review(image_id), *fields)
        held, decision = cast("list[str | None]", reply)
        return held if decision is None else None

    async def end_review(self, image_id: str) -> None:
        """Forget a review that is over."""
        keys = (self.keys.review(image_id), self.keys.held_picture(image_id))
        await self._connection.delete(*keys)

    async def show_held(self, image_id: str, picture: str) -> None:
        """Store the held picture for a moment."""
        key = self.keys.held_picture(image_id)
        await self._connection.call("SET", key, picture, "EX", HELD_PICTURE_TTL_S)

    async def held_picture(self, image_id: str) -> str | None:
        """The held picture in Base64; None if the gateway has not stored it."""
        found = await self._connection.call("GET", self.keys.held_picture(image_id))
        return None if found is None else str(found)

    async def read(self, image_id: str) -> dict[StatusField, str] | None:
        """The status; None if there is none."""
        return read_status(await self._connection.hgetall(self.keys.status(image_id)))


def read_status(fields: dict[str, str]) -> dict[StatusField, str] | None:
    """The fields of a status hash; None if it is missing or not one."""
    if not all(fields.get(name) for name in (StatusField.STAGE, StatusField.PROGRESS)):
        return None
    return {name: fields[name] for name in StatusField if name in fields}


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
