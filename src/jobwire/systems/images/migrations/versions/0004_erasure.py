"""Deleted records keep nothing of their image, and when that was done."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_IMAGES = sa.table(
    "images",
    sa.column("status", sa.String),
    *(sa.column(name) for name in ("filename", "sha256", "etag", "file_size", "content_type")),
    *(sa.column(name) for name in ("original_width", "original_height")),
    *(sa.column(name) for name in ("processed_width", "processed_height")),
    *(sa.column(name) for name in ("error_code", "error_message", "erased_at")),
)


def upgrade() -> None:
    """Blank the records that were deleted by an earlier version."""
    op.add_column("images", sa.Column("erased_at", sa.DateTime(timezone=True)))
    kept = {"status", "filename", "erased_at"}
    blank = {column.name: None for column in _IMAGES.columns if column.name not in kept}
    op.execute(sa.update(_IMAGES).where(_IMAGES.c.status == "deleted").values(filename="", **blank))
    op.create_index("images_by_erasure", "images", ["status", "erased_at"])
