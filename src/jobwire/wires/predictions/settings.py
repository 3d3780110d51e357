"""The section `predictions` of the settings: the photo bot."""

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PredictionsSettings:
    """What the bot accepts."""

    max_image_mb: int = field(default=10, metadata={"env": "MAX_IMAGE_MB"})
    """Largest photo, in MB of 1,048,576 bytes."""

    def check(self) -> Iterator[tuple[str, str]]:
        """Yield each fault: the field, and what is wrong with it."""
        if self.max_image_mb < 1:
            yield "max_image_mb", "must be at least 1"
